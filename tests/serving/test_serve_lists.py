"""Services that answer with lists of labels: Google Cloud Vision, Rekognition, plain JSON."""

import base64
import io
import json

import httpx
import pytest
import torch
from PIL import Image
from served import base64_png, png

from brusle import defences
from brusle.serving import Server
from brusle.victims import wrap

ANNOTATE = "/v1/images:annotate"
DETECT = {"X-Amz-Target": "RekognitionService.DetectLabels"}
NO_IMAGE = base64.b64encode(b"no image at all").decode()
FEATURE = {"type": "LABEL_DETECTION"}


@pytest.fixture(scope="module")
def listed(victim):
    return defences.make("confidences:0.01,0.5,10", victim)


@pytest.fixture(scope="module")
def google(victim):
    with Server(victim, "google-vision") as server, httpx.Client(base_url=server.url) as client:
        yield client


@pytest.fixture(scope="module")
def rekognition(victim):
    with Server(victim, "rekognition") as server, httpx.Client(base_url=server.url) as client:
        yield client


@pytest.fixture(scope="module")
def plain(victim):
    with Server(victim, "json", most=3) as server, httpx.Client(base_url=server.url) as client:
        yield client


def expected(listed, images, most=10):
    """Names and scores of each image, the best first, by the defence that does the same."""
    return [
        [(listed.classes[at], row[at]) for at in sorted(range(10), key=lambda at: -row[at])
         if row[at] > 0][:most]
        for row in listed(images).tolist()
    ]  # fmt: skip


def annotate(client, *contents, features=(FEATURE,)):
    asked = [{"image": {"content": one}, "features": list(features)} for one in contents]
    return client.post(ANNOTATE, json={"requests": asked})


def annotations(response):
    return [(label["description"], label["score"]) for label in response["labelAnnotations"]]


def test_google_lists_what_the_defence_lists(google, listed, images) -> None:
    answer = annotate(google, *map(base64_png, images)).json()["responses"]
    assert [annotations(one) for one in answer] == expected(listed, images)
    assert len({len(one["labelAnnotations"]) for one in answer}) > 1  # of varying length
    for label in answer[0]["labelAnnotations"]:
        assert label["mid"].startswith("/m/") and label["topicality"] == label["score"]
    assert sum(label["score"] for label in answer[0]["labelAnnotations"]) > 1.5


def test_google_honours_the_number_of_results(google, listed, images) -> None:
    answer = annotate(google, base64_png(images[0]), features=[FEATURE | {"maxResults": 2}])
    assert annotations(answer.json()["responses"][0]) == expected(listed, images[:1], 2)[0]
    for unsaid in (FEATURE | {"maxResults": 0}, {"type": 4}):
        answer = annotate(google, base64_png(images[0]), features=[unsaid])
        assert annotations(answer.json()["responses"][0]) == expected(listed, images[:1])[0]
    answer = annotate(google, base64_png(images[0]), features=[{"type": "FACE_DETECTION"}])
    assert answer.json() == {"responses": [{}]}


def test_google_has_the_error_of_an_image_inside_of_the_answer(google, listed, images) -> None:
    answer = annotate(google, NO_IMAGE, base64_png(images[0]), "%", "").json()["responses"]
    bad = {"error": {"code": 3, "message": "Bad image data."}}
    assert [answer[0], *answer[2:]] == [bad] * 3
    assert annotations(answer[1]) == expected(listed, images[:1])[0]
    assert annotate(google, NO_IMAGE).json() == {"responses": [bad]}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"requests": []}', b'{"requests": [1]}', b'{"requests": [{}]}']
)
def test_google_refuses_what_is_no_request(google, body) -> None:
    answer = google.post(ANNOTATE, content=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["status"] == "INVALID_ARGUMENT" and error["message"]
    assert error["code"] == 400


def test_google_takes_sixteen_images(google, images) -> None:
    answer = annotate(google, *[base64_png(images[0])] * 17)
    assert answer.status_code == 400 and "at most 16" in answer.json()["error"]["message"]
    assert google.get("/v1/nowhere").json()["error"]["status"] == "NOT_FOUND"


def test_two_classes_of_one_name_have_two_ids() -> None:
    twins = wrap(
        lambda x: torch.tensor([[1.0, 1.0, 0.0]]).repeat(len(x), 1),
        output="logits",
        classes=("crane", "crane", "owl"),
        shape=(3, 4, 4),
    )
    with Server(twins, "google-vision") as server:
        answer = annotate(httpx.Client(base_url=server.url), base64_png(torch.zeros(3, 4, 4)))
    labels = answer.json()["responses"][0]["labelAnnotations"]
    assert [label["description"] for label in labels] == ["crane", "crane", "owl"]
    assert len({label["mid"] for label in labels}) == 3


def test_a_photograph_of_another_size_is_framed(google, victim) -> None:
    photograph = io.BytesIO()
    Image.radial_gradient("L").convert("RGB").resize((90, 60)).save(photograph, "JPEG")
    content = base64.b64encode(photograph.getvalue()).decode()
    assert annotations(annotate(google, content).json()["responses"][0])


def detect(client, **body):
    return client.post("/", content=json.dumps(body), headers=DETECT)


def test_rekognition_counts_to_a_hundred(rekognition, listed, images) -> None:
    answer = detect(rekognition, Image={"Bytes": base64_png(images[0])})
    found = [(label["Name"], label["Confidence"]) for label in answer.json()["Labels"]]
    wanted = [(name, 100 * score) for name, score in expected(listed, images[:1])[0]]
    assert found == [one for one in wanted if one[1] >= 55]
    assert len(answer.json()["LabelModelVersion"]) == 16
    assert answer.headers["content-type"] == "application/x-amz-json-1.1"


def test_rekognition_honours_its_limits(rekognition, images) -> None:
    image = {"Bytes": base64_png(images[0])}
    assert len(detect(rekognition, Image=image, MaxLabels=2).json()["Labels"]) == 2
    few = detect(rekognition, Image=image, MinConfidence=95).json()["Labels"]
    assert few and all(label["Confidence"] >= 95 for label in few)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "InvalidParameterException"),
        ({"Image": {"Bytes": 3}}, "InvalidParameterException"),
        ({"Image": {"Bytes": NO_IMAGE}}, "InvalidImageFormatException"),
        ({"Image": {"Bytes": "A" * 7_100_000}}, "ImageTooLargeException"),
        ({"Image": {"Bytes": NO_IMAGE}, "MinConfidence": 200}, "InvalidParameterException"),
        ({"Image": {"Bytes": NO_IMAGE}, "MaxLabels": -1}, "InvalidParameterException"),
    ],
)
def test_rekognition_names_its_errors(rekognition, body, kind) -> None:
    answer = detect(rekognition, **body)
    assert answer.status_code == 400
    assert answer.json()["__type"] == kind and answer.json()["message"]


def test_rekognition_knows_one_operation(rekognition) -> None:
    assert rekognition.post("/", json={}).json()["__type"] == "UnknownOperationException"


def labels_of(answer):
    return [(one["label"], one["score"]) for one in answer["labels"]]


def test_plain_json_takes_one_image_or_some(plain, listed, images) -> None:
    one = plain.post("/classify", json={"image": base64_png(images[0])}).json()
    assert labels_of(one) == expected(listed, images[:1])[0] and len(one["version"]) == 16
    some = plain.post("/classify", json={"images": [base64_png(one) for one in images[:3]]})
    assert [labels_of(one) for one in some.json()["results"]] == expected(listed, images[:3])


def test_plain_json_takes_an_uploaded_file(plain, listed, images) -> None:
    answer = plain.post("/classify", files={"image": ("cat.png", png(images[0]), "image/png")})
    assert labels_of(answer.json()) == expected(listed, images[:1])[0]
    for files in ({"other": b"x"}, {"image": b"no image"}, {"image": b""}):
        assert plain.post("/classify", files=files).status_code == 400
    broken = {"Content-Type": "multipart/form-data"}
    assert plain.post("/classify", content=b"x", headers=broken).status_code == 400


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"image": "!"}', b'{"image": null}', b'{"images": "x"}', b'{"images": []}',
     json.dumps({"images": [NO_IMAGE] * 4}), json.dumps({"image": NO_IMAGE})],
)  # fmt: skip
def test_plain_json_refuses_what_is_no_image(plain, body) -> None:
    answer = plain.post("/classify", content=body)
    assert answer.status_code == 400 and answer.json()["error"]


def test_hugging_face_shape(plain, victim, images) -> None:
    url, asked = "/models/cifar10-resnet20", {"inputs": base64_png(images[0])}
    logits = victim(images[:1])[0].double()
    for function, scores in (
        ("softmax", logits.softmax(0)),
        ("sigmoid", logits.sigmoid()),
        ("none", logits),
    ):
        parameters = {"top_k": 3, "function_to_apply": function}
        answer = plain.post(url, json=asked | {"parameters": parameters}).json()
        assert [one["score"] for one in answer] == scores.topk(3).values.tolist()
        assert answer[0]["label"] == victim.classes[int(scores.argmax())]
    assert len(plain.post(url, json=asked).json()) == 5
    for parameters in ({"top_k": "x"}, {"function_to_apply": "x"}, [1]):
        assert plain.post(url, json=asked | {"parameters": parameters}).status_code == 400
    assert plain.post("/models/other", json=asked).status_code == 404


def test_a_victim_of_labels_lists_one_with_a_score_of_1(victim, images) -> None:
    for spec in ("label", "topk:1"):
        defended = defences.make(spec, victim)
        with Server(defended, "json", top=3) as server:
            asked = {"image": base64_png(images[0])}
            (label,) = httpx.post(f"{server.url}/classify", json=asked).json()["labels"]
        assert label["label"] == "airplane"
        assert (label["score"] == 1) == (spec == "label")


def test_classes_without_names_are_numbered() -> None:
    bare = wrap(lambda x: x.flatten(1)[:, :3], output="logits", shape=(3, 4, 4))
    image = torch.zeros(3, 4, 4)
    image[0, 0, 1] = 1
    with Server(bare, "json", top=1) as server:
        answer = httpx.post(f"{server.url}/classify", json={"image": base64_png(image)}).json()
    assert [one["label"] for one in answer["labels"]] == ["class 1"]
    assert answer["version"] == "1"


def test_levels_reach_the_victim_as_evaluations_have_them() -> None:
    seen = []

    def scores(images):
        seen.append(images)
        return images.flatten(1)[:, :2]

    levels = torch.arange(256).reshape(1, 16, 16).repeat(3, 1, 1).byte()
    model = wrap(scores, output="logits", shape=(3, 16, 16))
    with Server(model, "json") as server:
        file = png(levels.float() / 255)
        httpx.post(f"{server.url}/classify", files={"image": ("x.png", file)})
    assert torch.equal(seen[0][0], levels.float() / 255)


def test_images_of_several_sizes_are_answered_where_any_size_is_taken() -> None:
    bare = wrap(lambda x: x.flatten(2).mean(2), output="logits")
    images = [torch.full((3, 4, 4), 0.2), torch.full((3, 6, 5), 0.4)]
    with Server(bare, "json") as server:
        asked = {"images": [base64_png(image) for image in images]}
        answer = httpx.post(f"{server.url}/classify", json=asked).json()
    assert len(answer["results"]) == 2
