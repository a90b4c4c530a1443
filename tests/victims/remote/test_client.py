import asyncio
import gzip
import json
import os
import pickle
import threading
import time
from collections.abc import Callable
from email.utils import formatdate

import numpy as np
import pytest
import torch
from asking import Sleeps, connect, totals
from hostile_services import CLASSES, METADATA, Hostile, Request, response, scored, scores_of
from torch import Tensor

from brusle.books import BooksInMemory, SpendingLimit
from brusle.errors import InputError, VictimError, VictimUnavailable
from brusle.terms import Pace, Terms

Served = Callable[..., Hostile]


def one_each(server: Hostile, **more: str) -> str:
    """The name of a victim that asks for one image per call, in JSON."""
    options = {"most": "1", "binary": "off"} | more
    return f"oip:{server.url}/m?" + "&".join(f"{k}={v}" for k, v in options.items())


def expected(images: Tensor) -> Tensor:
    return torch.from_numpy(scores_of(images.numpy()))


def test_answers(served: Served, images: Tensor) -> None:
    server = served()
    victim = connect(one_each(server, most="7"))
    assert torch.allclose(victim(images), expected(images))
    assert totals(victim) == (40, 40, 0, 0)
    assert server.images == 40 and len(server.calls) == 6
    assert victim.shape == (3, 4, 4)


def test_no_images(served: Served, images: Tensor) -> None:
    assert len(connect(one_each(served()))(images[:0])) == 0


def test_faults_are_booked_exactly(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    kinds = [429, 500, 503, None, b"garbage\r\n\r\n", None, 408, 425]

    def answer(request: Request) -> bytes | None:
        kind = kinds[request.number // 2 % len(kinds)]
        if request.number % 2 == 0:
            return scored(request)
        return response({"error": "busy"}, kind) if isinstance(kind, int) else kind

    server = served(answer)
    terms = Terms(concurrency=4, retries=100, patience=1e6)  # which call meets what is chance
    victim = connect(one_each(server), terms, sleep=sleeps)
    consultation = victim.consult(images, torch.arange(40))
    assert torch.allclose(consultation.scores, expected(images))
    sent, answered, refused, lost = totals(victim)
    assert sent == server.images == answered + refused + lost
    assert answered == 40
    assert lost == int(consultation.lost.sum()) == len(sleeps) > 0


def test_many_threads_share_the_slots(served: Served, images: Tensor) -> None:
    server = served(delay=0.02)
    victim = connect(one_each(server), Terms(concurrency=3))
    found: dict[int, Tensor] = {}

    def ask(at: int) -> None:
        found[at] = victim(images[at : at + 2])

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(0, 40, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.most_at_once == 3
    assert torch.allclose(torch.cat([found[at] for at in sorted(found)]), expected(images))


def test_pace_holds_at_the_server(served: Served, images: Tensor) -> None:
    server = served()
    victim = connect(one_each(server), Terms(rate=Pace(20, 1.0)))
    began = time.monotonic()
    victim(images)
    assert time.monotonic() - began > 39 / 20
    at = np.array([when for when, _ in server.arrivals])
    assert max(((at >= start) & (at <= start + 1)).sum() for start in at) <= 20


def test_spending_limit(served: Served, images: Tensor) -> None:
    server = served()
    victim = connect(one_each(server), Terms(requests=25, concurrency=4))
    replies = []
    with pytest.raises(SpendingLimit, match="--requests 25 allows no more"):
        replies.extend(victim.stream(images))
    assert len(replies) == server.images == 25  # all that was paid for arrived
    assert totals(victim) == (25, 25, 0, 0)


def test_a_service_that_is_not_there(images: Tensor, sleeps: Sleeps, served: Served) -> None:
    server = served()
    victim = connect(one_each(server), Terms(retries=3), sleep=sleeps)
    server.__exit__()
    with pytest.raises(VictimUnavailable, match=r"does not answer \(.*\), tried 4 times") as caught:
        victim(images[:1])
    assert caught.value.final
    assert totals(victim)[0] == 0  # nothing left this machine
    with pytest.raises(VictimUnavailable, match="does not answer"):
        connect(one_each(server), sleep=sleeps)


@pytest.mark.parametrize("date", [False, True])
def test_retry_after_is_honoured(
    date: bool, served: Served, images: Tensor, sleeps: Sleeps
) -> None:
    wait = formatdate(time.time() + 20, usegmt=True) if date else "20"

    def answer(request: Request) -> bytes:
        if request.number == 0:
            return response({"error": "slow down"}, 429, Retry_After=wait)
        return scored(request)

    victim = connect(one_each(served(answer)), sleep=sleeps)
    victim(images[:1])
    assert 18 < sleeps[0] < 21


def test_who_asks_for_too_long_is_given_up(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    server = served(lambda _: response({"error": "no"}, 429, Retry_After="3600"))
    victim = connect(one_each(server), Terms(patience=60), sleep=sleeps)
    with pytest.raises(VictimUnavailable, match="HTTP 429: no.*it asks to wait 3600 s"):
        victim(images[:1])
    assert not sleeps and len(server.calls) == 1


def test_patience_is_bounded(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    server = served(lambda _: response({"error": "down"}, 503))
    victim = connect(one_each(server), Terms(retries=100, patience=40), sleep=sleeps)
    with pytest.raises(VictimUnavailable, match=r"HTTP 503: down\), tried \d+ times in 40 s"):
        victim(images[:1])
    assert sum(sleeps) == pytest.approx(40)
    assert totals(victim) == (len(server.calls), 0, 0, len(server.calls))


def test_a_service_in_trouble_is_not_asked_for_more(
    served: Served, images: Tensor, sleeps: Sleeps
) -> None:
    server = served(lambda _: response({"error": "down"}, 500))
    victim = connect(one_each(server), Terms(retries=2, concurrency=4), sleep=sleeps)
    with pytest.raises(VictimUnavailable):
        victim(images)
    assert len(server.calls) <= 4 * 3 + 4


@pytest.mark.parametrize("status", [401, 402, 403, 404, 407, 410])
def test_refusals_are_not_tried_again(
    status: int, served: Served, images: Tensor, sleeps: Sleeps
) -> None:
    server = served(lambda _: response({"error": {"message": "who are you"}}, status))
    victim = connect(one_each(server), sleep=sleeps)
    with pytest.raises(
        VictimUnavailable, match=rf"refuses to answer \(HTTP {status}: who are you\): check its"
    ):
        victim(images[:1])
    assert len(server.calls) == 1 and totals(victim) == (1, 0, 0, 1)


def rows(count: int) -> Callable[[Request], bytes]:
    tensor = {"name": "scores", "datatype": "FP64", "shape": [count, 3], "data": [0.5] * 3 * count}
    return lambda _: response({"outputs": [tensor]})


BOMB = gzip.compress(b" " * 2**27)
NONSENSE = {
    "web page": (lambda _: response("<!DOCTYPE html><html>Sign in"), "a web page instead of JSON"),
    "no JSON": (lambda _: response('{"outputs": ['), "instead of JSON"),
    "nothing": (lambda _: response(""), "nothing instead of JSON"),
    "no tensor": (lambda _: response({"outputs": []}), "has no tensor"),
    "other format": (lambda _: response({"predictions": [1, 2]}), "not in its format"),
    "a list": (lambda _: response([1]), "not in its format"),
    "too few rows": (rows(0), "not in its format|and no scores|0 rows for 1"),
    "too many rows": (rows(2), "2 rows for 1 images"),
    "large": (lambda _: response(b"1" * 2**21), "longer than 1 MB"),
    "a bomb": (lambda _: response(BOMB, Content_Encoding="gzip"), "longer than 1 MB"),
    "broken gzip": (lambda _: response(b"nope", Content_Encoding="gzip"), "no gzip"),
    "unknown encoding": (lambda _: response(b"x", Content_Encoding="br"), "encoded as br"),
    "another status": (lambda _: response({}, 202), "HTTP 202"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense(
    kind: str,
    served: Served,
    images: Tensor,
    sleeps: Sleeps,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("brusle.victims.remote.transport.MOST_BYTES", 2**20)
    answer, told = NONSENSE[kind]
    server = served(answer)
    victim = connect(one_each(server), sleep=sleeps)
    with pytest.raises(VictimUnavailable, match=told) as caught:
        victim(images[:1])
    assert "answers nonsense" in str(caught.value) and "\n" not in str(caught.value)
    assert len(server.calls) == 3  # twice again
    assert totals(victim) == (3, 0, 0, 3)


def test_a_gigabyte_is_not_read(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n" + b" " * 2**26
    victim = connect(one_each(served(lambda _: head)), sleep=sleeps)
    with pytest.raises(VictimUnavailable, match="longer than 32 MB"):
        victim(images[:1])


def test_a_slow_drip(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    async def answer(request: Request) -> bytes:
        if request.number:
            return scored(request)
        return b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n[1,"

    server = served(answer)
    victim = connect(one_each(server), Terms(timeout=0.3), sleep=sleeps)
    assert torch.allclose(victim(images[:1]), expected(images[:1]))
    assert totals(victim) == (2, 1, 0, 1)


def test_an_answer_that_breaks_off(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    def answer(request: Request) -> bytes:
        whole = scored(request)
        cut = whole.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")[:-9]
        return whole if request.number else cut

    victim = connect(one_each(served(answer)), sleep=sleeps)
    assert torch.allclose(victim(images[:1]), expected(images[:1]))
    assert totals(victim) == (2, 1, 0, 1)


@pytest.mark.parametrize("where", ["http://example.com/steal", "/elsewhere"])
def test_images_are_not_sent_on(where: str, served: Served, images: Tensor) -> None:
    server = served(lambda _: response("", 307, Location=where))
    victim = connect(one_each(server))
    host = "http://example.com" if "//" in where else server.url
    with pytest.raises(VictimUnavailable, match=f"redirects to {host}, and images are not sent"):
        victim(images[:1])
    assert len(server.calls) == 1 and server.calls[0].path == "/v2/models/m/infer"


def test_metadata_of_another_host_is_not_read(served: Served) -> None:
    away = response("", 302, Location="http://example.com/")
    with pytest.raises(VictimUnavailable, match="redirects to http://example.com"):
        connect(one_each(served(metadata=away)))


def test_cookies_are_not_kept(served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        return scored(request).replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b\r\n\r\n", 1)

    server = served(answer)
    connect(one_each(server), Terms(concurrency=1))(images[:3])
    assert not any("cookie" in call.headers for call in server.calls)


def test_nan_is_an_error_of_the_image(served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        values = scores_of(request.pixels())
        if request.number == 1:
            values[0, 0] = np.nan
        tensor = {"name": "scores", "shape": list(values.shape), "data": values.tolist()}
        return response({"outputs": [tensor]})

    victim = connect(one_each(served(answer)), Terms(concurrency=1))
    consultation = victim.consult(images[:3], torch.arange(3))
    assert consultation.errors == {1: "the victim answered NaN or infinite scores"}
    assert totals(victim) == (3, 2, 1, 0)


def is_dark(request: Request) -> bool:
    return bool((request.pixels().reshape(-1, 48).max(1) < 0.1).any())


@pytest.mark.parametrize("most", ["1", "8"])
def test_an_image_that_is_refused(most: str, served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        return response({"error": "too dark"}, 422) if is_dark(request) else scored(request)

    images[11] = 0
    server = served(answer)
    victim = connect(one_each(server, most=most))
    consultation = victim.consult(images, torch.arange(40))
    assert consultation.errors == {11: "the victim refused the image (HTTP 422: too dark)"}
    others = [at for at in range(40) if at != 11]
    assert torch.allclose(consultation.scores[others], expected(images)[others])
    sent, answered, refused, lost = totals(victim)
    assert (answered, refused) == (39, 1) and sent == server.images == 40 + lost
    assert victim.service.most_images == int(most)  # it was not the number


def test_the_batch_limit_is_learned(served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        if len(request.pixels()) > 3:
            return response({"error": "batch-size must be <= 3"}, 400)
        return scored(request)

    server = served(answer)
    victim = connect(one_each(server, most="12"), Terms(concurrency=1))
    assert torch.allclose(victim(images), expected(images))
    assert victim.service.most_images == 3
    assert server.images == victim.books.totals.sent
    lost = victim.books.totals.lost
    victim(images)
    assert victim.books.totals.lost == lost  # learned once


def test_none_of_the_first_images_is_answered(served: Served, images: Tensor) -> None:
    server = served(lambda _: response({"error": "wrong field"}, 400))
    victim = connect(one_each(server), Terms(concurrency=1))
    for at in range(7):  # whoever asks, and in however many calls
        assert victim.consult(images[at : at + 1], torch.arange(1)).errors
    with pytest.raises(VictimUnavailable, match="none of 8 images was answered: .*wrong field"):
        victim(images[7:8])
    assert len(server.calls) == 8


def test_who_stops_early_has_no_more_calls_made(served: Served, images: Tensor) -> None:
    server = served(delay=0.05)
    victim = connect(one_each(server), Terms(concurrency=4))
    stream = victim.stream(images)
    next(stream)
    stream.close()
    sent, answered, refused, lost = totals(victim)
    assert sent == answered + refused + lost == server.images < 20
    time.sleep(0.2)
    assert server.images == sent


def test_calls_that_hang_are_booked_when_the_caller_goes(
    served: Served, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brusle.victims.remote.client._GRACE", 0.2)

    async def answer(request: Request) -> bytes:
        if request.number:
            await asyncio.sleep(60)
        return scored(request)

    server = served(answer)
    victim = connect(one_each(server), Terms(concurrency=4))
    for _ in victim.stream(images):
        break
    sent, answered, _, lost = totals(victim)
    assert answered == 1 and lost == sent - 1 > 0 and sent == server.images


def test_other_books_and_terms(served: Served, images: Tensor) -> None:
    victim = connect(one_each(served()))
    books = BooksInMemory()
    other = victim.keeping(books)
    other(images[:2])
    assert (books.totals.sent, victim.books.totals.sent) == (2, 0)
    strict = other.under(Terms(requests=1))
    with pytest.raises(SpendingLimit):
        strict(images[:1])


def test_in_a_pickle(served: Served, images: Tensor) -> None:
    victim = connect(one_each(served()))
    victim(images[:1])
    copy = pickle.loads(pickle.dumps(victim))
    assert torch.allclose(copy(images), expected(images))
    with pytest.raises(InputError, match="hold in one process"):
        pickle.dumps(victim.under(Terms(requests=5)))


def test_in_a_fork(served: Served, images: Tensor) -> None:
    victim = connect(one_each(served()))
    victim(images[:1])
    child = os.fork()
    if child == 0:
        same = torch.allclose(victim(images[:4]), expected(images[:4]))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_number_of_scores_must_not_change(served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        width = CLASSES - request.number
        tensor = {"name": "scores", "shape": [1, width], "data": [0.5] * width}
        return response({"outputs": [tensor]})

    unnamed = METADATA | {"outputs": []}
    victim = connect(one_each(served(answer, metadata=response(unnamed))), Terms(concurrency=1))
    victim(images[:1])
    with pytest.raises(VictimError, match="number of classes must not change"):
        victim(images[:1])


def test_explain(served: Served, images: Tensor) -> None:
    victim = connect(one_each(served()))
    trial = victim.explain(images[0])
    assert trial.request_text.startswith("POST http://127.0.0.1:")
    assert "..." in trial.request_text and len(trial.request_text) < 1000
    assert trial.response_text.startswith("HTTP 200") and not trial.error
    assert len(trial.extracted.splitlines()) == CLASSES
    assert json.loads(trial.response_text.partition("\n\n")[2])["model_name"] == "m"
    assert totals(victim) == (1, 1, 0, 0)


def test_explain_shows_what_is_not_understood(served: Served, images: Tensor) -> None:
    victim = connect(one_each(served(lambda _: response({"labels": ["cat"]}))))
    trial = victim.explain(images[0])
    assert '"cat"' in trial.response_text and "not in its format" in trial.error
    assert totals(victim) == (1, 0, 0, 1)
