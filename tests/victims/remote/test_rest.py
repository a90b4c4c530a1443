import base64
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from asking import Sleeps, connect, opened, totals
from hostile_services import Hostile, response
from PIL import Image
from torch import Tensor

import brusle
from brusle.errors import BrusleError, InputError, VictimUnavailable
from brusle.serving import Server
from brusle.terms import Pace, Terms
from brusle.victims.remote.template import template

Served = Callable[..., Hostile]
ZOO = "zoo:cifar10-resnet20"
KEY = "sk-0123456789abcdef"
LABELS = [{"name": "cat", "id": "n1", "p": 90}, {"name": "dog", "id": "n2", "p": 5}]


@pytest.fixture
def photos() -> Tensor:
    return torch.as_tensor(brusle.data.load("sample").images[:8])


@pytest.fixture
def write(tmp_path: Path, served: Served) -> Callable[..., str]:
    """Writes a template, and returns the victim's name."""

    def write(url: str = "http://127.0.0.1:9", **values: Any) -> str:
        usual = {
            "url": url,
            "body": {"json": {"image": "{image.base64}"}},
            "answer": {"labels": "$.labels[*].name", "scores": "$.labels[*].p"},
        }
        path = tmp_path / "service.yaml"
        path.write_text(yaml.safe_dump(usual | values))
        return f"rest:{path}"

    return write


def served_labels(served: Served, answer: Any = None) -> Hostile:
    return served(lambda _: response(answer or {"labels": LABELS}), count_images=lambda _: 1)


def body_of(name: str, images: Tensor) -> Any:
    return json.loads(connect(name).service.request(images.numpy()).content)


def decoded(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png))).transpose(2, 0, 1) / 255


def test_the_template_works_as_it_is(
    tmp_path: Path, photos: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(ZOO, "json", key=KEY) as server:
        path = tmp_path / "mine.yaml"
        path.write_text(template().replace("http://127.0.0.1:8000", server.url))
        with pytest.raises(InputError, match="needs the environment variable MY_SERVICE_KEY"):
            connect(f"rest:{path}")
        monkeypatch.setenv("MY_SERVICE_KEY", KEY)
        victim = connect(f"rest:{path}")
        scores = victim(photos)
        trial = victim.explain(photos[0])
        assert victim.books.totals.sent == server.books.as_dict()["received"]
    wanted = brusle.load_victim(ZOO, "cpu")
    names = victim.vocabulary.names
    assert [names[at] for at in scores.argmax(1)] == [
        wanted.classes[at] for at in wanted(photos).argmax(1)
    ]
    assert (victim.output, victim.gives) == ("confidences", "partial")
    assert "version" in trial.extracted and KEY not in str(trial) + repr(victim)
    assert KEY not in pickle.dumps(victim.fingerprint).decode(errors="replace")


@pytest.mark.parametrize("body", [{"multipart": {"image": "{image.png}", "lang": "en"}}, None])
def test_forms_and_batches(body: Any, write: Callable[..., str], photos: Tensor) -> None:
    answer = {"labels": "$.labels[*].label", "scores": "$.labels[*].score"}
    values: dict[str, Any] = {"body": body, "answer": answer}
    if body is None:
        values = {
            "images": "batch 3",
            "body": {"json": {"images": "{images.base64}"}},
            "answer": answer | {"each": "$.results[*]"},
        }
    with Server(ZOO, "json") as server:
        victim = connect(write(server.url + "/classify", **values))
        scores = victim(photos)
        books = server.books.as_dict()
    assert books["received"] == 8 and books["calls"] == (3 if body is None else 8)
    assert (scores > -torch.inf).any(1).all()


def test_bodies(write: Callable[..., str], photos: Tensor) -> None:
    one, two = photos[:1], photos[:2]
    levels = (one[0] * 255).round()
    assert np.allclose(decoded(base64.b64decode(body_of(write(), one)["image"])), one[0])
    text = {"json": {"u": "data:image/png;base64,{image.base64}", "k": [1, None, "${HOME} {x}"]}}
    body = body_of(write(body=text), one)
    assert body["u"].startswith("data:image/png;base64,iVBOR")
    assert body["k"] == [1, None, "${HOME} {x}"]  # nothing else is filled in
    hwc = body_of(write(body={"json": {"x": "{image.floats}"}}), one)["x"]
    assert np.allclose(hwc, one[0].permute(1, 2, 0))
    chw = body_of(write(body={"json": ["{image.levels}"]}, layout="chw"), one)[0]
    assert np.array_equal(chw, levels)
    each = {"json": {"requests": {"$each": {"image": {"content": "{image.base64}"}}}}}
    answer = {"each": "$[*]", "scores": "$"}
    body = body_of(write(body=each, images="batch 2", answer=answer), two)
    assert [list(one) for one in body["requests"]] == [["image"], ["image"]]
    raw = connect(write(body={"raw": "png"})).service.request(one.numpy())
    assert np.allclose(decoded(raw.content), one[0])
    assert raw.headers["Content-Type"] == "image/png"


def test_headers_query_and_address(
    write: Callable[..., str], served: Served, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = served_labels(served)
    monkeypatch.setenv("A_KEY", KEY)
    monkeypatch.setenv("A_PATH", "deep")
    name = write(
        server.url + "/${A_PATH}?fixed=1",
        headers={"Authorization": "Bearer ${A_KEY}", "X-Number": 3},
        query={"key": "${A_KEY}", "n": 2},
        method="PUT",
    )
    connect(name)(images[:1])
    call = server.calls[0]
    assert call.method == "PUT" and call.path == f"/deep?fixed=1&key={KEY}&n=2"
    assert call.headers["authorization"] == f"Bearer {KEY}" and call.headers["x-number"] == "3"


def test_ids_scale_and_version(write: Callable[..., str], served: Served, images: Tensor) -> None:
    server = served_labels(served, {"labels": LABELS, "model": {"v": 7}})
    paths = {"labels": "$.labels[*].name", "scores": "$.labels[*].p", "ids": "$.labels[*].id"}
    victim = connect(write(server.url, answer=paths | {"version": "$.model.v"}, divide=100))
    ((_, reply),) = victim.stream(images[:1])
    assert reply.labels == ("n1", "n2") and reply.titles == ("cat", "dog")
    assert reply.scores.tolist() == [0.9, 0.05] and reply.version == "7"


@pytest.mark.parametrize("path", ["$.p", "$.p[*]"])
def test_a_vector_of_scores(
    path: str, write: Callable[..., str], served: Served, images: Tensor, tmp_path: Path
) -> None:
    (tmp_path / "names.txt").write_text("cat\ndog\nowl\n")
    server = served_labels(served, {"p": [0.2, 0.5, 0.3]})
    name = write(server.url, answer={"scores": path}, output="probabilities", classes="names.txt")
    victim = connect(name)
    assert victim(images[:2]).tolist() == [[0.2, 0.5, 0.3]] * 2
    assert (victim.classes, victim.gives) == (("cat", "dog", "owl"), "scores")


def test_errors_inside_an_answer(
    write: Callable[..., str], served: Served, images: Tensor, sleeps: Sleeps
) -> None:
    said: list[Any] = [
        {"labels": LABELS, "error": None},
        {"error": {"message": "wait", "code": 429}},
        {"error": {"message": "wait", "code": "LATER"}},
        {"error": {"message": "no picture", "code": "BAD"}},
        {"error": {"message": f"no rights for {KEY}", "code": 403}},
    ]
    server = served(lambda r: response(said[r.number]), count_images=lambda _: 1)
    answer = {"labels": "$.labels[*].name", "scores": "$.labels[*].p"}
    answer |= {"error": "$.error.message", "code": "$.error.code"}
    name = write(server.url, answer=answer, retry=["LATER"], headers={"x-key": KEY})
    victim = connect(name, Terms(concurrency=1), sleep=sleeps)
    victim(images[:1])
    consultation = victim.consult(images[:1], torch.arange(1))
    assert consultation.errors == {0: "the victim refused the image (BAD: no picture)"}
    assert consultation.lost.tolist() == [2] and totals(victim) == (4, 1, 1, 2)
    with pytest.raises(VictimUnavailable, match=r"refuses to answer .403: no rights for \*\*\*"):
        victim(images[:1])


def test_statuses(
    write: Callable[..., str], served: Served, images: Tensor, sleeps: Sleeps
) -> None:
    statuses = [409, 201]
    server = served(
        lambda r: response({"labels": LABELS}, statuses[r.number]), count_images=lambda _: 1
    )
    victim = connect(write(server.url, success=[201], retry=[409]), sleep=sleeps)
    victim(images[:1])
    assert totals(victim) == (2, 1, 0, 1)


def test_hints_give_way_to_the_user(write: Callable[..., str]) -> None:
    name = write(rate="10/s", price="1.5/1000", size=96)
    victim = connect(name)
    assert victim.terms.rate == Pace(10, 1.0) and victim.terms.price == 0.0015
    assert victim.framing.crop == (96, 96) and victim.shape is None
    assert connect(name, Terms(rate=Pace(1, 1.0))).terms.rate == Pace(1, 1.0)


def test_in_a_pickle(write: Callable[..., str], served: Served, images: Tensor) -> None:
    victim = connect(write(served_labels(served).url))
    assert pickle.loads(pickle.dumps(victim))(images[:1]).tolist() == [[90.0, 5.0]]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"heders": {}}, "has no key 'heders': did you mean 'headers'"),
    "unknown inner key": ({"body": {"jsn": 1}}, "has no key 'body.jsn': did you mean 'json'"),
    "no scores": ({"answer": {"labels": "$.x"}}, "lacks answer.scores"),
    "no path": ({"answer": {"scores": "$.a["}}, "answer.scores is '.*': it is no JSONPath"),
    "two bodies": ({"body": {"json": 1, "raw": "png"}}, "give one of json, multipart and raw"),
    "no image": ({"body": {"json": {"a": 1}}}, r"holds no image: write {image.base64}"),
    "unknown image": ({"body": {"json": "{image.jpeg}"}}, r"has no {image.jpeg}: known are"),
    "batch for one": ({"body": {"json": "{images.base64}"}}, r"write {image.base64}"),
    "one in a batch": ({"images": "batch 4"}, r"below \$each, or write {images.base64}"),
    "batch without each": (
        {"images": "batch 4", "body": {"json": "{images.base64}"}},
        "needs answer.each",
    ),
    "count": ({"images": "many"}, "write one, or batch and a number"),
    "method": ({"method": "GET"}, "method is 'GET'"),
    "missing": ({"missing": "low"}, "write floor, 0 or another number"),
    "rate": ({"rate": "fast"}, "rate 'fast' is none"),
    "price": ({"price": "free"}, "price 'free' is none"),
    "aliases": ({"aliases": {"dog": 3}}, "write a list of names"),
    "password": ({"url": "http://me:secret@127.0.0.1/"}, "has a password"),
    "address": ({"url": "ftp://127.0.0.1/"}, "needs an address"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_one_line(kind: str, write: Callable[..., str]) -> None:
    values, told = WRONG[kind]
    with pytest.raises(InputError, match=told) as caught:
        connect(write(**values))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 300 and "secret@" not in text


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for text in ("a: &x 1\nb: *x", "- 1", "a: [", "!!python/object/apply:os.system [ls]"):
        path.write_text(text)
        with pytest.raises(BrusleError):
            opened(f"rest:{path}")
    with pytest.raises(BrusleError, match="cannot read the request template"):
        opened(f"rest:{tmp_path}/none.yaml")


def test_fingerprints_know_no_keys(write: Callable[..., str]) -> None:
    plain = opened(write()).fingerprint
    assert opened(write(headers={"x-key": KEY}, query={"a": "b"})).fingerprint == plain
    assert opened(write(divide=100)).fingerprint != plain
