"""Attacks that are watched: what is seen is what was found, and who waits asks nothing."""

import base64
import io
import json
import shlex

import numpy as np
import pytest
import torch
from entry import run
from models import integer_model
from PIL import Image
from studios import CLASSES, SHAPE, Asker, Gate, toy, toy_data

import brusle
from brusle.attacks import make
from brusle.errors import VictimError
from brusle.studio import Studio, live
from brusle.tracing import steps


@pytest.fixture(scope="module")
def asker():
    with Studio([toy()], [toy_data()]) as studio, Asker(studio) as asker:
        yield asker


@pytest.fixture
def gated():
    """A studio whose victim answers when it is let."""
    gate = Gate(integer_model(SHAPE, len(CLASSES)).function)
    with Studio([toy(gate)], [toy_data()]) as studio, Asker(studio) as asker:
        try:
            yield asker, gate
        finally:
            gate.open()


def image_of(content: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


@pytest.mark.parametrize(
    ("attack", "asked", "status"),
    [
        ("brusle", {"pixels": 30, "queries": 100, "target": 8, "seed": 3}, "success"),
        ("pixel-bandit", {"pixels": 3, "queries": 30}, "failed"),
        ("sparse-rs", {"pixels": 2, "queries": 30, "options": "restarts=2"}, "failed"),
        ("pointwise", {"pixels": 30, "queries": 40}, "success"),
        ("brusle", {"pixels": 40, "queries": 40, "minimal": True, "seed": -1}, "success"),
    ],
)
def test_it_finds_what_the_command_finds(bundled, somewhere, attack, asked, status) -> None:
    over = bundled.run(bundled.choose(row=21), attack, **asked)
    (somewhere / over["file"]).write_bytes(base64.b64decode(over["original"]))
    command = run(*shlex.split(over["command"])[1:], "--json", "--out", "found.png")
    told = json.loads(command.stdout)
    assert {name: told[name] for name in over["facts"]} == over["facts"]
    assert over["facts"]["queries"] == over["query"] <= asked["queries"]
    assert told["status"] == status and (over["adversarial"] is not None) == (status == "success")
    if over["adversarial"]:
        found = np.asarray(Image.open(somewhere / "found.png"))
        assert np.array_equal(image_of(over["adversarial"]), found)
        assert over["facts"]["pixels"] == (found != image_of(over["original"])).any(2).sum()
        assert over["facts"]["ledger"]["verify"] > 0 and "verified" in over["told"]


@pytest.mark.parametrize("name", ["brusle", "pixel-bandit", "sparse-evo", "one-pixel"])
def test_what_is_said_on_the_way_is_what_a_trace_keeps(asker, name) -> None:
    data = toy_data()
    result = make(name, 4, 80)(toy(), data.images[:1], data.labels[:1], seed=5, trace=True)
    trace = result.traces[0]
    with asker.attack(asker.choose(row=0), name, pixels=4, queries=80, seed=5) as heard:
        over = heard.until("over")
    said = {kind: [] for kind in ("improved", "point", "belief")}
    for message in heard.messages:
        said.get(message["kind"], []).append(message)
    told = [message["step"] for message in said["improved"]]
    assert told == [*steps(trace.improvements)][: len(told)]
    assert len(trace.improvements) - len(told) <= (name == "sparse-evo")
    assert [message["query"] for message in said["point"]] == trace.queries.tolist()
    losses = [np.nan if m["loss"] is None else m["loss"] for m in said["point"]]
    assert np.allclose(losses, trace.losses, rtol=1e-4, equal_nan=True)
    assert over["trace"] == json.loads(json.dumps(trace.as_dict()))
    maps = {message["belief"]["query"]: message["belief"] for message in said["belief"]}
    known = {belief.query: belief.as_dict() for belief in trace.beliefs}
    assert bool(maps) == bool(known) and len(maps) <= 50
    assert all(maps[query] == known[query] for query in maps.keys() & known.keys())
    order = [m["query"] for m in heard.messages if m["kind"] == "point"]
    assert order == sorted(order) and over is heard.messages[-1]


def test_a_long_search_is_told_in_few_words(asker, monkeypatch) -> None:
    monkeypatch.setattr(live, "POINTS", 10)
    monkeypatch.setattr(live, "BELIEFS", 4)
    target = next(c for c in range(len(CLASSES)) if c != int(toy_data().labels[1]))
    with asker.attack(asker.choose(row=1), pixels=1, queries=40, target=target) as heard:
        over = heard.until("over")
    points = [message["query"] for message in heard.messages if message["kind"] == "point"]
    maps = [message["belief"]["query"] for message in heard.messages if message["kind"] == "belief"]
    assert points == list(range(1, over["query"] + 1, 4)) and len(points) <= 10
    assert maps == list(range(1, over["query"] + 1, 10)) and len(maps) <= 4
    assert over["trace"]["queries"] == list(range(1, over["query"] + 1))  # which has them all


def test_the_label_is_what_the_victim_sees_where_nobody_says(bundled) -> None:
    sample = brusle.data.load("sample")
    file = io.BytesIO()
    Image.fromarray((sample.images[40] * 255).byte().permute(1, 2, 0).numpy()).save(file, "PNG")
    content = base64.b64encode(file.getvalue()).decode()
    asked = {"victim": 0, "name": "mine.png", "content": content}
    found = bundled.post("/api/images/file", json=asked).json()
    with bundled.attack(found["image"], pixels=2, queries=5) as heard:
        began, over = heard.until("began"), heard.until("over")
    victim = brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    assert began["label"] == int(victim(sample.images[40:41]).argmax())
    assert over["facts"]["ledger"]["clean"] == 2  # what it sees, and the attack's own
    assert "--label" not in over["command"]


def test_an_image_that_the_victim_gets_wrong_is_not_attacked(bundled) -> None:
    sample, victim = brusle.data.load("sample"), brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    wrong = (victim(sample.images).argmax(1) != sample.labels).nonzero()[0]
    over = bundled.run(bundled.choose(row=int(wrong)))
    assert over["facts"]["status"] == "skipped" and over["facts"]["queries"] == 0
    assert over["trace"] is None and over["told"].startswith("not attacked: the victim sees")


def test_who_is_paused_asks_nothing_until_it_is_told_to_go_on(gated) -> None:
    asker, gate = gated
    with asker.attack(asker.choose(), pixels=1, queries=40) as heard:
        heard.until("began")
        heard.want(do="pause")
        gate.let(2)  # the clean image and the first query, which was under way
        assert heard.until("paused")["query"] == 1 and gate.answered == 2
        gate.open()
        for query in (2, 3):  # the next answer is asked for when that is wanted
            heard.want(do="step")
            assert heard.until("point")["query"] == query
            heard.want(do="pace", pace=1000)
            assert gate.answered == query + 1
        heard.want(do="go")
        heard.until("going")
        over = heard.until("over")
    alone = make("brusle", 1, 40)(toy(), toy_data().images[:1], toy_data().labels[:1])
    assert over["facts"]["queries"] == int(alone.queries[0])
    assert over["facts"]["status"] == alone.status[0]


def test_who_is_ended_asks_nothing_any_more(gated) -> None:
    asker, gate = gated
    with asker.attack(asker.choose(), pixels=1, queries=40) as heard:
        heard.until("began")
        gate.let(4)
        while heard.until("point")["query"] < 3:
            pass
        heard.want(do="end")
        gate.let(1)  # the answer that it waits for
        over = heard.until("over")
    assert over["how"] == "ended" and over["told"] == "ended after 4 queries"
    assert "facts" not in over and gate.answered == 5
    heard.want(do="go")  # is in vain, and no error


def test_who_is_ended_before_its_turn_asks_nothing_at_all(gated) -> None:
    asker, gate = gated
    image = asker.choose()
    with asker.attack(image, queries=3) as one, asker.attack(image, queries=3) as two:
        one.until("began")
        two.until("waiting")
        two.want(do="end")
        gate.open()
        assert one.until("over")["how"] == "finished"
        assert two.until("over")["told"] == "ended after 0 queries"
    assert len(set(gate.callers)) == 1


def test_a_paused_attack_can_be_ended(gated) -> None:
    asker, gate = gated
    gate.open()
    with asker.attack(asker.choose(), pixels=1, queries=100, pace=1) as heard:
        heard.until("began")
        heard.want(do="pause")
        heard.until("paused")
        heard.want(do="end")
        assert heard.until("over")["how"] == "ended"


def test_two_run_at_once_in_turn_and_a_third_is_refused(gated) -> None:
    asker, gate = gated
    image = asker.choose()
    first = asker.attack(image, pixels=1, queries=6)
    second = asker.attack(image, "sparse-rs", pixels=1, queries=6)
    with first as one, second as two:
        one.until("began")
        with asker.attack(image) as third:
            assert third.answer.status_code == 409
            assert third.answer.json()["error"] == "2 attacks are running: end one of them first"
        gate.open()
        ends = [one.until("over"), two.until("over")]
    for name, over in zip(("brusle", "sparse-rs"), ends, strict=True):
        alone = make(name, 1, 6)(toy(), toy_data().images[:1], toy_data().labels[:1])
        assert over["facts"]["queries"] == int(alone.queries[0])
        assert over["facts"]["status"] == alone.status[0]
    assert asker.run(image, queries=2)["how"] == "finished"


def test_they_take_turns_query_by_query(somewhere) -> None:
    always = torch.eye(len(CLASSES))[int(toy_data().labels[0])]
    gate = Gate(lambda images: always.repeat(len(images), 1))
    with Studio([toy(gate)], [toy_data()]) as studio, Asker(studio) as asker:
        image, asked = asker.choose(), {"pixels": 1, "queries": 30}
        with asker.attack(image, **asked) as one, asker.attack(image, "sparse-rs", **asked) as two:
            one.until("began")
            two.until("waiting")
            gate.open()
            assert one.until("over")["query"] == two.until("over")["query"] == 30
    first, second = dict.fromkeys(gate.callers)
    since = gate.callers.index(second)
    assert gate.callers[since : since + 2] == [second, second]  # the clean image, and a query
    assert gate.callers[since + 2 : since + 42] == [first, second] * 20


def test_an_attack_ends_when_the_page_leaves(gated) -> None:
    asker, gate = gated
    image = asker.choose()
    with asker.attack(image, queries=50) as one, asker.attack(image, queries=50) as two:
        one.until("began")
        one.answer.close()  # the page is gone, in the middle of an answer
        gate.open()
        two.until("over")
    for _ in range(3):  # there is room for others
        assert asker.run(image, pixels=1, queries=3)["how"] == "finished"


def test_a_victim_that_fails_ends_its_attack_in_a_line(somewhere) -> None:
    calls = []

    def failing(images: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("secret path\nand more")
        return integer_model(SHAPE, len(CLASSES)).function(images)

    def gone(images: torch.Tensor) -> torch.Tensor:
        raise VictimError("it is gone \x1b[31m")

    def leaving(images: torch.Tensor) -> torch.Tensor:
        raise SystemExit(3)

    victims = [toy(function) for function in (failing, gone, leaving)]
    with Studio(victims, [toy_data()]) as studio, Asker(studio) as asker:
        over = asker.run(asker.choose(victim=0), pixels=1, queries=40)
        assert over["facts"]["status"] == "error"
        assert over["told"] == "error: the victim raised RuntimeError: secret path"
        over = asker.run(asker.choose(victim=1))
        assert over["how"] == "error" and over["told"] == "it is gone \\x1b[31m"
        over = asker.run(asker.choose(victim=2))
        assert over["how"] == "error" and over["told"].startswith("toy tried to end the program")


@pytest.mark.parametrize(
    "asked",
    [
        {"attack": "no-such"},
        {"attack": "python:os:system"},
        {"attack": "brusle:palette=uniform"},  # options have a place of their own
        {"options": "no-such=1"},
        {"options": "palette=no-such"},
        {"options": "x" * 2000},
        {"pixels": 0},
        {"pixels": 1.5},
        {"queries": 0},
        {"queries": 10**6},
        {"seed": 2**64},
        {"seed": "1"},
        {"target": -1},
        {"pace": -1},
        {"pace": float("inf")},
        {"image": 10**6},
        {"out": "/etc/passwd"},
    ],
    ids=str,
)
def test_a_wrong_attempt_is_refused_in_a_line(asker, asked) -> None:
    body = json.dumps({"image": asker.choose(), "attack": "brusle"} | asked)
    kind = {"Content-Type": "application/json"}
    answer = asker.post("/api/attacks", content=body, headers=kind)
    assert answer.status_code == 400 and len(answer.json()["error"].splitlines()) == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target": 99}, "99"),
        ({"pixels": 65}, "an image of 8 x 8 has 64"),
        ({"attack": "sparse-evo", "target": 0}, "starts at an image of the target class"),
    ],
)
def test_what_the_attack_itself_refuses_is_told_in_a_line(asker, asked, message) -> None:
    row = int((toy_data().labels != 0).nonzero()[0])
    over = asker.run(asker.choose(row=row), **asked)
    assert over["how"] == "error" and message in over["told"]
    assert len(over["told"].splitlines()) == 1


@pytest.mark.parametrize("asked", [{}, {"do": "rm"}, {"do": "pace", "pace": "fast"}, {"do": None}])
def test_a_wrong_wish_is_refused(asker, asked) -> None:
    assert asker.post("/api/attacks/0", json=asked).status_code == 400


def test_the_studio_ends_its_attacks_when_it_ends(somewhere) -> None:
    with Studio([toy()], [toy_data()]) as studio, Asker(studio) as asker:
        image = asker.choose()
        context = asker.attack(image, pixels=1, queries=1000, pace=1)
        heard = context.__enter__()
        heard.until("point")
        studio.__exit__()
        assert heard.until("over")["how"] == "ended"
        context.__exit__(None, None, None)


def test_hostile_names_of_classes_are_text(somewhere) -> None:
    names = ("<script>alert(1)</script>", "a\u202eb", "c\x1b[31m", "d" * 5000, "e\ud800")
    with Studio([toy(classes=names)], [toy_data(classes=names)]) as studio, Asker(studio) as asker:
        asked = {"victim": 0, "data": 0, "row": 0}
        known = asker.post("/api/images/data", json=asked).json()["names"]
        assert known[:3] == ["<script>alert(1)</script>", "a\\u202eb", "c\\x1b[31m"]
        assert known[4] == "e\\ud800"
        with asker.attack(asker.choose(), pixels=1, queries=5, target=None) as heard:
            assert heard.until("names")["names"] == known
            assert heard.until("over")["how"] == "finished"


def test_labels_that_are_named_later_have_their_names(somewhere) -> None:
    model = integer_model(SHAPE, len(CLASSES))

    def lists(images: torch.Tensor) -> list[dict[str, float]]:
        return [
            {CLASSES[i]: float(p) for i, p in enumerate(row.softmax(0)) if p > 0.05}
            for row in model.function(images)
        ]

    victim = toy(lists, output="confidences", named=True, classes=None)
    with Studio([victim], [toy_data(classes=())]) as studio, Asker(studio) as asker:
        with asker.attack(asker.choose(), pixels=8, queries=40) as heard:
            heard.until("over")
        names: list[str] = []
        for message in heard.messages:
            names = message.get("names", names)
            for label, _ in message.get("step", {}).get("top", ()):
                assert names[label] in CLASSES
