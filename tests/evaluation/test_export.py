"""What is stored in a run folder, in other formats and asked again."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from models import integer_model, own_labels, random_images
from tampering import tamper

import brusle
from brusle.attacks import BruSLe
from brusle.data import load, read_image
from brusle.defences import RandomNoise
from brusle.errors import DataError, InputError
from brusle.evaluation.storing.export import export_images, export_npz, export_rows, stored_rows
from brusle.evaluation.storing.recheck import recheck
from brusle.evaluation.storing.rows import pack_edits
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import FILE, Store

SHAPE = (3, 8, 10)  # not square: rows and columns cannot be mistaken for each other
MODEL = integer_model(SHAPE, 4)
IMAGES = random_images(12, SHAPE)
DATA = (IMAGES, own_labels(MODEL, IMAGES))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> brusle.evaluation.Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return brusle.evaluate(MODEL.victim(), DATA, [BruSLe(3, 30), BruSLe(4, 30)], out=out)


@pytest.fixture
def folder(run, tmp_path) -> Path:
    """A copy of the run's folder that a test may damage."""
    for name in (FILE, "pairs.json"):
        (tmp_path / name).write_bytes((run.folder / name).read_bytes())
    return tmp_path


def change(folder: Path, column: str, value, where: str) -> None:
    assert tamper(folder, "rows", where, **{column: value}) == 1


def first_success(folder: Path, setting: int = 1):
    with Store.read(folder) as store:
        return next(row for row in store.rows(setting) if row.status == "success")


def rows_in(folder: Path) -> list[dict]:
    return list(stored_rows(Run.open(folder)))


def test_rows_are_those_of_the_run(run) -> None:
    mine = {(r["goal"], r["pixel_budget"], r["id"]): r for r in rows_in(run.folder)}
    theirs = {(r["goal"], r["pixel_budget"], r["id"]): r for r in run.rows()}
    assert mine.keys() == theirs.keys() and len(mine) == 48
    for key, row in theirs.items():
        assert row.items() <= mine[key].items()


def test_edits_name_row_column_and_colour(run) -> None:
    names = {f"{i:05d}": image for i, image in enumerate(IMAGES)}
    rows = rows_in(run.folder)
    assert any(row["edits"] for row in rows)
    result = run.results[0]
    final = dict(zip(result.problems.ids.tolist(), result.images, strict=True))
    for row in rows:
        if (row["goal"], row["pixel_budget"]) != ("untargeted", 3):
            continue
        image = names[row["image"]].clone()
        for edit in row["edits"]:
            image[:, edit["row"], edit["column"]] = torch.tensor(edit["colour"]).float() / 255
        assert torch.equal(image, final[row["id"]])
        assert len(row["edits"]) == row["pixels"]


def test_csv_and_json_hold_the_same(run, tmp_path) -> None:
    assert export_rows(run.folder, tmp_path / "deep" / "rows.csv") == 48
    assert export_rows(run.folder, tmp_path / "rows.json") == 48
    with (tmp_path / "deep" / "rows.csv").open(newline="") as file:
        flat = list(csv.DictReader(file))
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows == rows_in(run.folder)
    for one, other in zip(flat, rows, strict=True):
        assert json.loads(one["edits"]) == other["edits"]
        assert one["target"] == ("" if other["target"] is None else str(other["target"]))
        assert (one["image"], one["status"]) == (other["image"], other["status"])


def test_parquet_holds_the_same_with_types(run, tmp_path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export_rows(run.folder, tmp_path / "rows.parquet")
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert table.to_pylist() == rows_in(run.folder)
    types = {name: str(table.schema.field(name).type) for name in ("target", "loss", "stable")}
    assert types == {"target": "int64", "loss": "double", "stable": "bool"}


def test_parquet_without_pyarrow_says_what_to_install(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r'pip install "brusle\[parquet\]"'):
        export_rows(run.folder, tmp_path / "rows.parquet")
    assert not (tmp_path / "rows.parquet").exists()


def test_bad_requests(run, tmp_path) -> None:
    with pytest.raises(InputError, match=r"name it .csv, .json, .parquet"):
        export_rows(run.folder, tmp_path / "rows.xlsx")
    with pytest.raises(InputError, match=r"arrays.zip in the format of its name: name it .npz"):
        export_npz(run.folder, tmp_path / "arrays.zip", DATA)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        export_rows(run.folder, tmp_path / "file" / "rows.csv")
    with Store.write(tmp_path / "empty"):
        pass
    with pytest.raises(DataError, match="no attack is stored in .* yet"):
        export_rows(tmp_path / "empty", tmp_path / "rows.csv")


def test_arrays_are_not_kept(run, tmp_path) -> None:
    with pytest.raises(DataError, match=r"were arrays.* give --data npz:FILE"):
        export_images(run.folder, tmp_path)
    np.savez(tmp_path / "d.npz", images=IMAGES.numpy(), labels=DATA[1].numpy())
    assert export_images(run.folder, tmp_path / "out", f"npz:{tmp_path / 'd.npz'}") > 0
    with pytest.raises(DataError, match="is not the one that was chosen"):
        export_images(run.folder, tmp_path / "other", (1 - IMAGES, DATA[1]))


def test_images_are_the_adversarial_ones(run, tmp_path) -> None:
    count = export_images(run.folder, tmp_path / "out", DATA)
    assert count == sum(int(result.success.sum()) for result in run.results)
    assert len(list((tmp_path / "out").rglob("*.png"))) == count
    found = 0
    for number, (setting, result) in enumerate(zip(run.settings, run.results, strict=True), 1):
        for i in result.success.nonzero()[:, 0].tolist():
            targets = result.problems.targets
            aim = "" if targets is None else f"-to-{int(targets[i])}"
            name = f"{number:02d}-brusle-{setting.goal}-{setting.pixels}-px"
            path = tmp_path / "out" / name / f"{result.names[i]}{aim}.png"
            assert torch.equal(read_image(path), result.images[i])
            found += 1
    assert found == count


def test_npz_can_be_read_as_data(run, tmp_path) -> None:
    count = export_npz(run.folder, tmp_path / "adversarial.npz", DATA)
    data = load(f"npz:{tmp_path / 'adversarial.npz'}")
    assert len(data) == count
    said = MODEL.function(data.images).argmax(1)
    assert bool((said != data.labels).all())
    with np.load(tmp_path / "adversarial.npz") as arrays:
        assert arrays["final_labels"].tolist() == said.tolist()
        aimed = arrays["targets"] >= 0
        assert aimed.any() and (arrays["targets"] == arrays["final_labels"])[aimed].all()


def test_every_success_of_a_sound_run_holds(run) -> None:
    model = integer_model(SHAPE, 4)
    found = recheck(run.folder, model.victim(), DATA, batch_size=5)
    assert found.checked == sum(int(result.success.sum()) for result in run.results) > 10
    assert (found.held, found.mismatches, found.failed) == (found.checked, (), False)
    assert model.seen == found.checked  # every success is asked for once


@pytest.mark.parametrize("setting", [1, 3])  # untargeted, targeted
def test_a_changed_edit_is_found_in_exactly_that_row(folder, setting) -> None:
    row = first_success(folder, setting)
    assert (row.target is None) == (setting == 1)
    original = IMAGES[int(row.image)]
    where = np.frombuffer(row.edits[: 4 * row.pixels], dtype="<u4").astype(np.int64)
    colours = (original.flatten(1)[:, where] * 255).round().byte().T.contiguous()
    undone = row.edits[: 4 * row.pixels] + colours.numpy().tobytes()
    change(folder, "edits", undone, f"problem = {row.problem} AND setting = {setting}")
    found = recheck(folder, MODEL.victim(), DATA)
    assert found.failed and found.held == found.checked - 1
    (mismatch,) = found.mismatches
    assert (mismatch.setting, mismatch.image, mismatch.target) == (setting, row.image, row.target)
    assert mismatch.reason == f"after an 8-bit PNG round trip the victim says class {row.label}"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("edits", "5 pixels differ from the original, 3 are allowed"),
        ("label", "with its label and target is not what was attacked"),
        ("image", "is not in arrays"),
        ("position", "are damaged"),
        ("length", "are damaged"),
    ],
)
def test_other_changes_are_found_too(folder, column, reason) -> None:
    row = first_success(folder)
    original = IMAGES[int(row.image)]
    image = original.clone()
    image[:, 0, :5] = 1 - image[:, 0, :5]
    far = (10**6).to_bytes(4, "little") + bytes(3)
    changes = {
        "edits": {"edits": pack_edits(original, image), "pixels": 5},
        "label": {"label": (row.label + 1) % 4},
        "image": {"image": "99999"},
        "position": {"edits": far},
        "length": {"edits": row.edits + b"\0"},
    }
    tamper(folder, "rows", f"problem = {row.problem} AND setting = 1", **changes[column])
    found = recheck(folder, MODEL.victim(), DATA)
    assert found.failed
    (mismatch,) = found.mismatches
    assert reason in mismatch.reason


def test_another_model_is_refused_if_its_weights_tell(tmp_path) -> None:
    def net(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(240, 4))

    labels = net(0)(IMAGES).argmax(1)
    brusle.evaluate(net(0), (IMAGES, labels), [BruSLe(3, 20)], "untargeted", tmp_path)
    found = recheck(tmp_path, net(0), (IMAGES, labels))
    assert found.held == found.checked > 0
    with pytest.raises(DataError, match=r"Sequential has weights \w+, the run had \w+: give"):
        recheck(tmp_path, net(1), (IMAGES, labels))
    with pytest.raises(DataError, match=r"counting has weights unknown, the run had \w+"):
        recheck(tmp_path, MODEL.victim(), (IMAGES, labels))
    with pytest.raises(InputError, match="'Sequential', was made in Python and .* give --victim"):
        recheck(tmp_path)


def test_a_randomised_victim_may_miss_but_not_lie(tmp_path) -> None:
    victim = RandomNoise(MODEL.victim(), 0.05)
    brusle.evaluate(victim, DATA, [BruSLe(3, 30)], "untargeted", tmp_path)
    found = recheck(tmp_path, victim, DATA)
    assert found.randomised and not found.failed
    assert 0 < found.held < found.checked  # strong noise: first hits are not stable
    assert all(mismatch.chance for mismatch in found.mismatches)
    assert recheck(tmp_path, victim, DATA, batch_size=2) == found
    row = first_success(tmp_path)
    change(tmp_path, "label", (row.label + 1) % 4, f"problem = {row.problem}")
    assert recheck(tmp_path, victim, DATA).failed
