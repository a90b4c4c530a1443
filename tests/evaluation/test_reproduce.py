"""Reproductions: presets really run, and what they say is what is stored."""

import json
import math
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from brusle.errors import InputError
from brusle.evaluation.paper.cells import Cell, interval
from brusle.evaluation.paper.jobs import default_folder, jobs
from brusle.evaluation.paper.presets import preset, presets
from brusle.evaluation.paper.reproduce import Reproduction, reproduce
from brusle.evaluation.statistics.rates import Rate
from brusle.evaluation.storing.store import Store
from brusle.report.reproduction import all_blocks, blocks, claims, markdown, notes, picture

ON_CIFAR10 = [name for name, about in presets().items() if about.dataset == "CIFAR-10"]
SMALL = {"limit": 2, "queries": 12, "pixels": [30], "data": "sample", "batch_size": 64}
LARGER = SMALL | {"queries": 200, "pixels": [30], "targets": "all"}


def stored(folder):
    """All settings of a run folder with their rows."""
    with Store.read(folder) as store:
        return [(setting, store.rows(setting.number)) for setting in store.settings()]


@pytest.fixture(scope="module")
def targeted(tmp_path_factory) -> Reproduction:
    """Two attacks, one budget, two marks."""
    return reproduce("cifar10-targeted", out=tmp_path_factory.mktemp("targeted"), **LARGER)


@pytest.mark.parametrize("name", ON_CIFAR10)
def test_every_cifar10_preset_runs(name, tmp_path) -> None:
    done = reproduce(name, out=tmp_path, **SMALL)
    assert [outcome.job.part.name for outcome in done.outcomes] == [
        part.name for part in preset(name).parts
    ]
    assert not done.left_out and not done.errors
    for outcome in done.outcomes:
        part = outcome.job.part
        lines = 4 if len(part.seeds) > 1 else len(part.lines)
        assert len(outcome.cells) == lines
        assert len(outcome.claims) == sum(30 in (c.pixels or [30]) for c in part.claims)
        assert outcome.pairs == (6 if part.goal == "targeted" else 2)
        for about, rows in stored(tmp_path / part.name):
            assert len(rows) == outcome.pairs and about.queries == 12
        for cell in outcome.cells:
            assert 0 <= cell.ours <= 100
            assert cell.low is None or cell.low <= cell.high
    assert json.loads((tmp_path / "reproduction.json").read_text())["preset"] == name
    assert "the paper's ResNet-18 is not here; stand-in zoo:cifar10-resnet20 (ResNet-20" in (
        markdown(done)
    )


def test_claims_are_checked_on_the_stored_rows(tmp_path) -> None:
    """PGD0 and BruSLe share a limit; the claim is about one budget of two."""
    small = SMALL | {"limit": 10, "targets": 1, "queries": 25, "pixels": [10, 40]}
    done = reproduce("cifar10-adapted-attacks", out=tmp_path, **small)
    (outcome,) = done.outcomes
    won = {
        (about.attack.split()[0], about.pixels): {r.problem for r in rows if r.status == "success"}
        for about, rows in stored(tmp_path / "resnet18")
    }
    found = {(f.claim, f.pixels): f for f in outcome.claims}
    assert list(found) == [
        ("BruSLe above SparseEvo", 10),
        ("BruSLe above SparseEvo", 40),
        ("l0-HSJA never succeeds", 10),
        ("l0-HSJA never succeeds", 40),
        ("BruSLe above PGD0", 10),
        ("BruSLe level with PGD0", 40),
    ]
    for (claim, pixels), finding in found.items():
        first, *_, other = claim.split()
        ahead = len(won[first if first != "l0-HSJA" else "L0HSJA", pixels])
        if other != "succeeds":
            ahead -= len(won[other, pixels])
        assert finding.value == pytest.approx(100 * ahead / 10)
    assert won["BruSLe", 40] and not won["SparseEvo", 40]
    table = all_blocks(outcome)[-1]
    assert table == claims(outcome)
    assert table.headers == ("the paper says", "pixels", "queries", "ours", "verdict")
    assert [row[4] for row in table.rows] == [f.verdict for f in outcome.claims]
    assert "claims of the paper's text: " in notes(outcome)[-1]
    assert picture(done, tmp_path / "figure.png")


def test_lines_with_queries_of_their_own_say_so(targeted) -> None:
    cell = Cell("BruSLe", "", 10, 500, "asr", 50.0, 40.0, 60.0, None)
    slow = replace(cell, attack="SparseEvo", queries=2000, ours=20.0, low=10.0, high=30.0)
    job = targeted.outcomes[0].job
    part = preset("cifar10-adapted-attacks").parts[0]
    outcome = replace(targeted.outcomes[0], cells=(slow, cell), job=replace(job, part=part))
    (block,) = blocks(outcome)
    assert block.headers == ("pixels", "queries", "SparseEvo, 2000\nqueries", "BruSLe")
    assert block.rows == (("10", "500", "20.0 [10, 30]     -", "50.0 [40, 60]     -"),)


def test_numbers_are_those_of_the_stored_rows(targeted) -> None:
    (outcome,) = targeted.outcomes
    assert outcome.images == 2 and outcome.pairs == 18
    rows = {about.attack: rows for about, rows in stored(targeted.folder / "resnet18")}
    labels, ours = {"Sparse-RS": "SparseRS", "BruSLe": "BruSLe"}, []
    for cell in outcome.cells:
        won = [row for row in rows[labels[cell.attack]] if row.status == "success"]
        early = sum(row.queries <= cell.queries for row in won)
        assert cell.ours == pytest.approx(100 * early / 18)
        ours.append(early)
    assert 0 < ours[0] < ours[2] and 0 < ours[1] < ours[3]  # more queries, more successes
    assert [(cell.attack, cell.queries, cell.paper) for cell in outcome.cells] == [
        ("Sparse-RS", 100, 71.29),
        ("BruSLe", 100, 75.54),
        ("Sparse-RS", 200, 85.67),
        ("BruSLe", 200, 88.22),
    ]


def test_accuracy_and_sparsity(tmp_path) -> None:
    accuracy = reproduce("cifar10-defended", part="l2", out=tmp_path / "a", **SMALL | {"limit": 9})
    (outcome,) = accuracy.outcomes
    rows = {about.attack: rows for about, rows in stored(tmp_path / "a" / "l2")}
    for cell, label in zip(outcome.cells, ("SparseRS", "BruSLe"), strict=True):
        assert cell.ours == pytest.approx(100 * Rate(left(rows[label]), 9).value)
    sparsity = reproduce("cifar10-l0-hsja", out=tmp_path / "s", **SMALL | {"pixels": []})
    ((_, rows_left),) = stored(tmp_path / "s" / "resnet18")
    mean = sum(row.pixels for row in rows_left) / len(rows_left) / 1024
    (cell,) = sparsity.outcomes[0].cells
    assert cell.ours == pytest.approx(100 * mean) and 0 < mean < 1
    assert cell.low < cell.ours <= cell.high


def left(rows) -> int:
    return sum(row.status == "failed" for row in rows)


def test_seeds(tmp_path) -> None:
    done = reproduce("cifar10-seeds", out=tmp_path, **SMALL | {"limit": 1, "seed": 3})
    rates = {
        about.seed: 100 * sum(r.status == "success" for r in rows) / 3
        for about, rows in stored(tmp_path / "resnet18")
    }
    assert sorted(rates) == list(range(3, 13))
    ours = {cell.variant: cell.ours for cell in done.outcomes[0].cells}
    mean = sum(rates.values()) / 10
    std = math.sqrt(sum((rate - mean) ** 2 for rate in rates.values()) / 9)
    assert ours == pytest.approx(
        {
            "10 seeds: min": min(rates.values()),
            "10 seeds: mean": mean,
            "10 seeds: max": max(rates.values()),
            "10 seeds: std": std,
        }
    )


def test_again_runs_nothing_and_says_the_same(targeted) -> None:
    before = stored(targeted.folder / "resnet18")
    again = reproduce("cifar10-targeted", out=targeted.folder, **LARGER)
    (outcome,) = again.outcomes
    assert outcome.resumed == 2 * 18
    assert outcome.cells == targeted.outcomes[0].cells
    assert stored(targeted.folder / "resnet18") == before  # also the times


def test_fewer_images_in_the_same_folder_are_counted_alone(targeted, tmp_path) -> None:
    """Rows of other images that the folder holds are not mixed in."""
    both = reproduce("cifar10-targeted", out=targeted.folder, **LARGER | {"limit": 1})
    alone = reproduce("cifar10-targeted", out=tmp_path, **LARGER | {"limit": 1})
    assert both.outcomes[0].cells == alone.outcomes[0].cells
    assert both.outcomes[0].pairs == 9 and both.outcomes[0].resumed == 2 * 9


def test_interval() -> None:
    """Pairs of one image that always agree are worth one pair; independent ones are all counted."""
    images = [str(at) for at in range(40)]
    one = {image: float(at < 10) for at, image in enumerate(images)}
    assert interval(one, dict.fromkeys(images, 1)) == Rate(10, 40).interval
    nine = {image: 9 * hit for image, hit in one.items()}
    assert interval(nine, dict.fromkeys(images, 9)) == pytest.approx(Rate(10, 40).interval)
    even = dict.fromkeys(images, 3.0)  # no image is harder than another
    assert interval(even, dict.fromkeys(images, 9)) == Rate(120, 360).interval
    assert interval({}, {}) == (0.0, 1.0)
    assert interval({"a": 9.0}, {"a": 9}) == Rate(9, 9).interval


def test_the_papers_number_outside_the_interval(targeted) -> None:
    cell = Cell("BruSLe", "", 10, 500, "asr", 50.0, 40.0, 60.0, 60.1)
    assert cell.outside and not replace(cell, paper=60.0).outside
    assert not replace(cell, paper=None).outside and not replace(cell, low=None).outside
    outcome = replace(targeted.outcomes[0], cells=(cell, replace(cell, attack="Z", paper=41.0)))
    (block,) = blocks(outcome)
    assert block.headers == ("pixels", "queries", "BruSLe", "Z")
    assert block.rows == (("10", "500", "50.0 [40, 60] *60.1", "50.0 [40, 60]  41.0"),)


def test_agreement(targeted) -> None:
    """The paper's strongest line: the highest rate, or the lowest accuracy."""
    strong = Cell("BruSLe", "", 10, 500, "asr", 50.0, 40.0, 60.0, 70.0)
    weak = replace(strong, attack="Sparse-RS", ours=45.0, paper=60.0)
    wrong = [replace(strong, pixels=20, ours=44.0), replace(weak, pixels=20)]
    outcome = replace(targeted.outcomes[0], cells=(strong, weak, *wrong))
    assert outcome.agreement == Rate(1, 2)
    part = outcome.job.part.model_copy(update={"metric": "accuracy"})
    assert replace(outcome, job=replace(outcome.job, part=part)).agreement == Rate(1, 2)
    assert replace(outcome, cells=(strong,)).agreement == Rate(0, 0)
    assert "strongest is the strongest here in 1 of 2 places" in notes(outcome)[-1]


def test_six_lines_are_two_tables(targeted) -> None:
    cell = targeted.outcomes[0].cells[0]
    cells = tuple(replace(cell, variant=str(at)) for at in range(4))
    assert [len(block.headers) for block in blocks(replace(targeted.outcomes[0], cells=cells))] == [
        4,
        4,
    ]
    for block in blocks(targeted.outcomes[0]):
        assert all(len(text) <= 22 for row in block.rows for text in row)


def test_picture(targeted, tmp_path) -> None:
    assert picture(targeted, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    silent = [replace(cell, paper=None) for cell in targeted.outcomes[0].cells]
    none = replace(targeted.outcomes[0], cells=tuple(silent))
    assert not picture(replace(targeted, outcomes=(none,)), tmp_path / "b.png")


def test_which_parts_run() -> None:
    todo, left_out = jobs(preset("imagenet-targeted"), data="imagenet:photos")
    assert [job.part.name for job in todo] == ["resnet50"]  # the others would repeat it
    assert [reason.split(":")[0] for reason in left_out] == ["resnet50-sin", "vit"]
    todo, left_out = jobs(preset("imagenet-defended"), data="imagenet:photos")
    assert [(job.part.name, job.victim) for job in todo] == [
        ("resnet50", "efficientnet-lite:0"),
        ("rnd", "efficientnet-lite:0"),
    ]
    assert todo[1].plans[0].defences == ("rnd:0.02",)
    assert "no stand-in" in left_out[0] and "--part linf --victim 'robustbench:" in left_out[0]
    todo, left_out = jobs(preset("cifar10-defended"), victim="zoo:cifar10-vit", data="sample")
    assert [(job.part.name, job.victim) for job in todo] == [("resnet18", "zoo:cifar10-vit")]
    assert len(left_out) == 2
    todo, left_out = jobs(preset("cifar10-defended"), victim="a:b", part="l2", data="sample")
    assert [(job.part.name, job.victim) for job in todo] == [("l2", "a:b")] and not left_out


def test_default_data(tmp_path, monkeypatch) -> None:
    """The whole test set where it has been fetched, else the bundled sample."""
    monkeypatch.setenv("BRUSLE_CACHE", str(tmp_path))
    assert jobs(preset("cifar10-seeds"))[0][0].data == "sample"
    (tmp_path / "cifar10").mkdir()
    assert jobs(preset("cifar10-seeds"))[0][0].data == "cifar10:test"
    assert jobs(preset("stl10-targeted"), victim="a:b")[0][0].data == "stl10:test"


def opened(todo):
    with ExitStack() as stack:
        return [stack.enter_context(job.opened("cpu")) for job in todo]


def test_the_folder_follows_from_the_plan_and_the_weights() -> None:
    mine = preset("cifar10-defended")
    todo, _ = jobs(mine, data="sample")
    victims = opened(todo)
    folder = default_folder(mine, todo, victims)
    again, _ = jobs(mine, data="sample")
    assert folder == default_folder(mine, again, opened(again))
    assert folder.parent.name == "runs" and folder.name.startswith("cifar10-defended-")
    assert folder != default_folder(mine, jobs(mine, data="sample", limit=5)[0], victims)
    assert folder != default_folder(mine, todo[:1], victims[:1])
    with torch.no_grad():  # trained a little further
        next(victims[0].module.parameters()).add_(1e-3)
    assert folder != default_folder(mine, todo, victims)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("google-cloud-vision", {}, "needs 10 photographs, which brusle has not: give --data"),
        ("stl10-targeted", {}, "no stand-in for the paper's ResNet-9 .*: give --victim"),
        ("imagenet-lambda0", {}, "needs ImageNet photographs.*--data imagenet:DIR"),
        ("imagenet-defended", {"part": "l2"}, "no stand-in for the paper's ResNet-50 l2-AT"),
        ("cifar10-defended", {"part": "linv"}, "no part 'linv': did you mean 'linf'"),
        ("cifar10-targetted", {}, "did you mean 'cifar10-targeted'"),
    ],
)
def test_refusals(name, options, message, tmp_path) -> None:
    with pytest.raises(InputError, match=message):
        reproduce(name, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
