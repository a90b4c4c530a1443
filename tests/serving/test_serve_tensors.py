"""Services that take tensors: the Open Inference Protocol and TensorFlow Serving."""

import json

import httpx
import numpy as np
import pytest
import torch

from brusle import defences
from brusle.serving import Server
from brusle.victims import wrap

INFER = "/v2/models/cifar10-resnet20/infer"
PREDICT = "/v1/models/cifar10-resnet20:predict"


@pytest.fixture(scope="module")
def oip(victim):
    with Server(victim, "oip", most=8) as server, httpx.Client(base_url=server.url) as client:
        yield client


@pytest.fixture(scope="module")
def tfserving(victim):
    with Server(victim, "tfserving") as server, httpx.Client(base_url=server.url) as client:
        yield client


def tensor(numbers, datatype="FP32", **more):
    numbers = np.asarray(numbers)
    return {"name": "images", "shape": list(numbers.shape), "datatype": datatype, **more}


def scores_of(answer):
    assert answer.status_code == 200, answer.text
    (output,) = answer.json()["outputs"]
    assert (output["name"], output["datatype"]) == ("logits", "FP32")
    return torch.tensor(output["data"], dtype=torch.float32).reshape(output["shape"])


def ask_binary(client, numbers, datatype="FP32", **more):
    content = np.ascontiguousarray(numbers).tobytes()
    given = tensor(numbers, datatype, parameters={"binary_data_size": len(content)})
    header = json.dumps({"inputs": [given], **more}).encode()
    length = {"Inference-Header-Content-Length": str(len(header))}
    return client.post(INFER, content=header + content, headers=length)


def test_metadata_say_what_the_model_takes(oip) -> None:
    assert oip.get("/v2/health/ready").status_code == oip.get("/v2/health/live").status_code == 200
    about = oip.get("/v2/models/cifar10-resnet20").json()
    assert about["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 32, 32]}]
    assert about["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}]
    assert about == oip.get("/v2/models/cifar10-resnet20/versions/1").json()
    assert oip.get("/v2/models/cifar10-resnet20/config").json()["max_batch_size"] == 8
    assert oip.get("/v2/models/cifar10-resnet20/ready").json()["ready"]


@pytest.mark.parametrize("nested", [True, False])
def test_json_tensors_are_answered_to_the_last_digit(oip, victim, images, nested) -> None:
    data = images.tolist() if nested else images.flatten().tolist()
    answer = oip.post(INFER, json={"id": "7", "inputs": [tensor(images, data=data)]})
    assert answer.json()["id"] == "7" and answer.json()["model_name"] == "cifar10-resnet20"
    assert torch.equal(scores_of(answer), victim(images))


def test_binary_tensors_are_answered_to_the_last_bit(oip, victim, images) -> None:
    answer = ask_binary(oip, images.numpy(), parameters={"binary_data_output": True})
    end = int(answer.headers["Inference-Header-Content-Length"])
    (output,) = json.loads(answer.content[:end])["outputs"]
    content = answer.content[end:]
    assert output["shape"] == [4, 10] and output["parameters"] == {"binary_data_size": len(content)}
    scores = np.frombuffer(content, "<f4").reshape(4, 10)
    assert np.array_equal(scores, victim(images).numpy())


def test_binary_output_may_be_asked_for_by_name(oip, images) -> None:
    wanted = [{"name": "logits", "parameters": {"binary_data": True}}]
    assert "Inference-Header-Content-Length" in ask_binary(oip, images, outputs=wanted).headers
    assert scores_of(ask_binary(oip, images)).shape == (4, 10)


def test_levels_and_channels_last_are_the_same_images(oip, victim, images) -> None:
    levels = (images * 255).round().byte().numpy()
    for sent in (levels, levels.transpose(0, 2, 3, 1)):
        assert torch.equal(scores_of(ask_binary(oip, sent, "UINT8")), victim(images))
        data = sent.ravel().tolist()
        answer = oip.post(INFER, json={"inputs": [tensor(sent, "UINT8", data=data)]})
        assert torch.equal(scores_of(answer), victim(images))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "no JSON object"),
        (b"{}", "takes one input"),
        (b'{"inputs": [{"shape": 3}]}', "no list of whole numbers"),
        (b'{"inputs": [{"shape": [1], "datatype": "BYTES"}]}', "of type 'BYTES'"),
        (b'{"inputs": [{"shape": [1, 3], "datatype": "FP32", "data": [1]}]}', "do not fill"),
        (b'{"inputs": [{"shape": [1], "datatype": "FP32", "data": [1]}]}', "4 dimensions"),
        (b'{"inputs": [{"shape": [2], "datatype": "UINT8", "data": [1, 256]}]}', "do not fill"),
        (b'{"inputs": [{"shape": [1, 3, 2, 1], "datatype": "FP32", "data": [1,2,3,4,5,6]}]}',
         "images are of shape"),
    ],
)  # fmt: skip
def test_a_bad_tensor_is_a_400(oip, body, message) -> None:
    answer = oip.post(INFER, content=body)
    assert answer.status_code == 400 and message in answer.json()["error"]


def test_more_is_refused_in_words(oip, images) -> None:
    many = images.repeat(3, 1, 1, 1)[:9]
    assert "at most 8 images, not 9" in ask_binary(oip, many).json()["error"]
    numbers = images.clone()
    numbers[1, 0, 0, 0] = torch.nan
    assert "no finite number" in ask_binary(oip, numbers).json()["error"]
    wanted = [{"name": "scores"}]
    assert "one output" in ask_binary(oip, images, outputs=wanted).json()["error"]
    for length in ("x", "-1", "999999999"):
        header = {"Inference-Header-Content-Length": length}
        assert oip.post(INFER, content=b"{}", headers=header).status_code == 400
    for path in ("/v2/models/other", "/v2/models/cifar10-resnet20/versions/2", "/nowhere"):
        assert oip.get(path).status_code == 404 and oip.get(path).json()["error"]
    other = oip.post("/v2/models/other/infer", json={})
    assert other.status_code == 404 and "cifar10-resnet20" in other.json()["error"]
    assert oip.get(INFER).status_code == 405


def test_a_huge_body_is_a_413_and_the_next_call_goes_on(oip, victim, images) -> None:
    huge = oip.post(INFER, content=bytes(65 * 2**20))
    assert huge.status_code == 413 and "above 67108864 bytes" in huge.json()["error"]

    def parts():
        for _ in range(65):
            yield bytes(2**20)

    assert oip.post(INFER, content=parts()).status_code == 413
    assert torch.equal(scores_of(ask_binary(oip, images)), victim(images))


@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 3, 1)])
def test_instances_are_predicted(tfserving, victim, images, layout) -> None:
    answer = tfserving.post(PREDICT, json={"instances": images.permute(layout).tolist()})
    scores = torch.tensor(answer.json()["predictions"], dtype=torch.float32)
    assert torch.equal(scores, victim(images))


def test_status_and_metadata_of_tensorflow_serving(tfserving) -> None:
    (state,) = tfserving.get("/v1/models/cifar10-resnet20").json()["model_version_status"]
    assert state["state"] == "AVAILABLE"
    about = tfserving.get("/v1/models/cifar10-resnet20/metadata").json()["metadata"]
    taken = about["signature_def"]["signature_def"]["serving_default"]["inputs"]["images"]
    assert [side["size"] for side in taken["tensor_shape"]["dim"]] == ["-1", "3", "32", "32"]
    assert tfserving.get("/v1/models/other").status_code == 404
    assert tfserving.post("/v1/models/other:predict", json={}).status_code == 404


@pytest.mark.parametrize(
    "instances", [None, [], [[1, 2], [3]], ["x"], [[[[1e400]]]], [{"b64": ""}]]
)
def test_bad_instances_are_a_400(tfserving, instances) -> None:
    answer = tfserving.post(PREDICT, content=json.dumps({"instances": instances}))
    assert answer.status_code == 400 and answer.json()["error"]


def test_a_victim_of_any_size_takes_any(images) -> None:
    bare = wrap(lambda x: x.flatten(2).mean(2), output="logits", name="my model!")
    with Server(bare, "oip") as server:
        url = f"{server.url}/v2/models/my-model"
        assert server.name == f"oip:{server.url}/my-model"
        about = httpx.get(url).json()
        assert about["inputs"][0]["shape"] == [-1] * 4 and about["outputs"][0]["shape"] == [-1, -1]
        for sent in (images[:, :, :5], images[:, :, :5].permute(0, 2, 3, 1)):
            body = {"inputs": [tensor(sent, data=sent.tolist())]}
            assert torch.equal(
                scores_of(httpx.post(f"{url}/infer", json=body)), bare(images[:, :, :5])
            )


def test_the_noise_of_a_randomised_victim_follows_seed_and_call(victim, images) -> None:
    noisy = defences.make("rnd:0.05", victim)

    def answers(seed: int) -> list[list[list[float]]]:
        with Server(noisy, "tfserving", seed=seed) as server:
            url, body = server.url + PREDICT, {"instances": images[:2].tolist()}
            return [httpx.post(url, json=body).json()["predictions"] for _ in range(2)]

    first = answers(1)
    assert first == answers(1) and first[0] != first[1] and first != answers(2)


def test_a_model_that_fails_is_a_500_and_one_in_trouble_a_503(images) -> None:
    def broken(x):
        raise ValueError("no weights")

    def away(x):
        raise ConnectionResetError("gone")

    def foolish(x):
        return torch.full((len(x), 3), torch.nan)

    for function, status, message in (
        (broken, 500, "ValueError: no weights"),
        (away, 503, "gone"),
        (foolish, 500, "no finite numbers"),
    ):
        with Server(wrap(function, output="logits", name="f"), "tfserving") as server:
            url = f"{server.url}/v1/models/f:predict"
            answer = httpx.post(url, json={"instances": images[:2].tolist()})
            assert answer.status_code == status and message in answer.json()["error"]
            assert server.books.as_dict()["failed"] == {str(status): 2}


def test_a_tensor_gives_absent_labels_a_score_of_0(victim, images) -> None:
    listed = defences.make("confidences:0.01,0.5,3", victim)
    with Server(listed, "tfserving") as server:
        assert server.name.endswith("?scores=confidences&size=32,32")
        answer = httpx.post(server.url + PREDICT, json={"instances": images.tolist()})
    expected = listed(images).clamp_min(0).float()
    assert torch.equal(torch.tensor(answer.json()["predictions"]), expected)
