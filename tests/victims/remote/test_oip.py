import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from asking import Sleeps, connect, opened, totals
from hostile_services import METADATA, Hostile, Request, response, scored, scores_of
from torch import Tensor

from brusle.errors import InputError, VictimUnavailable
from brusle.terms import Terms

Served = Callable[..., Hostile]
KSERVE = response({"name": "m", "inputs": [], "outputs": []})


def is_binary(request: Request) -> bool:
    return "inference-header-content-length" in request.headers


def metadata(shape: list[int], kind: str = "FP32") -> bytes:
    tensor = {"name": "pixels", "datatype": kind, "shape": shape}
    return response(METADATA | {"inputs": [tensor]})


def expected(images: Tensor) -> Tensor:
    return torch.from_numpy(scores_of(images.numpy()))


def test_binary_where_it_works(served: Served, images: Tensor) -> None:
    server = served(metadata=KSERVE)  # which announces nothing
    victim = connect(f"oip:{server.url}/m")
    assert torch.allclose(victim(images), expected(images))
    assert all(map(is_binary, server.calls))
    assert totals(victim) == (40, 40, 0, 0)


@pytest.mark.parametrize("status", [400, 415, 422, 500, 501, 200])
def test_json_where_it_does_not(status: int, served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        return response("no such thing", status) if is_binary(request) else scored(request)

    server = served(answer)
    victim = connect(f"oip:{server.url}/m?most=8")
    assert torch.allclose(victim(images), expected(images))
    assert [is_binary(call) for call in server.calls[:2]] == [True, False]
    assert not any(map(is_binary, server.calls[1:]))  # one probe, though five calls at once
    assert totals(victim) == (41, 40, 0, 1) and server.images == 41


def test_explain_finds_the_format(served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        return response("no such thing", 500) if is_binary(request) else scored(request)

    server = served(answer)
    victim = connect(f"oip:{server.url}/m")
    assert not victim.explain(images[0]).error
    victim(images)
    assert sum(map(is_binary, server.calls)) == 1
    assert totals(victim) == (42, 41, 0, 1) and server.images == 42


def test_a_busy_server_says_nothing_of_formats(
    served: Served, images: Tensor, sleeps: Sleeps
) -> None:
    def answer(request: Request) -> bytes:
        return response("later", 503) if request.number < 2 else scored(request)

    server = served(answer)
    victim = connect(f"oip:{server.url}/m", sleep=sleeps)
    assert torch.allclose(victim(images), expected(images))
    assert all(map(is_binary, server.calls))


def test_a_bad_first_image_says_nothing_of_formats(served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        dark = request.pixels().reshape(-1, 48).max(1) < 0.1
        return response({"error": "dark"}, 400) if dark.any() else scored(request)

    images[0] = 0
    server = served(answer)
    victim = connect(f"oip:{server.url}/m", Terms(concurrency=1))
    consultation = victim.consult(images, torch.arange(40))
    assert list(consultation.errors) == [0]
    assert is_binary(server.calls[-1])
    assert totals(victim) == (41, 39, 1, 1)


def test_binary_answers(served: Served, images: Tensor) -> None:
    def answer(request: Request) -> bytes:
        values = scores_of(request.pixels())
        other = {
            "name": "other",
            "datatype": "INT64",
            "shape": [1],
            "parameters": {"binary_data_size": 8},
        }
        tensor = {
            "name": "scores",
            "datatype": "FP64",
            "shape": list(values.shape),
            "parameters": {"binary_data_size": values.nbytes},
        }
        head = json.dumps({"outputs": [other, tensor]}).encode()
        raw = np.array([7]).tobytes() + values.tobytes()
        return response(head + raw, Inference_Header_Content_Length=str(len(head)))

    victim = connect(f"oip:{served(answer).url}/m?output=scores")
    assert torch.allclose(victim(images), expected(images))


@pytest.mark.parametrize(
    ("shape", "kind", "sent", "known"),
    [
        ([-1, 3, 4, 4], "FP32", [40, 3, 4, 4], (3, 4, 4)),
        ([-1, 4, 4, 3], "UINT8", [40, 4, 4, 3], (3, 4, 4)),
        ([-1, 3, -1, -1], "FP32", [40, 3, 4, 4], None),
        ([3, 4, 4], "FP32", [3, 4, 4], (3, 4, 4)),
        ([1, 3, 4, 4], "UINT8", [1, 3, 4, 4], (3, 4, 4)),
    ],
)
def test_metadata_is_believed(
    shape: list[int],
    kind: str,
    sent: list[int],
    known: tuple[int, ...] | None,
    served: Served,
    images: Tensor,
) -> None:
    server = served(lambda _: b"", metadata=metadata(shape, kind))
    victim = connect(f"oip:{server.url}/m?binary=off" + ("&most=40" if sent[0] == 40 else ""))
    call = victim.service.request(images.numpy()[: sent[0] if len(sent) == 4 else 1])
    tensor = json.loads(call.content)["inputs"][0]
    assert (tensor["name"], tensor["datatype"], tensor["shape"]) == ("pixels", kind, sent)
    assert victim.shape == known
    if kind == "UINT8":
        assert max(tensor["data"]) > 1 and all(isinstance(v, int) for v in tensor["data"])


def test_options_go_before_metadata(served: Served) -> None:
    server = served(metadata=metadata([-1, 3, 4, 4]))
    name = f"oip:{server.url}/prefix/m?input=x&layout=nhwc&type=uint8&scores=probabilities&size=9"
    victim = connect(name + "&version=3")
    call = victim.service.request(np.zeros((1, 3, 4, 4), np.float32))
    assert call.url == f"{server.url}/prefix/v2/models/m/versions/3/infer"
    head = json.loads(call.content[: int(call.headers["inference-header-content-length"])])
    assert head["inputs"][0]["name"] == "x" and head["inputs"][0]["shape"] == [1, 4, 4, 3]
    assert (victim.output, victim.shape) == ("probabilities", (3, 9, 9))


def test_a_model_that_is_not_there(served: Served) -> None:
    server = served(metadata=response({"error": "none"}, 404))
    with pytest.raises(VictimUnavailable, match="there is no such model"):
        connect(f"oip:{server.url}/m")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("oip:localhost:8000/m", "needs an address"),
        ("oip:http://127.0.0.1:8000", "names no model"),
        ("oip:http://me:pass@127.0.0.1/m", "has a password"),
        ("oip:http://127.0.0.1/m?layot=nchw", "did you mean 'layout'"),
        ("oip:http://127.0.0.1/m?layout=hwc", "choose from auto, nchw, nhwc"),
        ("oip:http://127.0.0.1/m?most=0", "write a number from 1"),
    ],
)
def test_names_that_are_none(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        opened(name)
    assert "pass@" not in str(caught.value)


def test_fingerprints() -> None:
    prints = [
        opened(name).fingerprint
        for name in (
            "oip:http://127.0.0.1/m",
            "oip:http://127.0.0.1/n",
            "oip:http://127.0.0.1/m?layout=nhwc",
            "oip:http://127.0.0.1/m?scores=probabilities",
        )
    ]
    assert len(set(prints)) == 4
    assert opened("oip:http://127.0.0.1/m?most=3").fingerprint == prints[0]  # the same answers
