"""Services that answer nonsense, refuse images or change their model, at the level of a command."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import entry
import pytest
from hostile_services import Hostile, Request, response
from rehearsing import NET, evaluation, misbehaving, name_of, net, rows, totals

from brusle.evaluation.storing.runs import Run
from brusle.terms import Terms

LIMIT = 4
SOUND = 30  # calls that are answered before a service begins to misbehave


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brusle.victims.remote.tries._FIRST", 0.01)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    with misbehaving(net) as server:
        assert evaluate(server, folder)[0] == 0
    return folder


def evaluate(server: Hostile, out: Path, *options: object) -> tuple[int, list[str]]:
    """Exit code, and the lines of errors."""
    said = entry.run(*evaluation(name_of(server), out, "--limit", LIMIT, *options))
    assert "Traceback" not in said.stderr
    return said.returncode, said.stderr.splitlines()


def tensor(shape: list[int], data: list[float]) -> dict[str, object]:
    return {"name": "scores", "datatype": "FP64", "shape": shape, "data": data}


async def drip(request: Request) -> bytes:
    await asyncio.sleep(0.05)
    return b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n[1,"


NONSENSE: dict[str, tuple[Callable[[Request], object], str]] = {
    "a gigabyte": (
        lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n" + b" " * 2**25 + b" ",
        "longer than 32 MB",
    ),
    "no JSON": (lambda _: response('{"outputs": ['), "instead of JSON"),
    "too many rows": (lambda _: response({"outputs": [tensor([2, 10], [0.5] * 20)]}), "2 rows"),
    "too few rows": (
        lambda _: response({"outputs": [tensor([0, 10], [])]}),
        "answers nonsense",
    ),
    "a web page": (lambda _: response("<html>" + "x" * 5000), "a web page instead of JSON"),
    "nothing": (lambda _: response(""), "nothing instead of JSON"),
    "a drip": (drip, "no answer within 0.3 s"),
    "a novel": (lambda _: response({"error": "very long " * 1000}, 500), "very long"),
    "another width": (lambda _: response({"outputs": [tensor([1, 9], [0.5] * 9)]}), "and 9 now"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_is_one_line_and_nothing_is_lost(kind, tmp_path, undisturbed) -> None:
    answer, told = NONSENSE[kind]
    sick = True

    def turn(request: Request) -> object:
        return answer(request) if sick and request.number >= SOUND else net(request)

    with misbehaving(turn) as server:
        timeout = ("--timeout", 0.3) if kind == "a drip" else ()
        code, errors = evaluate(server, tmp_path, *timeout)
        assert code == 3, errors
        assert len(errors) == 3 and all(len(line) <= 1000 for line in errors)
        assert errors[0].startswith("error: ") and told in errors[0]
        assert totals(tmp_path).answered >= SOUND - 1
        sick = False
        assert evaluate(server, tmp_path)[0] == 0
    assert rows(tmp_path) == rows(undisturbed)
    sums = totals(tmp_path)
    assert sums.sent == server.images == sums.answered + sums.refused + sums.lost


def dark(request: Request) -> bool:
    return float(request.pixels().mean()) < 0.3


REFUSALS = {
    "4xx": lambda _: response({"error": "too dark"}, 422),
    "NaN": lambda _: response({"outputs": [tensor([1, 10], [float("nan")] * 10)]}),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_an_image_that_is_refused_is_an_error_row(kind, tmp_path, undisturbed) -> None:
    def answer(request: Request) -> bytes:
        return REFUSALS[kind](request) if dark(request) else net(request)

    with misbehaving(answer) as server:
        code, errors = evaluate(server, tmp_path)
        assert code == 3 and not errors
        refused = totals(tmp_path).refused
        assert evaluate(server, tmp_path)[0] == 3
    found, expected = rows(tmp_path), rows(undisturbed)
    bad = {key for key, row in found.items() if row.status == "error"}
    assert 0 < len(bad) < LIMIT == len(found)
    assert all(found[key] == expected[key] for key in found.keys() - bad)
    reason = "the victim refused the image (HTTP 422: too dark)" if kind == "4xx" else "NaN"
    assert all(reason in found[key].error for key in bad)
    assert totals(tmp_path).refused == refused, "the journal has their answers, too"


def test_a_service_that_refuses_every_image_is_not_asked_for_all(tmp_path) -> None:
    with misbehaving(lambda _: response({"error": "wrong field"}, 400)) as server:
        code, errors = evaluate(server, tmp_path, "--limit", 100)
    assert code == 3 and "none of 8 images was answered" in errors[0]
    assert len(server.calls) <= 8


def test_a_service_that_changes_its_model(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("brusle.cli.options.Terms", partial(Terms, canary=20))

    def answer(request: Request) -> bytes:
        return net(request, NET if request.number < SOUND else f"{NET}-linf")

    with misbehaving(answer) as server:
        code, errors = evaluate(server, tmp_path, "--json")
    assert code == 0
    told = "answer to the canary image has changed after"
    assert told in " ".join(" ".join(errors).split())
    assert told in Run.open(tmp_path).about.warnings["service changed"]
    assert entry.run("report", tmp_path).returncode == 0
    assert told in (tmp_path / "report.html").read_text()
