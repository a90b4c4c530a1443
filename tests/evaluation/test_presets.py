"""Presets: every table of the paper, every number once, every plan valid; figures by claims."""

from collections import Counter

import pytest
from pydantic import ValidationError

import brusle
from brusle.attacks import L0HSJA, BruSLe, SparseRS
from brusle.errors import InputError
from brusle.evaluation.paper.presets import (
    OVER_SEEDS,
    Part,
    Preset,
    line_over_seeds,
    preset,
    presets,
)
from brusle.evaluation.paper.results import paper_results, pixels_of, tables

WITHOUT_TABLE = [name for name, about in presets().items() if about.place]
OF_PHOTOGRAPHS = ["google-cloud-vision"]
OF_RATES = [name for name in presets() if name not in WITHOUT_TABLE + OF_PHOTOGRAPHS]
VICTIM = brusle.victims.wrap(lambda x: x, output="logits")


def lines(part: Part):
    """The lines of the paper's table that the part is about."""
    for line in part.lines:
        if len(part.seeds) == 1:
            yield line
        else:
            yield from (line_over_seeds(line, len(part.seeds), which) for which in OVER_SEEDS)


def test_every_table_has_a_preset() -> None:
    assert {n: p.dataset for n, p in presets().items() if n not in WITHOUT_TABLE} == {
        table.name: table.dataset for table in tables()
    }


@pytest.mark.parametrize("name", OF_RATES)
def test_every_number_of_the_paper_has_one_place(name) -> None:
    mine = preset(name)
    places = [
        mine.paper(part, line, pixels, mark)
        for part in mine.parts
        for line in lines(part)
        for pixels in part.pixels
        for mark in part.marks
    ]
    numbers = paper_results(name)
    # as many places as numbers, all filled, with the same values
    assert Counter(places) == Counter(number.value for number in numbers)
    assert {part.metric for part in mine.parts} == {number.metric for number in numbers}
    assert {part.goal for part in mine.parts} == {number.setting for number in numbers}


def test_numbers_are_those_of_the_place() -> None:
    """Two tables read by hand, one of them with pixels that are no percentage."""
    mine = preset("cifar10-targeted")
    part, (sparse_rs, ours) = mine.parts[0], mine.parts[0].lines
    assert mine.paper(part, ours, pixels_of("CIFAR-10", 2.0), 500) == 90.24
    assert mine.paper(part, sparse_rs, 20, 500) == 89.21
    assert mine.paper(part, ours, 20, 450) is None and mine.paper(part, ours, 21, 500) is None
    few = preset("cifar10-one-pixel")
    assert [few.paper(few.parts[0], few.parts[0].lines[1], n, 1000) for n in (1, 3, 5)] == [
        27.9,
        69.9,
        86.4,
    ]


@pytest.mark.parametrize("name", presets())
def test_plans_are_valid(name) -> None:
    for part in preset(name).parts:
        limits = {}
        for plan in part.plans(part.victim or "some:victim", "sample"):
            attacks = plan.attacks_on(VICTIM)[part.goal]
            assert len(attacks) == len(plan.attacks) * len(part.pixels)
            assert plan.seeds == part.seeds and plan.limit == part.images
            limits |= dict.fromkeys(plan.attacks, plan.queries)
        assert limits == {e.attack: e.queries or max(part.marks) for e in part.lines}


def test_what_the_text_claims_of_figures() -> None:
    """Read off the paper by hand."""
    said = {
        name: [(c.text, c.pixels) for part in preset(name).parts for c in part.claims]
        for name in WITHOUT_TABLE
    }
    small, large = ("BruSLe, lambda0=0.03", "BruSLe, lambda0=0.05"), ("0.1", "0.2")
    assert said == {
        "cifar10-sparseevo-loss": [("SparseEvo, first adaptation never succeeds", ())],
        "cifar10-adapted-attacks": [
            ("BruSLe above SparseEvo", ()),
            ("l0-HSJA never succeeds", ()),
            ("BruSLe above PGD0", (10,)),
            ("BruSLe level with PGD0", (40,)),
        ],
        "cifar10-bayes-opt": [("BruSLe above CASMOPOLITAN", ())],
        "imagenet-lambda0-one-percent": [
            (f"{one} above BruSLe, lambda0={other}", ()) for other in large for one in small
        ],
        "imagenet-adapted-attacks": [
            ("BruSLe above SparseEvo", ()),
            ("BruSLe above Pointwise", ()),
            ("BruSLe above PGD0", ()),
        ],
    }


@pytest.mark.parametrize(
    ("name", "pairs", "queries"),
    [
        ("cifar10-sparseevo-loss", 9000, {"SparseEvo": 500}),
        (
            "cifar10-adapted-attacks",
            9000,
            {"SparseEvo": 2000, "l0-HSJA": 20_000, "PGD0": 500, "BruSLe": 500},
        ),
        ("cifar10-bayes-opt", 900, {"CASMOPOLITAN": 250, "BruSLe": 250}),
        ("imagenet-lambda0-one-percent", 500, {"BruSLe": 10_000}),
        (
            "imagenet-adapted-attacks",
            1000,
            {"SparseEvo": 20_000, "Pointwise": 20_000, "PGD0": 10_000, "BruSLe": 10_000},
        ),
    ],
)
def test_protocol_of_figures(name, pairs, queries) -> None:
    (part,) = preset(name).parts
    assert part.images
    assert part.images * (9 if part.targets == "all" else part.targets) == pairs
    assert {e.paper: part.limit(e, max(part.marks)) for e in part.lines} == queries


def test_figures_have_the_numbers_that_tables_have() -> None:
    """BruSLe was run on the same pairs for a table; the other lines are only drawn."""
    for name, pixels, queries, value in (
        ("cifar10-adapted-attacks", 10, 500, 68.21),
        ("imagenet-adapted-attacks", 500, 10_000, 97.7),
    ):
        mine = preset(name)
        (part,) = mine.parts
        numbers = {e.paper: mine.paper(part, e, pixels, queries) for e in part.lines}
        assert {paper: number for paper, number in numbers.items() if number} == {"BruSLe": value}
    alone = preset("cifar10-bayes-opt")
    (part,) = alone.parts
    assert [alone.paper(part, line, 10, 250) for line in part.lines] == [None, None]


def test_lines_with_queries_of_their_own() -> None:
    part = preset("cifar10-adapted-attacks").parts[0]
    assert [(line.paper, mark) for line, mark in part.readings()] == [
        ("SparseEvo", 2000),
        ("l0-HSJA", 20_000),
        ("PGD0", 500),
        ("BruSLe", 500),
    ]
    small = part.scaled(queries=1000)
    assert [mark for _, mark in small.readings()] == [1000, 1000, 500, 500]
    assert [mark for _, mark in part.scaled(queries=90).readings()] == [90] * 4
    assert [plan.queries for plan in small.plans("a:b", "sample")] == [1000, 500]


def test_protocol_of_the_paper() -> None:
    part = preset("cifar10-targeted").parts[0]
    (plan,) = part.plans("zoo:cifar10-resnet20", "cifar10:test")
    assert (plan.limit, plan.targets, plan.queries, plan.goals) == (1000, "all", 500, ("targeted",))
    assert plan.attacks_on(VICTIM)["targeted"][:3] == [
        SparseRS(10, 500),
        BruSLe(10, 500),
        SparseRS(20, 500),
    ]
    # pairs of image and target, as the paper counts them
    pairs = {"imagenet-targeted": 1000, "imagenet-lambda0": 500, "imagenet-dissimilarity-map": 500}
    for name, count in pairs.items():
        for one in preset(name).parts:
            assert isinstance(one.targets, int) and one.images
            assert one.images * one.targets == count
    assert preset("cifar10-seeds").parts[0].seeds == tuple(range(10))


def test_final_images_need_a_run_for_each_mark() -> None:
    plans = preset("cifar10-l0-hsja").parts[0].plans("zoo:cifar10-resnet20", "sample")
    marks = [4000, 8000, 12_000, 16_000, 20_000]
    assert [plan.attacks_on(VICTIM)["targeted"] for plan in plans] == [
        [L0HSJA(1, mark, projection="authors")] for mark in marks
    ]


def test_scaled_down() -> None:
    part = preset("cifar10-targeted").parts[0]
    small = part.scaled(limit=7, queries=250, pixels=[3, 3], seed=5)
    assert (small.images, small.marks, small.pixels) == (7, (100, 200), (3,))
    assert small.seeds == (5,)
    assert part.scaled(limit=5000, queries=99).images == 1000  # no more than the paper has
    assert part.scaled(queries=99).marks == (99,)
    assert part.scaled() == part
    assert preset("stl10-targeted").parts[0].scaled(limit=7).images == 7


def test_bad_names_and_values() -> None:
    with pytest.raises(InputError, match="unknown preset 'cifar10-seed': did you mean 'cifar10-s"):
        preset("cifar10-seed")
    with pytest.raises(
        InputError, match="cifar10-defended has no part 'lina': did you mean 'linf'"
    ):
        preset("cifar10-defended").part("lina")
    parts = preset("cifar10-seeds").parts
    new = {"name": "cifar10-new", "summary": "", "dataset": "CIFAR-10", "parts": parts}
    with pytest.raises(ValidationError, match="must be a table of the paper, or say its place"):
        Preset(**new)
    with pytest.raises(ValidationError, match="cifar10-old is no table of the paper"):
        Preset(**new, place="a figure", numbers="cifar10-old")
    with pytest.raises(ValidationError, match="so every part must have claims"):
        Preset(**new, place="a figure")
    with pytest.raises(ValidationError, match="parts"):
        Preset(name="cifar10-seeds", summary="", dataset="CIFAR-10", parts=())
    values = preset("cifar10-seeds").parts[0].model_dump()
    with pytest.raises(ValidationError, match="Extra inputs"):
        Part(**values | {"budget": 3})
    with pytest.raises(ValidationError, match="queries to success are those of a service"):
        Part(**values | {"metric": "queries to success"})
    with pytest.raises(ValidationError, match="one seed, and read at the limit"):
        Part(**values | {"metric": "queries to success", "service": "google-vision"})
    claim = {"line": "BruSLe", "order": "zero"}
    with pytest.raises(ValidationError, match="success rates of one seed"):
        Part(**values | {"claims": [claim]})
    with pytest.raises(ValidationError, match="claims about ..Brusle.."):
        Part(**values | {"claims": [claim | {"line": "Brusle"}], "seeds": (0,)})
    other = Part(**values | {"model": "ResNet-81"})
    with pytest.raises(ValidationError, match="is about"):
        Preset(name="cifar10-seeds", summary="", dataset="CIFAR-10", parts=(other,))
