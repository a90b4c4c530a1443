"""Run folders in the page: which may be opened, how far they are, and that they stay data."""

import base64
import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from stores import ABOUT, make_run, row, setting
from studios import CLASSES, SHAPE, Asker, toy, toy_data
from tampering import tamper

import brusle
from brusle.errors import DataError
from brusle.evaluation.record import About
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store
from brusle.locking import lock_folder
from brusle.studio import Studio

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    """A real run with traces, and its images in a file."""
    place, data = tmp_path_factory.mktemp("real"), toy_data()
    levels = (data.images * 255).round().byte().numpy()
    np.savez(place / "toys.npz", images=levels, labels=data.labels.numpy())
    brusle.evaluate(
        victim=toy(),
        data=f"npz:{place / 'toys.npz'}",
        attacks=[brusle.attacks.PixelBandit(pixels=2, queries=20)],
        goal="untargeted",
        out=place / "run",
        trace=True,
    )
    return place / "run"


@pytest.fixture(scope="module")
def asker(real):
    with Studio(runs=[real]) as studio, Asker(studio) as asker:
        yield asker


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.iterdir() if path.is_file() and "sqlite-" not in path.name]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refused(answer) -> str:
    assert answer.status_code == 400, answer.text
    (line,) = answer.json()["error"].splitlines()
    return line


def test_progress_is_what_the_run_says(asker, real) -> None:
    run = Run.open(real)
    (listed,) = asker.get("/api/runs").json()["runs"]
    assert listed == {"run": 0, "name": str(real)}
    found = asker.get("/api/runs/0").json()
    assert (found["writing"], found["victim"], found["data"]) == (False, "toy", run.data)
    (mine,), (summary,) = found["settings"], run.summaries()
    assert mine["stored"] == mine["problems"] == 12 and mine["asr"] == summary.asr.as_dict()
    assert (mine["goal"], mine["pixels"], mine["queries"]) == ("untargeted", 2, 20)


def test_rows_and_their_traces_are_those_of_the_run(asker, real) -> None:
    run = Run.open(real)
    (chosen,) = run.settings
    found = asker.get("/api/runs/0/rows", params={"setting": chosen.number}).json()
    stored = run.stored(chosen)
    assert found["total"] == len(stored) == len(found["rows"])
    for told, one in zip(found["rows"], stored, strict=True):
        assert int(told["problem"]) == one.problem and told["image"] == one.image
        assert (told["status"], told["queries"], told["pixels"]) == (
            one.status,
            one.queries,
            one.pixels,
        )
        assert told["label_name"] == CLASSES[one.label] and told["traced"] == (one.queries > 0)
        path = f"/api/runs/0/rows/{told['problem']}"
        whole = asker.get(path, params={"setting": chosen.number}).json()
        trace = run.trace(chosen, one)
        assert whole["trace"] == (trace and json.loads(json.dumps(trace.as_dict())))
        original = run.originals.take([one.image])[0]
        levels = np.frombuffer(base64.b64decode(whole["original"]), np.uint8).reshape(8, 8, 3)
        assert np.array_equal(levels / np.float32(255), original.permute(1, 2, 0).numpy())
        assert (whole["names"], whole["shape"]) == (list(CLASSES), list(SHAPE))


def test_nothing_in_a_folder_changes_when_it_is_looked_at(asker, real) -> None:
    before = digests(real)
    rows = asker.get("/api/runs/0/rows", params={"setting": 1}).json()["rows"]
    asker.get(f"/api/runs/0/rows/{rows[0]['problem']}", params={"setting": 1})
    asker.get("/api/runs/0")
    assert digests(real) == before


@pytest.mark.parametrize(
    "path",
    ["/api/runs/9", "/api/runs/0/rows?setting=9", "/api/runs/0/rows?setting=x", "/api/runs/0/rows"],
)
def test_what_is_not_there_is_refused_in_a_line(asker, path) -> None:
    refused(asker.get(path))


@pytest.mark.parametrize("problem", ["1", "x", "-", "1e3", "9" * 40, "%2e%2e"])
def test_a_row_that_is_not_there_is_refused_in_a_line(asker, problem) -> None:
    assert asker.get(f"/api/runs/0/rows/{problem}?setting=1").status_code in (400, 404)


def test_a_run_that_is_being_written_moves(somewhere) -> None:
    folder = somewhere / "runs" / "new"
    with Studio() as studio, Asker(studio) as asker:
        assert asker.get("/api/runs").json()["runs"] == []
        lock = lock_folder(folder)  # a run has just begun
        (listed,) = asker.get("/api/runs").json()["runs"]
        assert listed["name"] == "runs/new"
        path = f"/api/runs/{listed['run']}"
        found = asker.get(path).json()
        assert found["writing"] and found["settings"] == [] and found["victim"] == ""
        lock.close()
        with Store.write(folder) as store:
            store.write_about(About(**ABOUT))
            known = store.add_setting(setting(problems=3))
            told = []
            for number, status in enumerate(("success", "failed", "error")):
                store.add_rows(known.number, [row(number, status)])
                found = asker.get(path).json()
                told.append((found["writing"], found["settings"][0]["stored"]))
                rows = asker.get(f"{path}/rows", params={"setting": known.number}).json()
                assert [one["status"] for one in rows["rows"]][-1] == status
        assert told == [(True, 1), (True, 2), (True, 3)]
        (mine,) = found["settings"]
        assert mine["counts"] == {"success": 1, "failed": 1, "error": 1} and mine["problems"] == 3
        assert (mine["asr"]["hits"], mine["asr"]["count"]) == (1, 2)
        assert not asker.get(path).json()["writing"]


def test_many_rows_come_in_parts(somewhere) -> None:
    make_run(somewhere / "runs" / "long", [(setting(), [row(i) for i in range(120)])])
    with Studio() as studio, Asker(studio) as asker:
        asker.get("/api/runs")
        parts = [
            asker.get("/api/runs/0/rows", params={"setting": 1, "start": start}).json()
            for start in (0, 50, 100, 150)
        ]
        assert [len(part["rows"]) for part in parts] == [50, 50, 20, 0]
        assert len({one["problem"] for part in parts for one in part["rows"]}) == 120


def test_only_folders_below_runs_and_those_that_were_named_are_opened(somewhere, real) -> None:
    inside, outside = somewhere / "runs" / "a" / "b", somewhere / "outside"
    for folder in (inside, outside):
        make_run(folder, [(setting(), [row(1)])])
    (somewhere / "runs" / "link").symlink_to(outside)
    (somewhere / "runs" / "empty").mkdir()
    (somewhere / "file").write_text("x")
    with Studio() as studio, Asker(studio) as asker:
        assert [one["name"] for one in asker.get("/api/runs").json()["runs"]] == ["runs/a/b"]
        for typed in ("runs/a/b", str(inside), "runs/empty/../a/b"):
            answer = asker.post("/api/runs/open", json={"path": typed})
            assert answer.json() == {"run": 0}
        refusals = set()
        for typed in (
            "outside",
            str(outside),
            str(real),
            "runs/link",
            "runs/../outside",
            "runs/empty",
            "runs/no-such",
            "file",
            "/etc",
            "/proc/self",
            "~",
            "",
            "a\0b",
            "x" * 900,
            HOSTILE,
        ):
            line = refused(asker.post("/api/runs/open", json={"path": typed}))
            refusals.add(line.partition(" is no run folder that this page may open")[2])
            assert "\x1b" not in line and "\u202e" not in line
        assert len(refusals) == 1 and "" not in refusals  # nothing tells what exists
        refused(asker.post("/api/runs/open", json={"path": ["runs"]}))
        shutil.rmtree(inside)
        inside.symlink_to(outside)  # somebody puts a link in its place
        assert "leads elsewhere now" in refused(asker.get("/api/runs/0"))
    with Studio(runs=["outside"]) as studio, Asker(studio) as asker:
        assert asker.post("/api/runs/open", json={"path": str(outside)}).json() == {"run": 0}
    with pytest.raises(DataError, match="holds no run"):
        Studio(runs=["runs/empty"])


def test_names_in_a_folder_are_text_and_its_victim_is_never_run(somewhere, monkeypatch) -> None:
    (somewhere / "evil_victim.py").write_text("raise SystemExit('it was run')")
    monkeypatch.syspath_prepend(str(somewhere))
    folder = somewhere / "runs" / "<b>evil\x1b"
    about = {
        "victim": "python:evil_victim:make",
        "data": "python:evil_victim:make",
        "classes": [HOSTILE, "b", "c"],
        "warnings": {"topic": HOSTILE},
    }
    bad = row(3, "error", image=HOSTILE, error=f"{HOSTILE}\nTraceback", pixels=0)
    make_run(folder, [(setting(HOSTILE), [bad])], **about)
    with Studio() as studio, Asker(studio) as asker:
        answers = [asker.get("/api/runs"), asker.get("/api/runs/0")]
        answers += [asker.get("/api/runs/0/rows?setting=1")]
        problem = answers[-1].json()["rows"][0]["problem"]
        answers += [asker.get(f"/api/runs/0/rows/{problem}?setting=1")]
        for answer in answers:
            assert (
                answer.status_code == 200 and answer.headers["content-type"] == "application/json"
            )
            text = json.loads(answer.text)
            assert "\x1b" not in str(text) and "\u202e" not in json.dumps(text, ensure_ascii=False)
        whole = answers[-1].json()
        assert whole["original"] is None and "without the original image" in whole["remark"]
        assert whole["image"] == "<img src=x onerror=alert(1)>\\u202e\\x1b[31m"
    assert "evil_victim" not in sys.modules


def test_a_damaged_folder_is_a_line_and_others_go_on(somewhere) -> None:
    for name in ("bad", "good"):
        make_run(somewhere / "runs" / name, [(setting(), [row(1)])])
    with Studio() as studio, Asker(studio) as asker:
        runs = {one["name"]: one["run"] for one in asker.get("/api/runs").json()["runs"]}
        assert tamper(somewhere / "runs" / "bad", "rows", sums=False, queries=99)
        line = refused(asker.get(f"/api/runs/{runs['runs/bad']}"))
        assert "damaged" in line
        (somewhere / "runs" / "bad" / "results.sqlite").write_bytes(b"nonsense" * 100)
        refused(asker.get(f"/api/runs/{runs['runs/bad']}/rows?setting=1"))
        assert asker.get(f"/api/runs/{runs['runs/good']}").status_code == 200
