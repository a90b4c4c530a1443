"""What other people's inference servers do, and that an attack does not notice that one is between.

They serve the same ONNX file that is the local victim, so rows must be the same image by image.
"""

import http.client
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from real_servers import LEVELS, MODEL, MOST, NAMES, serving
from tensors import Array, ask, in_binary, in_json, logits

import brusle
from brusle.evaluation.record import Row
from brusle.names import Name
from brusle.victims import OnnxVictim, export_onnx
from brusle.victims.remote.client import RemoteVictim
from brusle.victims.remote.kinds import KINDS

pytestmark = pytest.mark.remote


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("net")
    return export_onnx(brusle.load_victim("zoo:cifar10-resnet20"), folder / "resnet.onnx")


@pytest.fixture(scope="module")
def local(net: Path) -> OnnxVictim:
    return OnnxVictim(net, threads=1)


@pytest.fixture(scope="module")
def images() -> Array:
    """Some more than Triton takes at once."""
    return brusle.data.load("sample").images[: MOST + 2].numpy()


def _started(name: str) -> Any:
    @pytest.fixture(scope="module", name=name)
    def server(net: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        with serving(name, net, tmp_path_factory.mktemp(name)) as url:
            yield url

    return server


mlserver, kserve, triton = map(_started, NAMES)  # fixtures: addresses


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, name: str) -> str:
    """The address of each server in turn."""
    return str(request.getfixturevalue(name))


class TestWhatTheyAnswer:
    """Facts that the client relies on; a new version of a server may change them."""

    def test_floats_are_identical(
        self, url: str, local: OnnxVictim, images: Array, name: str
    ) -> None:
        """Not close: JSON has as many digits as a float32 needs."""
        expected = local(torch.from_numpy(images)).numpy()
        for some in (slice(0, 1), slice(0, MOST)):
            assert np.array_equal(logits(ask(url, in_json(images[some]))), expected[some])

    def test_8_bit_levels_are_identical_too(
        self, triton: str, local: OnnxVictim, images: Array
    ) -> None:
        levels = np.round(images[:MOST] * 255).astype(np.uint8).transpose(0, 2, 3, 1)
        expected = local(torch.from_numpy(images)).numpy()[:MOST]
        assert np.array_equal(logits(ask(triton, in_json(levels, "UINT8"), LEVELS)), expected)
        binary = in_binary(levels, "UINT8", parameters={"binary_data_output": True})
        assert np.array_equal(logits(ask(triton, binary, LEVELS)), expected)

    def test_metadata(self, url: str, name: str) -> None:
        """KServe says nothing about tensors."""
        metadata = httpx.get(f"{url}/v2/models/{MODEL}").json()
        tensors = [
            [(tensor["name"], tensor["datatype"], tensor["shape"]) for tensor in metadata[way]]
            for way in ("inputs", "outputs")
        ]
        if name == "kserve":
            assert tensors == [[], []]
        else:
            assert tensors == [
                [("images", "FP32", [-1, 3, 32, 32])],
                [("logits", "FP32", [-1, 10])],
            ]

    def test_the_batch_limit_is_in_tritons_configuration_only(self, url: str, name: str) -> None:
        answer = httpx.get(f"{url}/v2/models/{MODEL}/config")
        if name == "triton":
            assert answer.json()["max_batch_size"] == MOST
        else:
            assert answer.status_code == 404

    def test_one_image_too_many(self, url: str, images: Array, name: str) -> None:
        """A 400 from Triton, however it is sent; the others have no limit."""
        answer = ask(url, in_json(images[: MOST + 1]))
        if name == "triton":
            again = ask(url, in_binary(images[: MOST + 1]))
            assert answer.status_code == again.status_code == 400
            assert f"batch-size must be <= {MOST}" in answer.json()["error"]
            assert f"batch-size must be <= {MOST}" in again.json()["error"]
        else:
            assert logits(answer).shape == (MOST + 1, 10)

    def test_who_announces_binary_tensors(self, url: str, name: str) -> None:
        extensions = httpx.get(f"{url}/v2").json()["extensions"]
        assert ("binary_tensor_data" in extensions) == (name == "triton")

    @pytest.mark.parametrize("name", ["kserve", "triton"])
    def test_binary_tensors_work(
        self, url: str, local: OnnxVictim, images: Array, name: str
    ) -> None:
        """With KServe too, which does not announce them; its answer has no content type."""
        expected = local(torch.from_numpy(images)).numpy()[:MOST]
        plain = ask(url, in_binary(images[:MOST]))
        assert "Inference-Header-Content-Length" not in plain.headers  # answered in JSON
        both = {"parameters": {"binary_data_output": True}}
        binary = ask(url, in_binary(images[:MOST], **both))
        assert "Inference-Header-Content-Length" in binary.headers
        kind = None if name == "kserve" else "application/octet-stream"
        assert binary.headers.get("Content-Type") == kind
        assert np.array_equal(logits(plain), expected)
        assert np.array_equal(logits(binary), expected)

    def test_binary_tensors_are_an_error_of_mlserver(self, mlserver: str, images: Array) -> None:
        answer = ask(mlserver, in_binary(images[:MOST]))
        assert (answer.status_code, answer.text) == (500, "Internal Server Error")

    def test_mlserver_hangs_up_after_an_error_without_saying_so(
        self, mlserver: str, images: Array
    ) -> None:
        """So the next request on a pooled connection may find it closed."""
        url = httpx.URL(mlserver)
        connection = http.client.HTTPConnection(url.host, url.port or 80, timeout=10)
        request = in_binary(images[:1])
        connection.request("POST", f"/v2/models/{MODEL}/infer", request.body, request.headers)
        stream = connection.sock
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 500 and answer.headers["Connection"] is None
        with suppress(ConnectionResetError):
            assert stream.recv(1) == b""
        connection.close()

    def test_a_tensor_of_the_wrong_size(self, url: str, images: Array, name: str) -> None:
        """About the image, and yet a 500 from those who let the runtime find out."""
        answer = ask(url, in_json(images[:1, :, :16, :16]))
        assert answer.status_code == (400 if name == "triton" else 500)
        if name == "mlserver":
            assert answer.text == "Internal Server Error"
        else:
            assert "images" in answer.json()["error"]

    def test_a_tensor_with_too_few_numbers(self, url: str, images: Array, name: str) -> None:
        answer = ask(url, in_json(images[:1, :, :16], shape=[1, 3, 32, 32]))
        assert answer.status_code == 500
        if name == "mlserver":
            assert answer.text == "Internal Server Error"
        else:
            assert "shape" in answer.json()["error"].lower()

    def test_a_tensor_of_another_name(self, url: str, images: Array, name: str) -> None:
        """Only Triton looks at names."""
        answer = ask(url, in_json(images[:1], name="nonsense"))
        if name == "triton":
            assert answer.status_code == 400
            assert "unexpected inference input 'nonsense'" in answer.json()["error"]
        else:
            assert logits(answer).shape == (1, 10)

    def test_an_output_of_another_name(self, kserve: str, images: Array) -> None:
        """KServe's outputs cannot be asked for by name: its metadata does not say what they are."""
        outputs = [{"name": "logits", "parameters": {"binary_data": True}}]
        answer = ask(kserve, in_binary(images[:1], outputs=outputs))
        assert answer.status_code == 400
        assert "Unexpected inference output 'logits'" in answer.json()["error"]

    def test_a_model_that_is_not_there(self, url: str, images: Array, name: str) -> None:
        asked = ask(url, in_json(images[:1]), "nothing")
        looked = httpx.get(f"{url}/v2/models/nothing")
        for answer in (asked, looked):
            assert answer.status_code == 404
            assert "nothing" in answer.json()["error"]

    def test_v1(self, kserve: str, local: OnnxVictim, images: Array) -> None:
        """TensorFlow Serving's shape, but no metadata, and a 500 for an image of the wrong size."""
        url = f"{kserve}/v1/models/{MODEL}"
        answer = httpx.post(f"{url}:predict", json={"instances": images.tolist()})
        expected = local(torch.from_numpy(images)).numpy()
        assert np.array_equal(np.array(answer.json()["predictions"], np.float32), expected)
        assert httpx.get(url).json() == {"name": MODEL, "ready": True}
        assert httpx.get(f"{url}/metadata").status_code == 404
        small = httpx.post(f"{url}:predict", json={"instances": images[:, :, :16, :16].tolist()})
        assert small.status_code == 500 and "images" in small.json()["error"]


def connect(text: str) -> RemoteVictim:
    name = Name.parse(text)
    victim: RemoteVictim = KINDS[name.kind].open(name, torch.device("cpu")).connect()
    return victim


def rows(victim: OnnxVictim | RemoteVictim) -> list[Row]:
    """What a short attack stores of six images, but for its time and for tries of the format."""
    attack = brusle.attacks.BruSLe(pixels=5, queries=60)
    run = brusle.evaluate(victim, "sample", attack, "untargeted", limit=6)
    (setting,) = run.settings
    return [replace(row, seconds=0, lost=0) for row in run.stored(setting)]


@pytest.fixture(scope="module")
def expected(local: OnnxVictim) -> list[Row]:
    expected = rows(local)
    assert {row.status for row in expected} == {"success", "failed"}
    return expected


class TestAttacks:
    """An attack on a server stores what the same attack on the local victim stores."""

    def test_open_inference_protocol(self, url: str, name: str, expected: list[Row]) -> None:
        size = "?size=32" if name == "kserve" else ""  # its metadata do not say
        victim = connect(f"oip:{url}/{MODEL}{size}")
        assert rows(victim) == expected
        # one image finds out that MLServer reads no raw bytes; with the others nothing is lost
        assert victim.books.totals.lost == (name == "mlserver")

    def test_in_json(self, triton: str, expected: list[Row]) -> None:
        assert rows(connect(f"oip:{triton}/{MODEL}?binary=off")) == expected

    def test_a_batch_limit_is_learned_from_the_refusal(
        self, triton: str, expected: list[Row]
    ) -> None:
        assert rows(connect(f"oip:{triton}/{MODEL}?most={MOST + 2}")) == expected

    def test_8_bit_levels(self, triton: str, expected: list[Row]) -> None:
        assert rows(connect(f"oip:{triton}/{LEVELS}")) == expected

    def test_tensorflow_serving(self, kserve: str, expected: list[Row]) -> None:
        assert rows(connect(f"tfserving:{kserve}/{MODEL}?layout=nchw&size=32")) == expected
