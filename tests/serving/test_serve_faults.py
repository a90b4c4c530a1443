"""What goes wrong on purpose, and the books that say what did."""

import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch
from served import base64_png

from brusle.defaults import FORMATS
from brusle.errors import InputError
from brusle.serving import Server
from brusle.serving.books import Call, most_within
from brusle.serving.faults import Faults, Gate, Latency
from brusle.serving.formats import KINDS
from brusle.terms import Pace
from brusle.victims import wrap

SHAPE = (3, 4, 4)


class Model:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, images):
        self.asked += len(images)
        return images.flatten(1)[:, :3]


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def tiny(model):
    return wrap(model, output="logits", shape=SHAPE, name="tiny")


def image(number: int) -> torch.Tensor:
    return torch.full(SHAPE, number / 255)


def classify(client: httpx.Client, *numbers: int, **more) -> str | int:
    """The status, or how the connection ended."""
    try:
        contents = [base64_png(image(number)) for number in numbers]
        return client.post("/classify", json={"images": contents}, **more).status_code
    except httpx.TransportError as error:
        return type(error).__name__


def outcomes(victim, calls: int, **options) -> tuple[list[str | int], dict]:
    with Server(victim, "json", **options) as server, httpx.Client(base_url=server.url) as client:
        found = [classify(client, number) for number in range(calls)]
        assert client.get("/-/books").json() == server.books.as_dict()
        return found, server.books.as_dict()


def test_faults_are_those_of_the_seed_and_are_booked(tiny, model) -> None:
    found, books = outcomes(tiny, 80, fail=0.3, drop=0.1, seed=3)
    again, same = outcomes(tiny, 80, fail=0.3, drop=0.1, seed=3)
    other, _ = outcomes(tiny, 80, fail=0.3, drop=0.1, seed=4)
    assert found == again and found != other
    assert {key: books[key] for key in books if "most" not in key} == {
        key: same[key] for key in books if "most" not in key
    }
    count = Counter(found)
    assert set(count) == {200, 429, 500, 503, "RemoteProtocolError"}
    assert books["answered"] == books["distinct"] == count[200]
    assert books["failed"] == {str(status): count[status] for status in (429, 500, 503)}
    assert books["dropped"] == count["RemoteProtocolError"]
    assert books["calls"] == books["received"] == 80 == sum(count.values())
    assert books["answered_again"] == [] and books["throttled"] == books["under_way"] == 0


def test_some_fail_before_the_victim_is_asked_and_some_after(tiny, model) -> None:
    found, _ = outcomes(tiny, 60, fail=0.5, drop=0.3)
    assert found.count(200) + 5 < model.asked < 55


def test_shares_hold_over_many_calls() -> None:
    fates = [Faults(fail=0.3, drop=0.05, seed=1).fate(number) for number in range(20_000)]
    failed = [fate for fate in fates if fate.status is not None]
    assert abs(len(failed) / len(fates) - 0.3) < 0.01
    assert abs(sum(fate.drop for fate in fates) / len(fates) - 0.05) < 0.005
    assert not any(fate.drop for fate in failed)
    for status in (429, 500, 503):
        assert abs(sum(fate.status == status for fate in failed) / len(failed) - 1 / 3) < 0.03
    assert {fate.retry_after for fate in failed if fate.status == 429} == {None, 0, 1}
    assert {fate.retry_after for fate in failed if fate.status != 429} == {None}
    assert abs(sum(fate.late for fate in failed) / len(failed) - 0.5) < 0.03


def test_latency_has_the_median_and_the_tail_that_it_says() -> None:
    latency = Latency.parse("lognormal:50ms,0.5s")
    faults = Faults(latency)
    times = sorted(faults.fate(number).latency for number in range(20_000))
    assert math.isclose(times[10_000], 0.05, rel_tol=0.05)
    assert math.isclose(times[19_800], 0.5, rel_tol=0.15)
    assert Latency.parse("20ms").draw(0.999) == 0.02


@pytest.mark.parametrize(
    "text", ["", "50", "-1ms", "50ms,60ms", "lognormal:50ms", "lognormal:50ms,10ms", "0ms", "x:1s"]
)
def test_a_latency_that_is_none_is_refused(text) -> None:
    with pytest.raises(InputError, match="latency"):
        Latency.parse(text)


@pytest.mark.parametrize("shares", [(-0.1, 0), (0.6, 0.6), (0, 1.1)])
def test_shares_are_shares(shares) -> None:
    with pytest.raises(InputError, match="shares of the calls"):
        Faults(fail=shares[0], drop=shares[1])


def test_no_answer_leaves_before_its_time(tiny) -> None:
    with Server(tiny, "json", latency="300ms") as server:
        client = httpx.Client(base_url=server.url)
        asked = {"image": base64_png(image(1))}
        answer = client.post("/classify", json=asked)
        assert answer.status_code == 200 and answer.elapsed.total_seconds() >= 0.3
        bad = client.post("/classify", json={"image": "x"})
        assert bad.status_code == 400 and bad.elapsed.total_seconds() >= 0.3


def test_beyond_the_rate_images_are_turned_away_and_not_asked(tiny, model) -> None:
    with Server(tiny, "json", rate="5/h") as server:
        client = httpx.Client(base_url=server.url)
        assert classify(client, 0, 1, 2) == 200
        assert classify(client, 3, 4, 5) == 429
        assert classify(client, 3, 4) == 200
        contents = {"image": base64_png(image(6))}
        answer = client.post("/classify", json=contents)
        assert answer.status_code == 429 and 3590 < int(answer.headers["Retry-After"]) <= 3600
        books = server.books.as_dict()
    assert model.asked == 5 == books["answered"]
    assert books["received"] == 9 and books["throttled"] == 4 and books["failed"] == {}


def test_a_gate_says_when_it_opens() -> None:
    gate = Gate(Pace(4, 100.0))
    assert gate.wait(3) == 0 and gate.wait(1) == 0
    assert 99 < gate.wait(1) <= 100
    assert gate.wait(5) == 100
    assert Gate(None).wait(10**9) == 0


def test_books_count_images_by_their_pixels(tiny) -> None:
    with Server(tiny, "json") as server, httpx.Client(base_url=server.url) as client:
        assert classify(client, 1, 2, 1) == 200
        assert classify(client, 3) == 200
        assert classify(client, 2) == 200
        assert client.post("/classify", json={"image": "x"}).status_code == 400
        books = server.books.as_dict()
    assert (books["calls"], books["received"], books["answered"]) == (4, 6, 5)
    assert (books["distinct"], books["answered_again"]) == (3, [2, 2])
    assert books["failed"] == {"400": 1}
    assert books["most_in_a_minute"] == 6


def test_the_busiest_time_is_found_wherever_it_begins() -> None:
    arrivals = [(0.0, 1), (0.5, 2), (1.25, 3), (1.375, 1), (2.25, 9)]
    calls = [Call(number, came, images) for number, (came, images) in enumerate(arrivals)]
    assert most_within(calls, 1.0) == 10 and most_within(calls, 0.5) == 9
    assert most_within(calls[:4], 1.0) == 6 and most_within([], 1.0) == 0


def test_the_file_has_a_line_for_each_call(tiny, tmp_path) -> None:
    file = tmp_path / "books.jsonl"
    found, books = outcomes(tiny, 30, fail=0.3, drop=0.2, books=file, key=None)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["call"] for line in lines] == list(range(30))
    assert [line["status"] or "RemoteProtocolError" for line in lines] == found
    answered = [line for line in lines if line["outcome"] == "answered"]
    assert len({one for line in answered for one in line["hashes"]}) == books["distinct"]


def test_answers_do_not_depend_on_who_else_asks(victim, images) -> None:
    with Server(victim, "json") as server, httpx.Client(base_url=server.url) as client:

        def ask(one):
            return client.post("/classify", json={"image": base64_png(one)}).json()

        alone = [ask(one) for one in images]
        with ThreadPoolExecutor(4) as crowd:
            together = list(crowd.map(ask, [*images] * 5))
    assert together == alone * 5


@pytest.mark.parametrize(
    ("format", "path", "status", "headers"),
    [
        ("oip", "/v2/models/tiny/infer", 401, [{"Authorization": "Bearer KEY"}]),
        ("tfserving", "/v1/models/tiny:predict", 401, [{"Authorization": "bearer KEY"}]),
        ("json", "/classify", 401, [{"X-Api-Key": "KEY"}, {"Authorization": "Bearer KEY"}]),
        ("google-vision", "/v1/images:annotate", 403, [{"x-goog-api-key": "KEY"}]),
        ("rekognition", "/", 400, [{"Authorization": "AWS4 Credential=KEY/2026/x"}]),
    ],
)
def test_a_key_is_asked_for(tiny, tmp_path, format, path, status, headers) -> None:
    file = tmp_path / "books.jsonl"
    with Server(tiny, format, key="KEY", books=file) as server:
        url = server.url + path
        for wrong in ({}, {"Authorization": "Bearer KEZ"}, {"Authorization": "KEY"}):
            answer = httpx.post(url, json={}, headers=wrong)
            assert answer.status_code == status and "missing or wrong" in answer.text
            assert "KEY" not in answer.text
        assert server.books.as_dict()["calls"] == 0
        for right in headers:
            assert "missing or wrong" not in httpx.post(url, json={}, headers=right).text
        assert server.books.as_dict()["calls"] == len(headers)
    assert "KEY" not in file.read_text() and "KEY" not in repr(vars(server))


def test_a_key_may_stand_in_googles_address(tiny) -> None:
    with Server(tiny, "google-vision", key="KEY") as server:
        url = f"{server.url}/v1/images:annotate"
        assert httpx.post(f"{url}?key=KEY", json={}).status_code == 400
        assert httpx.post(f"{url}?key=OTHER", json={}).status_code == 403


def test_health_and_books_need_no_key(tiny) -> None:
    with Server(tiny, "oip", key="KEY") as server:
        assert httpx.get(f"{server.url}/v2/health/ready").status_code == 200
        assert httpx.get(f"{server.url}/-/books").status_code == 200
        assert httpx.get(f"{server.url}/v2/models/tiny").status_code == 401


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "soap"}, "choose one of oip"),
        ({"top": 0}, "at least 1"),
        ({"most": 0}, "at least 1"),
        ({"key": ""}, "a key is not empty"),
        ({"rate": "5"}, "rate '5' is none"),
        ({"port": 70_000}, "cannot listen on port 70000"),
        ({"host": "no such host"}, "cannot listen on port 0 of no such host"),
    ],
)
def test_what_cannot_be_served_is_refused(tiny, options, message) -> None:
    with pytest.raises(InputError, match=message):
        Server(tiny, **({"format": "json"} | options))


def test_every_format_has_a_name_on_the_command_line() -> None:
    assert tuple(KINDS) == FORMATS


def test_a_port_that_is_taken_is_said(tiny) -> None:
    with (
        Server(tiny, "json") as server,
        pytest.raises(InputError, match="choose another port, or 0 for any"),
    ):
        Server(tiny, "json", port=server.port)
