"""Formats against `brusle.serving.Server`, which imitates the services."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from asking import Sleeps, connect, more, opened, totals
from hostile_services import Hostile, Request, response
from torch import Tensor

import brusle
from brusle.errors import InputError, VictimUnavailable
from brusle.serving import Server
from brusle.terms import Terms

Served = Callable[..., Hostile]
ZOO = "zoo:cifar10-resnet20"
KEY = "AKIAverysecretkey"


@pytest.fixture(scope="module")
def photos() -> Tensor:
    return torch.as_tensor(brusle.data.load("sample").images[:12])


@pytest.fixture(scope="module")
def wanted(photos: Tensor) -> Tensor:
    return brusle.load_victim(ZOO, "cpu")(photos).double()


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "GOOGLE_API_KEY GOOGLE_ACCESS_TOKEN HF_TOKEN AWS_ACCESS_KEY_ID AWS_PROFILE AWS_REGION"
    for name in names.split():
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("format", ["oip", "tfserving"])
@pytest.mark.parametrize("faults", [{}, {"fail": 0.3, "drop": 0.1, "seed": 5}])
def test_same_scores_as_the_model(
    format: str, faults: dict[str, float], photos: Tensor, wanted: Tensor, sleeps: Sleeps
) -> None:
    with Server(ZOO, format, **faults) as server:
        terms = Terms(retries=50, patience=1e6)
        victim = connect(more(server.name, most=2), terms, sleep=sleeps)
        scores = victim(photos)
        books = server.books.as_dict()
    assert (scores - wanted).abs().max() < 1e-5
    assert victim.shape == (3, 32, 32)
    sent, answered, refused, lost = totals(victim)
    assert sent == books["received"] == answered + refused + lost and answered == 12


def test_nhwc_and_levels(photos: Tensor, wanted: Tensor) -> None:
    with Server(ZOO, "oip") as server:
        victim = connect(more(server.name, layout="nhwc", type="uint8"))
        assert (victim(photos) - wanted).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("format", "variable", "key"),
    [
        ("google-vision", "GOOGLE_API_KEY", KEY),
        ("google-vision", "GOOGLE_ACCESS_TOKEN", KEY),
        ("json", "HF_TOKEN", KEY),
    ],
)
def test_lists_of_labels(
    format: str,
    variable: str,
    key: str,
    photos: Tensor,
    wanted: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Server(ZOO, format, key=key, top=10) as server:
        with pytest.raises(VictimUnavailable, match="refuses to answer"):
            connect(server.name)(photos[:1])
        monkeypatch.setenv(variable, key)
        victim = connect(server.name)
        scores = victim(photos)
        trial = victim.explain(photos[0])
    names = victim.vocabulary.names
    best = [names[at] for at in scores.argmax(1)]
    classes = brusle.load_victim(ZOO, "cpu").classes
    assert best == [classes[at] for at in wanted.argmax(1)]
    assert victim.gives == "partial" and victim.classes is None
    for text in (repr(victim), repr(victim.service), str(trial), victim.name):
        assert key not in text
    assert "***" in trial.request_text


def test_google_matches_by_mid(photos: Tensor) -> None:
    with Server(ZOO, "google-vision") as server:
        by_mid, by_name = connect(more(server.name, match="mid")), connect(more(server.name, max=1))
        by_mid(photos[:1])
        scores = by_name(photos)
    name = by_mid.vocabulary.names[0]  # for people it has a name
    assert name in by_name.vocabulary.names and by_mid.vocabulary.find(name) is None
    assert (scores > -torch.inf).sum(1).eq(1).all()


def google(answer: dict) -> Callable[[Request], bytes]:
    return lambda _: response({"responses": [answer]})


def served_google(served: Served, answer: Callable[[Request], bytes]) -> Hostile:
    return served(answer, count_images=lambda request: 1)


def test_google_errors_inside_an_answer(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    found = {"labelAnnotations": [{"description": "cat", "mid": "/m/1", "score": 0.9}]}

    def answer(request: Request) -> bytes:
        busy = {"error": {"code": 8, "message": "quota"}}
        bad = {"error": {"code": 3, "message": "bad image data"}}
        return google([found, busy, bad, found][request.number])(request)

    server = served_google(served, answer)
    victim = connect(f"google-vision:{server.url}", Terms(concurrency=1), sleep=sleeps)
    consultation = victim.consult(images[:3], torch.arange(3))
    assert consultation.lost.sum() == 1 and len(sleeps) == 1
    (error,) = consultation.errors.values()
    assert error == "the victim refused the image (bad image data)"
    assert totals(victim) == (4, 2, 1, 1)


def test_google_denies(served: Served, images: Tensor) -> None:
    server = served_google(served, google({"error": {"code": 7, "message": "denied"}}))
    with pytest.raises(VictimUnavailable, match=r"refuses to answer \(PERMISSION_DENIED: denied"):
        connect(f"google-vision:{server.url}")(images[:1])


def test_empty_lists_are_answers_but_not_only(served: Served, images: Tensor) -> None:
    server = served_google(served, google({}))
    victim = connect(f"google-vision:{server.url}")
    assert victim(images[:7]).eq(-torch.inf).all()
    with pytest.raises(VictimUnavailable, match="lists of labels are empty"):
        victim(images[:1])


def test_aliases(tmp_path: Path, served: Served, images: Tensor) -> None:
    file = tmp_path / "same.yaml"
    file.write_text("dog: [puppy, Hound]\n")
    labels = [{"description": name, "score": s} for name, s in (("puppy", 0.3), ("hound", 0.6))]
    server = served_google(served, google({"labelAnnotations": labels}))
    victim = connect(f"google-vision:{server.url}?aliases={file}&missing=0")
    assert victim(images[:1])[0, 0] == 0.6 and len(victim.vocabulary) == 1
    assert victim.missing == 0.0


def test_rekognition(photos: Tensor, wanted: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    large = torch.nn.functional.interpolate(photos, scale_factor=3)
    with Server(ZOO, "rekognition", key="AKIDEXAMPLE") as server:
        with pytest.raises(VictimUnavailable, match="refuses to answer"):
            connect(server.name)(large[:1])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
        victim = connect(server.name)
        scores = victim(large)
        received = server.books.as_dict()["received"]
        trial = victim.explain(large[0])
        with pytest.raises(InputError, match="from 80 x 80 pixels, and these are 32 x 32"):
            victim(photos)
        assert victim.books.totals.sent == received + 1
    assert scores.amax() <= 1 and scores[scores > -torch.inf].min() >= 0.55
    assert "AKIDEXAMPLE" not in str(trial) and "version" in trial.extracted


def test_rekognition_says_busy_with_400(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    def answer(request: Request) -> bytes:
        kinds = ["ProvisionedThroughputExceededException", "InvalidImageFormatException"]
        if request.number < 2:
            return response({"__type": kinds[request.number], "message": "no"}, 400)
        return response({"__type": "AccessDeniedException", "Message": "who"}, 400)

    server = served(answer, count_images=lambda _: 1)
    large = torch.nn.functional.interpolate(images[:1], size=80)
    victim = connect(f"rekognition:{server.url}", sleep=sleeps)
    consultation = victim.consult(large, torch.arange(1))
    assert "InvalidImageFormat" in consultation.errors[0] and consultation.lost.tolist() == [1]
    with pytest.raises(VictimUnavailable, match="refuses to answer.*AccessDenied"):
        victim(large)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rekognition:mars", "names no region"),
        ("huggingface-api:resnet", "write huggingface-api:OWNER/MODEL"),
        ("google-vision:?missing=low", "write floor, 0 or another number"),
        ("google-vision:?match=id", "choose from name, mid"),
        ("rekognition:eu-west-1?least=200", "from 0 to 100"),
    ],
)
def test_names_that_are_none(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        opened(name)


def test_clouds_need_their_keys() -> None:
    for name, variable in (
        ("google-vision:", "GOOGLE_API_KEY"),
        ("huggingface-api:a/b", "HF_TOKEN"),
    ):
        with pytest.raises(InputError, match=f"needs the environment variable {variable}"):
            opened(name).connect(Terms(authorised=True))
