"""The preflight must find what is wrong with a victim, and nothing wrong with a good one."""

import re
from pathlib import Path

import pytest
import torch
from models import integer_model, own_labels, random_images
from torch import nn

import brusle
from brusle.data import Dataset
from brusle.evaluation import check
from brusle.victims import TorchVictim, normalised, wrap

SHAPE = (3, 10, 10)


def dataset(n: int = 40) -> tuple[object, Dataset]:
    model = integer_model(SHAPE, 5)
    images = random_images(n, SHAPE)
    names = tuple(map(str, range(n)))
    return model, Dataset("made", images, own_labels(model, images), tuple("abcde"), names)


def verdicts(victim, data, **options) -> dict[str, str]:
    return {f.topic: f.verdict for f in check(victim, data, **options).findings}


def test_a_sound_victim_passes_and_every_query_is_counted() -> None:
    model, data = dataset()
    preflight = check(model.victim(), data, images=10, queries=50)
    assert {f.verdict for f in preflight.findings} == {"ok"}
    assert preflight.queries == model.seen
    assert preflight.accuracy.value == 1
    assert "at most 500 queries" in preflight.findings[-1].text


def test_the_bundled_victim_passes() -> None:
    preflight = check("zoo:cifar10-resnet20", "sample", limit=50, batch_size=50)
    assert not preflight.failed
    assert preflight.accuracy.count == 50 and preflight.accuracy.value > 0.8


def test_finds_layers_in_training_mode() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 5, 10), nn.BatchNorm2d(5), nn.Flatten())
    victim = TorchVictim(net, fuse=False)
    net[1].train()
    data = dataset()[1]
    findings = {f.topic: f for f in check(victim, data).findings}
    assert findings["evaluation mode"].verdict == "failure"
    assert "1 is in training mode" in findings["evaluation mode"].text
    assert findings["batch size"].verdict == "failure"


def test_finds_undeclared_randomness_and_accepts_it_when_declared() -> None:
    model, data = dataset()

    def noisy(images):
        return model.function(images) + 0.3 * torch.randn(len(images), 5)

    assert verdicts(wrap(noisy, output="logits"), data)["determinism"] == "failure"
    declared = wrap(noisy, output="logits", randomised=True)
    assert verdicts(declared, data)["determinism"] == "warning"
    assert verdicts(brusle.defences.make("rnd:0.1", model.victim()), data)["determinism"] == (
        "warning"
    )


def test_finds_answers_that_depend_on_the_batch() -> None:
    model, data = dataset()

    def relative(images):
        scores = model.function(images)
        return scores - scores.mean(0) if len(scores) > 1 else scores

    assert verdicts(wrap(relative, output="logits"), data)["batch size"] == "failure"


def test_finds_nan_and_images_that_make_the_victim_raise() -> None:
    model, data = dataset()

    def fragile(images):
        scores = model.function(images)
        scores[images.flatten(1).std(1) == 0] = torch.nan  # black and white images
        return scores

    assert verdicts(wrap(fragile, output="logits"), data)["finite scores"] == "failure"

    def broken(images):
        raise RuntimeError("no power")

    findings = check(wrap(broken, output="logits"), data).findings
    assert findings[-1].topic == "finite scores" and "no power" in findings[-1].text


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_finds_a_wrong_declaration(kind) -> None:
    model, data = dataset()

    def scores(images):
        logits = model.function(images)
        return logits.softmax(1) * 0.999999 + 2e-7 if kind == "logits" else logits

    found = verdicts(wrap(scores, output=kind), data)
    assert found["output kind"] == "failure"


@pytest.mark.parametrize("scale", ["from 0 to 255", "ImageNet's normalisation"])
def test_finds_the_scale_that_a_model_wants(scale) -> None:
    """The bundled net behind the inverse of a scale: right for that scale only."""
    unscale = {
        "from 0 to 255": ([0.0] * 3, [255.0] * 3),
        "ImageNet's normalisation": (
            [-m / s for m, s in zip((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True)],
            [1 / s for s in (0.229, 0.224, 0.225)],
        ),
    }[scale]
    net = normalised(brusle.zoo.load("cifar10-resnet20"), *unscale)
    findings = {f.topic: f for f in check(net, "sample", limit=60).findings}
    assert findings["input range"].verdict == "failure"
    assert scale in findings["input range"].text


def test_finds_data_that_does_not_belong_to_the_victim() -> None:
    model, data = dataset()
    strange = wrap(model, output="logits", classes=list("vwxyz"))
    assert verdicts(strange, data)["shape and classes"] == "failure"
    large = wrap(model, output="logits", shape=(3, 32, 32))
    text = check(large, data).findings[-1].text
    assert text == "images of made are 3 x 10 x 10, Counting takes 3 x 32 x 32"
    few = wrap(lambda images: model.function(images)[:, :3], output="logits")
    assert verdicts(few, data)["labels"] == "failure"


def test_says_what_label_only_and_partial_lists_mean() -> None:
    model, data = dataset()
    for spec in ("label", "topk:2"):
        assert verdicts(brusle.defences.make(spec, model.victim()), data)["scores"] == "warning"


def test_guessing_is_a_failure() -> None:
    model, data = dataset()
    shifted = Dataset("made", data.images, (data.labels + 1) % 5, data.classes, data.names)
    assert verdicts(model.victim(), shifted)["accuracy"] == "failure"


def test_every_topic_has_its_heading_in_the_documentation() -> None:
    source = Path(brusle.evaluation.preflight.__file__).read_text()
    topics = set(re.findall(r'Finding\(\s*"([a-z ]+)"', source))
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    headings = set(re.findall(r"^## (.+)$", page, re.M))
    assert topics == headings
