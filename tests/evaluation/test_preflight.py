"""The preflight must find what is wrong with a victim, and nothing wrong with a good one."""

import re
from pathlib import Path

import pytest
import torch
from models import integer_model, own_labels, random_images
from torch import nn

import brusle
from brusle.attacks import BruSLe
from brusle.data import Dataset
from brusle.evaluation import check
from brusle.victims import TorchVictim, normalised, wrap
from brusle.victims.architectures import ARCHITECTURES

SHAPE = (3, 10, 10)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def dataset(n: int = 40) -> tuple[object, Dataset]:
    model = integer_model(SHAPE, 5)
    images = random_images(n, SHAPE)
    names = tuple(map(str, range(n)))
    return model, Dataset("made", images, own_labels(model, images), tuple("abcde"), names)


def verdicts(victim, data, **options) -> dict[str, str]:
    return {f.topic: f.verdict for f in check(victim, data, **options).findings}


def test_a_sound_victim_passes_and_every_query_is_counted() -> None:
    model, data = dataset()
    announced = []
    preflight = check(
        model.victim(),
        data,
        planned_images=10,
        planned_queries=50,
        on_effort=lambda effort: announced.append((effort, model.seen)),
    )
    assert {f.verdict for f in preflight.findings} == {"ok"}
    assert announced == [(preflight.effort, 0)]  # before the first query
    assert preflight.queries == model.seen == preflight.effort.queries
    assert preflight.lost == 0
    assert preflight.accuracy.value == 1
    assert "at most 500 queries" in preflight.findings[-1].text


def test_the_bundled_victim_passes() -> None:
    preflight = check("zoo:cifar10-resnet20", "sample", limit=50, batch_size=50)
    assert not preflight.failed
    assert preflight.accuracy.count == 50 and preflight.accuracy.value > 0.8


def test_finds_layers_that_stay_in_training_mode() -> None:
    """A net in training mode is switched and given back; one that cannot be is a failure."""

    class Stubborn(nn.BatchNorm2d):
        def train(self, mode: bool = True):
            return super().train(True)

    data = dataset()[1]
    found = {}
    for kind in (nn.BatchNorm2d, Stubborn):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 5, 10), kind(5), nn.Flatten()).train()
        found[kind] = {f.topic: f for f in check(TorchVictim(net, fuse=False), data).findings}
    usual, stubborn = found[nn.BatchNorm2d], found[Stubborn]
    assert usual["evaluation mode"].verdict == usual["batch size"].verdict == "ok"
    assert "the model itself stays in training mode" in usual["evaluation mode"].text
    assert stubborn["evaluation mode"].verdict == stubborn["batch size"].verdict == "failure"
    assert "1 stays in training mode" in stubborn["evaluation mode"].text


@pytest.mark.parametrize("most", [12, 50, 100, 1000])
@pytest.mark.parametrize("good", [True, False])
def test_keeps_to_a_number_of_queries(most, good) -> None:
    model, data = dataset()
    if not good:  # so that other ranges of the input are tried as well
        data = Dataset("made", data.images, (data.labels + 1) % 5, data.classes, data.names)
    preflight = check(model.victim(), data, queries=most)
    effort = preflight.effort
    assert preflight.queries == model.seen <= effort.most <= most
    assert preflight.queries == (effort.queries if good else effort.most)
    assert preflight.findings[-1].topic == "cost"  # nothing was left out
    larger = min(len(data), effort.images + 1)
    assert check(model.victim(), data, limit=larger).effort.most > most or effort.images == 40


class Stop(Exception):
    pass


@pytest.mark.parametrize(
    ("normalisation", "most"), [(None, 611), (((0.5,) * 3, (0.25,) * 3), 711), (IMAGENET, 611)]
)
def test_what_a_check_takes_is_what_the_documentation_says(normalisation, most) -> None:
    net = brusle.zoo.load("cifar10-resnet20")

    def announced(effort):
        assert (effort.images, effort.queries, effort.most) == (100, 311, most)
        raise Stop

    with pytest.raises(Stop):
        check(
            net if normalisation is None else normalised(net, *normalisation), on_effort=announced
        )
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    assert "311" in page and "up to 400 more" in page


def test_too_few_queries_for_a_check_are_refused_before_the_first() -> None:
    model, data = dataset()
    with pytest.raises(brusle.InputError, match="queries is 9: a check takes at least 10"):
        check(model.victim(), data, queries=9)
    assert model.seen == 0
    assert check(model.victim(), data, queries=10).queries <= 10


def test_what_was_sent_in_vain_is_counted_apart() -> None:
    model, data = dataset()
    bad = data.images[3]

    def fragile(images):
        if (images == bad).flatten(1).all(1).any():
            raise RuntimeError("no power")
        return model(images)

    sent = 0

    def counting(images):
        nonlocal sent
        sent += len(images)
        return fragile(images)

    preflight = check(wrap(counting, output="logits"), data)
    assert preflight.queries == model.seen and preflight.lost == sent - model.seen > 0
    assert preflight.as_dict()["lost"] == preflight.lost


def test_trouble_after_the_first_answers_is_a_finding() -> None:
    model, data = dataset()

    def tires(images):
        scores = model(images)
        return scores if model.seen <= 40 else scores[:, :3]

    preflight = check(wrap(tires, output="logits"), data)
    assert preflight.findings[-1].topic == "answers" and preflight.failed
    assert "answered with 5 classes before and 3 now" in preflight.findings[-1].text


def test_finds_undeclared_randomness_and_accepts_it_when_declared() -> None:
    model, data = dataset()

    def noisy(images):
        return model.function(images) + 0.3 * torch.randn(len(images), 5)

    assert verdicts(wrap(noisy, output="logits"), data)["determinism"] == "failure"
    declared = wrap(noisy, output="logits", randomised=True)
    assert verdicts(declared, data)["determinism"] == "warning"
    noise = brusle.defences.make("rnd:0.1", model.victim())
    (found,) = (f for f in check(noise, data).findings if f.topic == "determinism")
    assert found.verdict == "warning"
    assert float(re.search(r"differ by (\S+) at most", found.text)[1]) > 0


def test_a_randomised_victim_that_is_not_random_is_noticed() -> None:
    """Dropout is switched off with the rest of the layers: the declaration promises too much."""
    data = dataset()[1]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(300, 5))
    findings = {
        f.topic: f for f in check(wrap(net, output="logits", randomised=True), data).findings
    }
    assert "must be drawn in forward() itself" in findings["determinism"].text


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


WANTED = {
    "values from 0 to 1": ((0.0,) * 3, (1.0,) * 3),
    "values from 0 to 255": ((0.0,) * 3, (1 / 255,) * 3),
    "values from -1 to 1": ((0.5,) * 3, (0.5,) * 3),
    "ImageNet's normalisation": IMAGENET,
}
wanted = pytest.mark.parametrize("words", list(WANTED)[1:])


class Wants(nn.Module):
    """Knows its images if they come in the range that it wants, and guesses in any other."""

    def __init__(self, words: str, channels: int = 3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weights = 3 * torch.randn(channels * 64, 5, generator=generator)
        mean, std = (torch.tensor(part[:channels]).view(1, -1, 1, 1) for part in WANTED[words])
        for name, tensor in {"weights": weights, "mean": mean, "std": std}.items():
            self.register_buffer(name, tensor)

    def forward(self, x):
        return ((x * self.std + self.mean).flatten(1) @ self.weights).sin()


def known_to(model: Wants) -> Dataset:
    """Images with the labels that it gives them in its own range."""
    images = random_images(60, (model.mean.shape[1], 8, 8))
    labels = model((images - model.mean) / model.std).argmax(1)
    return Dataset("known", images, labels, (), tuple(map(str, range(60))))


def range_finding(victim, data: Dataset):
    findings = {f.topic: f for f in check(victim, data).findings}
    return findings["input range"], findings["accuracy"]


def named_in(text: str) -> str:
    return re.search(r'name it "(.+)"', text)[1]


@wanted
def test_finds_the_range_that_a_module_wants_and_the_remedy_is_one(words) -> None:
    model = Wants(words)
    data = known_to(model)
    found, _ = range_finding(model, data)
    assert found.verdict == "failure" and f"with {words}: give " in found.text
    remedied = eval(found.text.partition(": give ")[2], {"brusle": brusle, "model": model})
    found, accuracy = range_finding(remedied, data)
    assert found.verdict == accuracy.verdict == "ok"


def test_a_normalisation_too_many_is_found() -> None:
    model = Wants("values from 0 to 1")
    found, accuracy = range_finding(normalised(model, *IMAGENET), known_to(model))
    assert "values from 0 to 1: give the model without brusle.victims.normalised" in found.text
    assert accuracy.verdict == "failure" and "Likely causes" not in accuracy.text


@wanted
def test_the_remedy_of_an_onnx_file_is_in_its_name(words, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    model = Wants(words)
    data = known_to(model)
    victim = TorchVictim(model, shape=(3, 8, 8))
    path = brusle.victims.export_onnx(victim, tmp_path / "net.onnx")
    for name in (f"onnx:{path}", f"onnx:{path}?mean=0.1,0.1,0.1&std=9,9,9&threads=1"):
        found, _ = range_finding(name, data)
        assert found.verdict == "failure" and words in found.text
        better = named_in(found.text)
        assert ("scale=255" in better) == (words == "values from 0 to 255")
        assert ("threads=1" in better) == ("threads=1" in name)
        found, accuracy = range_finding(better, data)
        assert found.verdict == accuracy.verdict == "ok"


def test_the_remedy_of_a_checkpoint_is_in_its_name(tmp_path) -> None:
    file, data = tmp_path / "net.pt", brusle.data.load("sample").balanced(30)
    torch.save(brusle.zoo.load("cifar10-resnet20").state_dict(), file)
    right = f"checkpoint:{file}?arch=resnet20"
    found, accuracy = range_finding(f"{right}&mean=0,0,0&std=50,50,50", data)
    assert named_in(found.text) == f"{right}&mean=none"
    assert accuracy.verdict == "failure"
    assert range_finding(named_in(found.text), data)[1].verdict == "ok"


def test_the_remedy_of_a_function_is_arithmetic() -> None:
    model = Wants("values from 0 to 255")

    def function(images):
        return model(images)

    found, _ = range_finding(wrap(function, output="logits"), known_to(model))
    values = "mean=[0, 0, 0], std=[0.00392157, 0.00392157, 0.00392157]"
    assert found.text.endswith(f"let it compute (images - mean) / std first, with {values}")


def test_one_channel_is_looked_at_too() -> None:
    model = Wants("values from 0 to 255", channels=1)
    found, _ = range_finding(model, known_to(model))
    assert "values from 0 to 255: give" in found.text and "mean=[0], std=[0.00392157]" in found.text


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


def relabelled(data: Dataset, order: list[int]) -> Dataset:
    labels = torch.tensor(order)[data.labels]
    return Dataset("made", data.images, labels, data.classes, data.names)


def accuracy_of(victim, data):
    (found,) = (f for f in check(victim, data).findings if f.topic == "accuracy")
    return found


def test_labels_in_another_order_are_a_failure_that_names_the_order() -> None:
    model, data = dataset()
    found = accuracy_of(model.victim(), relabelled(data, [3, 0, 1, 4, 2]))
    assert found.verdict == "failure" and "labels are in another order" in found.text
    said = dict(re.findall(r"(\d) for (\d)", found.text))  # the victim's class, the data's label
    truth = {"0": "3", "1": "0", "2": "1", "3": "4", "4": "2"}
    assert len(said) == 4 and said.items() <= truth.items()
    assert "100 % accuracy if that is put right" in found.text


@pytest.mark.parametrize("classes", [5, 200])
def test_a_guesser_has_no_order_of_labels(classes) -> None:
    """With few images of each class, some order always looks good: it must not be believed."""
    images = random_images(60, SHAPE)
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, classes, (60,), generator=generator)
    names = tuple(map(str, range(60)))
    model = integer_model(SHAPE, classes)
    found = accuracy_of(model.victim(), Dataset("made", images, labels, (), names))
    assert found.verdict == "failure" and f"guessing among {classes} classes" in found.text
    assert "order than" not in found.text
    assert "its normalisation (now none; see brusle.victims.normalised)" in found.text


def test_a_checkpoint_that_guesses_names_its_normalisation_and_architecture(tmp_path) -> None:
    torch.manual_seed(0)
    net = ARCHITECTURES["resnet18-cifar"].build(10)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    name = f"checkpoint:{tmp_path / 'net.pt'}?arch=resnet18-cifar"
    data = brusle.data.load("sample").balanced(10)
    with pytest.warns(UserWarning, match="no better than guessing among 10 classes") as said:
        brusle.evaluate(name, data, [BruSLe(1, 1)], "untargeted")
    text = str(said[0].message)
    assert "now mean 0.4914,0.4822,0.4465 and std" in text and "see mean=, std= in its name" in text
    assert "another net than arch=resnet18-cifar" in text


@pytest.mark.parametrize(
    ("right", "count", "classes", "verdict"),
    [
        (3, 3, 2, "warning"),  # all right, but three images cannot tell
        (10, 20, 2, "failure"),
        (20, 20, 2, "ok"),
        (2, 20, 10, "failure"),
        (8, 20, 10, "warning"),  # poor, and better than guessing
        (0, 3, 10, "warning"),
        (0, 20, 1000, "failure"),
        (16, 20, 1000, "ok"),
    ],
)
def test_guessing_is_told_from_knowing_where_images_suffice(right, count, classes, verdict) -> None:
    labels = torch.arange(count) % classes
    # wrong answers follow no order
    wrong = torch.arange(count) ** 2 + 1 + torch.arange(count) // classes
    wrong = torch.where(wrong % classes == labels, wrong + 1, wrong) % classes
    said = torch.where(torch.arange(count) < right, labels, wrong)
    images = random_images(count, SHAPE)
    known = {image.numpy().tobytes(): int(c) for image, c in zip(images, said, strict=True)}

    def recite(batch):
        answers = [known.get(image.numpy().tobytes(), 0) for image in batch]
        return torch.eye(classes)[answers] * 5

    data = Dataset("made", images, labels, (), tuple(map(str, range(count))))
    assert accuracy_of(wrap(recite, output="logits"), data).verdict == verdict


def test_every_topic_has_its_heading_in_the_documentation() -> None:
    files = (
        brusle.evaluation.running.preflight.__file__,
        brusle.evaluation.running.diagnosis.__file__,
    )
    source = "".join(Path(file).read_text() for file in files)
    topics = set(re.findall(r'Finding\(\s*"([a-z ]+)"', source))
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    headings = set(re.findall(r"^## (.+)$", page, re.M))
    assert topics == headings
