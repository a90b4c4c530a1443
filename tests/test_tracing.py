"""What a search found on its way: kept by watching, true, and of no effect."""

import json
import math
import zlib

import numpy as np
import pytest
import torch
from models import integer_model, own_labels, random_images

import brusle
from brusle.attacks import ATTACKS, make
from brusle.attacks.combined import Restarts
from brusle.errors import DataError
from brusle.evaluation.storing.traces import pack, unpack
from brusle.problems import Dense
from brusle.search import Round
from brusle.tracing import CHANGES, POINTS, SIDE, Belief, Improvement, Trace, steps, thinned

SHAPE = (3, 8, 8)
NAMES = sorted(set(ATTACKS) - {"bayes-opt"})  # which takes long, and is a search like others


@pytest.fixture(scope="module")
def problems():
    model, images = integer_model(SHAPE, 5), random_images(12, SHAPE)
    return model.victim(), images, own_labels(model, images)


class Diary:
    """Every round, with the candidates as whole images; an independent witness."""

    def __init__(self, images) -> None:
        self.images, self.rounds = images, {}

    def __call__(self, seen: Round) -> None:
        flat = self.images[seen.rows].flatten(2).transpose(1, 2)
        shown = seen.candidates.render(flat, SHAPE)
        for at, row in enumerate(seen.rows.tolist()):
            query = int(seen.queries[at])
            loss, kept = float(seen.loss[at]), bool(seen.kept[at])
            self.rounds.setdefault(row, []).append((query, loss, kept, shown[at].clone()))


def attack_of(name: str):
    return make(name, 4, 60)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_changes_but_that_there_is_a_trace(name, problems) -> None:
    model, images, labels = problems
    plain = attack_of(name)(model, images, labels)
    traced = attack_of(name)(model, images, labels, trace=True)
    assert plain.traces == {}
    assert traced.status == plain.status
    assert torch.equal(traced.images, plain.images)
    assert torch.equal(traced.queries, plain.queries)
    for column in ("clean", "initial", "search", "verify", "lost", "backward"):
        assert torch.equal(getattr(traced.ledger, column), getattr(plain.ledger, column))


@pytest.mark.parametrize("name", [*NAMES, "brusle:variant=reference"])
def test_a_trace_is_what_was_asked_and_ends_at_the_result(name, problems) -> None:
    model, images, labels = problems
    diary = Diary(images)
    result = attack_of(name)(model, images, labels, trace=True, on_round=diary)
    assert sorted(result.traces) == [i for i in range(len(images)) if result.queries[i] > 0]
    for row, trace in result.traces.items():
        assert torch.equal(trace.image(0, images[row]), images[row])
        assert torch.equal(trace.image(-1, images[row]), result.images[row])
        asked = {query: (loss, shown) for query, loss, _, shown in diary.rounds.get(row, [])}
        assert trace.queries.tolist() == sorted(asked)
        for query, loss in zip(trace.queries.tolist(), trace.losses.tolist(), strict=True):
            assert loss == pytest.approx(asked[query][0], rel=1e-4, nan_ok=True)
        for number, found in enumerate(trace.improvements):
            if found.query in asked and found.query > 0:
                loss, shown = asked[found.query]
                assert found.loss == loss or math.isnan(loss)
                assert torch.equal(trace.image(number, images[row]), shown)
        if result.success[row]:
            assert trace.improvements[-1].query == int(result.queries[row])


@pytest.mark.parametrize("name", ["brusle", "pixel-bandit", "sparse-evo"])
def test_who_listens_hears_what_the_trace_will_hold_and_before_the_round(name, problems) -> None:
    model, images, labels = problems
    said: list[tuple[str, int, object]] = []

    def shown(seen: Round) -> None:
        said.extend(("round", row, None) for row in seen.rows.tolist())

    result = attack_of(name)(
        model,
        images,
        labels,
        on_round=shown,
        on_improved=lambda row, found: said.append(("found", row, found)),
    )
    assert result.traces
    for row, trace in result.traces.items():
        mine = [(kind, found) for kind, of, found in said if of == row]
        heard = [found for kind, found in mine if kind == "found"]
        assert [*steps(heard)] == [*steps(trace.improvements[: len(heard)])]
        assert len(trace.improvements) - len(heard) <= (name == "sparse-evo")  # its start is last
        assert mine[0][0] == "found" and mine[0][1].query == 0


@pytest.mark.parametrize("name", ["brusle", "pixel-bandit", "sparse-rs", "one-pixel"])
def test_improvements_are_the_records_of_the_loss(name, problems) -> None:
    model, images, labels = problems
    diary = Diary(images)
    result = attack_of(name)(model, images, labels, trace=True, on_round=diary)
    for row, trace in result.traces.items():
        best, records = math.inf, []
        for query, loss, _, _ in diary.rounds[row]:
            if loss < best:
                best, records = loss, [*records, query]
        assert [found.query for found in trace.improvements] == [0, *records]


def test_the_best_labels_are_those_of_the_answer(problems) -> None:
    model, images, labels = problems
    result = make("brusle", 4, 60)(model, images, labels, trace=True)
    for row, trace in result.traces.items():
        for number, found in enumerate(trace.improvements):
            shares = model(trace.image(number, images[row])[None]).double().softmax(1)[0]
            assert found.labels.tolist() == shares.argsort(descending=True).tolist()
            assert found.scores.tolist() == pytest.approx(shares[found.labels].tolist(), abs=1e-6)


def test_who_hears_labels_only_is_traced_with_labels_only(problems) -> None:
    model, images, labels = problems
    result = make("pointwise", 20, 60)(model, images, labels, trace=True)
    for row, trace in result.traces.items():
        for number in range(1, len(trace.improvements) - 1):
            found = trace.improvements[number]
            top = int(model(trace.image(number, images[row])[None]).argmax())
            assert found.labels.tolist() == [top]


def test_every_search_of_an_attack_is_told_apart(problems) -> None:
    model, images, labels = problems
    attack = Restarts(brusle.attacks.BruSLe(pixels=1, queries=20), times=3)
    result = attack(model, images, labels, trace=True)
    failed = [row for row, status in enumerate(result.status) if status == "failed"]
    assert failed
    for row in failed:
        searches = {found.search for found in result.traces[row].improvements[1:]}
        assert searches == {0, 1, 2}
        assert result.traces[row].queries.tolist() == [*range(1, 61)]


def test_batch_size_and_order_leave_traces_as_they_are(problems) -> None:
    model, images, labels = problems
    attack = make("pixel-bandit", 4, 60)
    alone = attack(model, images, labels, trace=True, batch_size=1).traces
    turned = attack(model, images.flip(0), labels.flip(0), trace=True, batch_size=5).traces
    last = len(images) - 1
    assert {last - row: trace.as_dict() for row, trace in turned.items()} == {
        row: trace.as_dict() for row, trace in alone.items()
    }


def test_beliefs_are_what_the_search_believed(problems) -> None:
    model, images, labels = problems
    seen: dict[tuple[int, int], torch.Tensor] = {}

    def watch(one: Round) -> None:
        for at, row in enumerate(one.rows.tolist()):
            seen[row, int(one.queries[at])] = one.search.theta[at].view(8, 8).clone()

    attack = brusle.attacks.BruSLe(pixels=1, queries=60)
    result = attack(model, images, labels, trace=True, on_round=watch)
    for row, trace in result.traces.items():
        last = int(result.queries[row])
        due = {mark for mark in (5, 20, 50) if mark <= last} | {last}
        assert [belief.query for belief in trace.beliefs] == sorted(due)
        assert trace.meaning == "theta"
        for belief in trace.beliefs:
            theta = seen[row, belief.query].numpy()
            shade = np.ptp(theta) / 63
            assert np.abs(belief.values - theta).max() <= shade / 2 + 1e-6


@pytest.mark.parametrize("name", ["brusle", "pixel-bandit"])
def test_maps_of_large_images_have_the_mean_of_each_cell(name) -> None:
    shape = (3, 2 * SIDE, 3 * SIDE)
    model, images = integer_model(shape, 4), random_images(2, shape)
    whole = {}

    def watch(one: Round) -> None:
        for at, row in enumerate(one.rows.tolist()):
            whole[row, int(one.queries[at])] = one.search.belief()[at].view(shape[1:]).clone()

    attack = make(name, 2, 20)
    labels = own_labels(model, images)
    result = attack(model.victim(), images, labels, trace=True, on_round=watch)
    assert result.traces
    for row, trace in result.traces.items():
        for belief in trace.beliefs:
            cells = whole[row, belief.query].view(SIDE, 2, SIDE, 3).mean((1, 3)).numpy()
            assert belief.values.shape == (SIDE, SIDE) and np.ptp(cells) > 0
            assert np.abs(belief.values - cells).max() <= np.ptp(cells) / 63 / 2 + 1e-6


def test_stored_traces_are_the_same_traces(problems) -> None:
    model, images, labels = problems
    for name in ("brusle", "pixel-bandit", "pointwise"):
        for trace in make(name, 6, 60)(model, images, labels, trace=True).traces.values():
            back = unpack(pack(trace), SHAPE)
            assert back.as_dict() == trace.as_dict()
            for one, other in zip(back.improvements, trace.improvements, strict=True):
                assert np.array_equal(one.positions, other.positions)
                assert np.array_equal(one.levels, other.levels)
            for one, other in zip(back.beliefs, trace.beliefs, strict=True):
                assert np.array_equal(one.values, other.values)


def improvement(query: int, positions: list[int], loss: float = 1.0) -> Improvement:
    levels = np.full((len(positions), 3), query % 256, np.uint8)
    nothing = np.array([], dtype=np.int64), np.array([], dtype=np.float64)
    return Improvement(query, 0, loss, np.array(positions, np.int64), levels, *nothing)


def test_long_traces_are_thinned_and_keep_their_ends() -> None:
    found = [improvement(query, [*range(2000)]) for query in range(100)]
    kept = thinned(found)
    assert kept[0] is found[0]
    assert kept[-1] is found[-1]
    assert 2 < len(kept) <= 1 + CHANGES // 2000
    assert thinned(found[:5]) == found[:5]


def test_long_searches_keep_their_first_and_last_loss(problems) -> None:
    model, images, labels = problems
    attack = brusle.attacks.BruSLe(pixels=1, queries=POINTS + 200)
    result = attack(model, images, labels, trace=True)
    row = result.status.index("failed")
    trace = result.traces[row]
    assert len(trace.queries) == POINTS
    assert (trace.queries[0], trace.queries[-1]) == (1, POINTS + 200)


def damaged(change) -> bytes:
    trace = Trace(
        SHAPE,
        "theta",
        (improvement(0, []), improvement(3, [1, 5])),
        np.array([1, 2, 3]),
        np.array([0.5, math.nan, 0.25]),
        (Belief.of(3, np.eye(8, dtype=np.float32)),),
    )
    facts = trace.as_dict()
    change(facts)
    return zlib.compress(json.dumps(facts).encode())


def _say(facts, **news) -> None:
    facts.update(news)


DAMAGE = {
    "another shape": lambda facts: _say(facts, shape=[3, 8, 9]),
    "a pixel outside": lambda facts: facts["improvements"][1]["set"].append([64, 0, 0, 0]),
    "a negative pixel": lambda facts: facts["improvements"][1]["set"].append([-1, 0, 0, 0]),
    "a colour outside": lambda facts: facts["improvements"][1]["set"].append([2, 0, 0, 256]),
    "too few channels": lambda facts: facts["improvements"][1]["set"].append([2, 0]),
    "an empty pixel": lambda facts: facts["improvements"][1]["set"].append([]),
    "nothing to unset": lambda facts: facts["improvements"][1]["unset"].append(7),
    "a text": lambda facts: facts["improvements"][1].update(query="3"),
    "an endless search": lambda facts: facts["improvements"][1].update(query=10**30),
    "an endless loss": lambda facts: facts["improvements"][1].update(loss=-1e308),
    "endless losses": lambda facts: _say(facts, losses=[1e308, -1e308, 0]),
    "an endless score": lambda facts: facts["improvements"][1].update(top=[[1, 1e308]]),
    "an endless belief": lambda facts: facts["beliefs"][0].update(high=1e38),
    "a huge label": lambda facts: facts["improvements"][1].update(top=[[2**70, 0.5]]),
    "a key": lambda facts: _say(facts, more=1),
    "no losses": lambda facts: _say(facts, losses=[]),
    "other cells": lambda facts: facts["beliefs"][0].update(cells="AAAA"),
    "no base64": lambda facts: facts["beliefs"][0].update(cells="\N{SNOWMAN}"),
    "shades outside": lambda facts: facts["beliefs"][0].update(cells="/" * 84 + "8=" + "=" * 2),
    "a huge map": lambda facts: facts["beliefs"][0].update(size=[10**9, 10**9]),
    "no improvement": lambda facts: _say(facts, improvements=[]),
    "endless improvements": lambda facts: _say(
        facts,
        improvements=[
            facts["improvements"][0],
            dict(facts["improvements"][1], set=[[at, 0, 0, 0] for at in range(64)]),
            *[dict(facts["improvements"][1], set=[])] * 8000,
        ],
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_trace_is_refused_in_a_line(kind) -> None:
    unpack(damaged(lambda facts: None), SHAPE)
    with pytest.raises(DataError, match="a stored trace is damaged") as error:
        unpack(damaged(DAMAGE[kind]), SHAPE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("packed", [b"", b"no zlib", zlib.compress(b"[" * 9999), b"x" * 99])
def test_what_is_no_trace_is_refused(packed) -> None:
    with pytest.raises(DataError, match="a stored trace is damaged"):
        unpack(packed, SHAPE)


def test_a_trace_that_unpacks_endlessly_is_refused() -> None:
    with pytest.raises(DataError, match="too long"):
        unpack(zlib.compress(b" " * (2**26 + 1)), SHAPE)


def test_dense_candidates_of_images_between_levels_are_traced(problems) -> None:
    model, images, labels = problems
    between = (images * 0.9 + 0.003).clamp(0, 1)  # not on 8-bit levels
    labels = model(between).argmax(1)
    result = make("pointwise", 20, 60)(model, between, labels, trace=True)
    for row, trace in result.traces.items():
        shown = trace.image(-1, between[row])
        changed = (shown != between[row]).any(0)
        assert torch.equal(changed, (result.images[row] != between[row]).any(0))
        assert (shown - result.images[row]).abs().max() <= 0.5 / 255 + 1e-6


def test_a_round_says_what_is_booked(problems) -> None:
    model, images, labels = problems
    spent: dict[int, list[int]] = {}

    def watch(seen: Round) -> None:
        assert isinstance(seen.candidates, Dense) == seen.attack.behaviour.dense
        for row, queries in zip(seen.rows.tolist(), seen.queries.tolist(), strict=True):
            spent.setdefault(row, []).append(queries)

    result = make("brusle", 4, 60)(model, images, labels, on_round=watch)
    for row, numbers in spent.items():
        assert numbers == [*range(1, int(result.queries[row]) + 1)]
