"""Runs in MLflow, Weights & Biases and TensorBoard, read back with the packages themselves."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from entry import run as command
from stores import make_run, row, rows_of, setting

import brusle
from brusle.errors import DataError
from brusle.evaluation.storing.runs import Run
from brusle.report.tracking import log
from brusle.report.tracking.entries import entries_of

pytestmark = pytest.mark.interop
ROWS = [*rows_of([10, 30], 1), row(3, "unverified", 20), row(4, "skipped", 0)]
EVIL = "../Mine/\x1b[31m=x \N{SNOWMAN}"
BEGIN = "BruSLe/untargeted/5px/100q"
NAMES = {
    "mlflow": "mlflow:{}?experiment=mine",
    "tensorboard": "tensorboard:{}",
    "wandb": "wandb:mine?dir={}",
}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home and a current folder, in which nothing may be written but what is told."""
    place = tmp_path / "home"
    for name in ("cwd", "cache"):
        (place / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.chdir(place / "cwd")
    for name in [*os.environ]:
        if name.startswith(("MLFLOW_", "WANDB_", "XDG_")):
            monkeypatch.delenv(name)
    return place


@pytest.fixture
def run(tmp_path) -> Run:
    return make_run(
        tmp_path / "run", [(setting(), ROWS), (setting(EVIL, pixels=7), rows_of([5], 1))]
    )


def files(place: Path) -> set[Path]:
    return {path.relative_to(place) for path in place.rglob("*") if path.is_file()}


def mlflow_runs(place: Path):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("mine")
    return client, client.search_runs([experiment.experiment_id])


def test_mlflow_has_parameters_metrics_over_queries_pictures_and_files(run, tmp_path, home) -> None:
    place = tmp_path / "place"
    (found,) = log(run, f"mlflow:{place}?experiment=mine")
    client, (stored,) = mlflow_runs(place)
    assert stored.info.run_id == found.id and stored.info.status == "FINISHED"
    with entries_of(run) as entries:
        assert stored.data.params == entries.parameters
        for key, points in entries.series.items():
            history = client.get_metric_history(found.id, key)
            assert sorted((m.step, m.value) for m in history) == points, key
        assert stored.data.metrics == pytest.approx(entries.scalars)
    asr = client.get_metric_history(found.id, f"{BEGIN}/asr")
    assert [(m.step, m.value) for m in asr] == [(0, 0), (10, 0.25), (30, 0.5), (100, 0.5)]
    names = {file.path for file in client.list_artifacts(found.id)}
    assert names == {"pictures", "report.md", "rows.csv", "run.json"}
    (picture,) = client.list_artifacts(found.id, "pictures")
    path = Path(client.download_artifacts(found.id, picture.path, str(home / "cache")))
    assert path.read_bytes()[1:4] == b"PNG"


def test_tensorboard_has_them_too(run, tmp_path, home) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (found,) = log(run, f"tensorboard:{tmp_path / 'place'}")
    read = EventAccumulator(str(tmp_path / "place" / found.id), size_guidance={"scalars": 0})
    read.Reload()
    with entries_of(run) as entries:
        for key, points in entries.series.items():
            events = [(event.step, event.value) for event in read.Scalars(key)]
            assert [step for step, _ in events] == [step for step, _ in points]
            assert [x for _, x in events] == pytest.approx([x for _, x in points])
        for key, value in entries.metrics.items():
            assert read.Scalars(key)[0].value == pytest.approx(value)
        table = read.Tensors("parameters")[0].tensor_proto.string_val[0].decode()
        assert len(table.splitlines()) == len(entries.parameters) + 2
        assert "| victim | zoo:toy |" in table
        assert (
            read.Images("curve")[0].encoded_image_string == entries.pictures["curve"].read_bytes()
        )
        plugins = read.SummaryMetadata("_hparams_/session_start_info").plugin_data
        assert plugins.plugin_name == "hparams" and b"zoo:toy" in plugins.content


def wandb_records(path: Path):
    """The records of a file that `wandb sync` sends: LevelDB's log, with a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, part = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:  # a block has no room for another header
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            record = Record()
            record.ParseFromString(part)
            yield record
            part = b""


def test_wandb_has_them_too(run, tmp_path, home) -> None:
    place = tmp_path / "place"
    (found,) = log(run, f"wandb:mine?dir={place}")
    (path,) = place.rglob("*.wandb")
    records = list(wandb_records(path))
    begun = next(r.run for r in records if r.WhichOneof("record_type") == "run")
    assert (begun.run_id, begun.project) == (found.id, "mine")
    config = {item.key: json.loads(item.value_json) for item in begun.config.update}
    points: dict[str, list] = {}
    summary = {}
    for record in records:
        if record.WhichOneof("record_type") == "history":
            line = {
                "/".join(i.nested_key) or i.key: json.loads(i.value_json)
                for i in record.history.item
            }
            for key in line.keys() - {"queries", "pixels"}:
                points.setdefault(key, []).append((line.get("queries"), line[key]))
        if record.WhichOneof("record_type") == "summary":
            for item in record.summary.update:
                summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    with entries_of(run) as entries:
        assert {key: config[key] for key in entries.parameters} == entries.parameters
        for key, expected in entries.series.items():
            assert points[key] == expected
        assert {key: summary[key] for key in entries.scalars} == pytest.approx(entries.scalars)
    assert points["curve/_type"][0][1] == "image-file"
    assert {"rows.csv", "run.json", "report.md"} <= {p.name for p in path.parent.rglob("*")}
    assert records[-1].WhichOneof("record_type") in ("exit", "final", "footer")


@pytest.mark.parametrize("kind", NAMES)
def test_the_same_run_is_written_once(run, tmp_path, home, kind) -> None:
    name = NAMES[kind].format(tmp_path / "place")
    first, second = log(run, name), log(run.folder, name)
    before = files(tmp_path / "place")
    moved = shutil.copytree(run.folder, tmp_path / "moved")
    third = log(moved, name)
    assert first[0].new and not second[0].new and not third[0].new
    assert first[0].id == second[0].id == third[0].id
    assert {
        path for path in files(tmp_path / "place") - before if "debug" not in path.name
    } == set()


def test_a_run_that_has_got_more_rows_takes_the_place_of_what_was_logged(tmp_path, home) -> None:
    less = make_run(tmp_path / "a", [(setting(problems=4), ROWS[:2])])
    more = make_run(tmp_path / "b" / "a", [(setting(problems=4), rows_of([10, 30], 2))])
    names = [name.format(tmp_path / kind) for kind, name in NAMES.items()]
    old, _, _ = log(less, names)
    new, _, _ = log(more, names)
    assert new.replaces == old.id and new.id in new.told() and old.id in new.told()
    client, runs = mlflow_runs(tmp_path / "mlflow")
    status = {one.info.run_id: one.info.status for one in runs}
    assert status == {old.id: "KILLED", new.id: "FINISHED"}
    assert client.get_run(old.id).data.tags["brusle_replaced_by"] == new.id
    assert client.get_run(new.id).data.tags["brusle_replaces"] == old.id
    assert len(files(tmp_path / "tensorboard")) == 1  # one file, written anew
    paths = list((tmp_path / "wandb").rglob("*.wandb"))
    groups = {r.run.run_group for p in paths for r in wandb_records(p) if r.HasField("run")}
    assert len(paths) == 2 and len(groups) == 1


@pytest.mark.parametrize("kind", NAMES)
def test_nothing_is_written_elsewhere_and_nothing_tells_of_the_machine(
    run, tmp_path, home, monkeypatch, kind
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "machine-of-mine")
    monkeypatch.setenv("WANDB_API_KEY", "hush" * 10)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "hush" * 10)
    before = dict(os.environ)
    log(run, NAMES[kind].format(tmp_path / "place"))
    assert dict(os.environ) == before
    assert {path for path in files(home) if "matplotlib" not in path.parts} == set()
    for path in (tmp_path / "place").rglob("*"):
        text = path.read_bytes() if path.is_file() and path.suffix != ".png" else b""
        assert b"hush" not in text, path
        assert "machine-of-mine" not in path.name
        if path.suffix in (".wandb", ".brusle"):
            assert b"machine-of-mine" not in text and str(home).encode() not in text
        if path.suffix == ".wandb":
            assert {r.run.host for r in wandb_records(path) if r.HasField("run")} == {"brusle"}


@pytest.mark.parametrize("kind", ["mlflow", "tensorboard"])
def test_without_a_name_it_is_a_folder_here(run, home, kind) -> None:
    log(run, kind)
    assert {path.parts[0] for path in files(home / "cwd")} == {kind}


def test_wandb_is_offline_whatever_the_environment_says(run, home, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert log(run, "wandb")[0].new
    assert list((home / "cwd" / "wandb").glob("offline-run-*"))


def test_a_server_that_is_down_is_one_line_and_no_loss(tmp_path, home) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    out = tmp_path / "run"
    small = ("--limit", "1", "--pixels", "1", "--queries", "5", "--attack", "brusle")
    said = command("evaluate", *small, "--out", out, "--log", f"mlflow:{address}")
    assert said.returncode == 0 and (out / "rows.csv").exists()
    flat = " ".join(said.stdout.split())
    assert f"cannot log to mlflow:{address}" in flat and "the run is stored" in flat
    assert "Traceback" not in said.stdout + said.stderr


def test_a_place_that_cannot_be_written_to(run, tmp_path, home) -> None:
    (tmp_path / "file").write_text("")
    for name in NAMES.values():
        with pytest.raises(DataError, match="cannot"):
            log(run, name.format(tmp_path / "file" / "below"))


def test_a_run_of_the_user_in_the_same_process_is_left_alone(run, tmp_path, home) -> None:
    import wandb

    mine = wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True))
    log(run, f"wandb:mine?dir={tmp_path / 'place'}")
    assert wandb.run is mine
    mine.log({"still": 1})
    mine.finish()


def test_the_page_of_the_evaluation(tmp_path, home) -> None:
    """The way that the documentation shows, with a victim and pictures of examples."""
    attack = brusle.attacks.BruSLe(pixels=5, queries=50)
    found = brusle.evaluate(
        attacks=attack, goal="untargeted", limit=3, out=tmp_path / "run",
        log=[f"mlflow:{tmp_path / 'ml'}", f"tensorboard:{tmp_path / 'tb'}"],
    )  # fmt: skip
    assert len(found.logged) == 2 and all(line.startswith("logged to ") for line in found.logged)
    pictures = {path.name for path in (tmp_path / "ml").rglob("*.png")}
    assert pictures == {"curve.png", "gallery.png"}
