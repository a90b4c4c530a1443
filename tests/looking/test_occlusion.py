"""Occlusion against a plain loop, its queries, and the victims that have nothing else."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from models import Counting, integer_model, random_images
from torch import Tensor, nn

import brusle
from brusle import defences
from brusle.errors import InputError, VictimError, VictimUnavailable
from brusle.looking import hows, look
from brusle.replies import Consultation, Reply
from brusle.scores import ABSENT
from brusle.serving import Server
from brusle.victims import TorchVictim, export_onnx, wrap
from brusle.victims.wrappers import timed
from brusle.vocabulary import Vocabulary

SHAPE = (3, 12, 10)
IMAGES = random_images(2, SHAPE)
LABELS = [1, 3]


def by_loop(probability, images: Tensor, labels: list[int], patches: int) -> np.ndarray:
    """One square after the other; ``probability`` of an image's class, by whatever way."""
    maps = np.zeros((len(images), *images.shape[2:]), np.float64)
    for number, label in enumerate(labels):
        image = images[number].numpy()
        height, width = image.shape[1:]
        whole = probability(image, label)
        for row in range(patches):
            for column in range(patches):
                top, bottom = row * height // patches, (row + 1) * height // patches
                left, right = column * width // patches, (column + 1) * width // patches
                covered = image.copy()
                for channel in range(len(image)):
                    covered[channel, top:bottom, left:right] = image[channel].mean()
                fall = whole - probability(covered, label)
                maps[number, top:bottom, left:right] = fall
    return maps


def softmax_of(function):
    def probability(image: np.ndarray, label: int) -> float:
        logits = np.asarray(function(torch.from_numpy(image)[None]), float)[0]
        shares = np.exp(logits - logits.max())
        return float(shares[label] / shares.sum())

    return probability


@pytest.mark.parametrize(("patches", "batch_size"), [(1, None), (3, 4), (5, 1), (8, None)])
def test_maps_are_those_of_a_loop_and_queries_are_counted(patches, batch_size) -> None:
    net = small_net()
    model = Counting(lambda images: net(images).detach())
    expected = by_loop(softmax_of(model.function), IMAGES, LABELS, patches)
    found = look(model.victim(), IMAGES, LABELS, patches=patches, batch_size=batch_size)
    assert found.how == "occlusion" and found.layer == ""
    assert np.allclose(found.maps, expected, atol=1e-5) and np.abs(expected).max() > 1e-3
    assert found.queries == model.seen == 2 * (1 + patches**2)
    assert max(model.batches) <= (batch_size or 100)
    assert found.note == (
        "fall of the class's probability when a square is covered with the mean colour "
        f"({found.queries} queries)"
    )


def test_there_are_no_more_squares_than_pixels() -> None:
    model = integer_model((1, 2, 9), 4)
    images = random_images(1, (1, 2, 9))
    found = look(model.victim(), images, 0, patches=4)
    assert found.queries == model.seen == 1 + 2 * 4
    each = look(integer_model((1, 2, 3), 4).victim(), random_images(1, (1, 2, 3)), 0, patches=9)
    assert each.queries == 1 + 6  # every pixel


def test_an_image_gets_the_same_map_alone_and_beside_others() -> None:
    victim = defences.make("rnd:0.1", integer_model(SHAPE, 4).victim())
    both = look(victim, IMAGES, LABELS, patches=3)
    alone = look(victim, IMAGES[1:], LABELS[1:], patches=3, batch_size=2)
    assert np.array_equal(both.maps[1], alone.maps[0])
    assert both.note.endswith("; answers vary, this is one draw")
    assert not np.array_equal(look(victim.victim, IMAGES, LABELS, patches=3).maps, both.maps)


def test_no_attack_pays_for_a_look() -> None:
    """The same rows, queries and random numbers with a look before and none."""
    attack = brusle.attacks.BruSLe(5, 30)
    rows = []
    for looked in (False, True):
        model = integer_model(SHAPE, 4)
        victim = defences.make("rnd:0.05", model.victim())
        if looked:
            look(victim, IMAGES, LABELS, patches=4)
        before = model.seen
        result = attack(victim, IMAGES, LABELS, seed=3)
        spent = int(result.ledger.total.sum())
        assert model.seen - before == spent
        rows.append((spent, result.queries.tolist(), result.images))
    assert rows[0][:2] == rows[1][:2] and torch.equal(rows[0][2], rows[1][2])


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 80, 4)).eval()


def assert_occluded(victim, probability, patches: int = 3) -> None:
    """That ``victim`` is looked at from outside, and by itself."""
    assert hows(victim) == ("occlusion",)
    found = look(victim, IMAGES, LABELS, patches=patches)
    assert found.how == "occlusion" and found.queries == 2 * (1 + patches**2)
    expected = by_loop(probability, IMAGES, LABELS, patches)
    assert np.allclose(found.maps, expected, atol=1e-4) and np.abs(expected).max() > 1e-3
    for how in ("gradcam", "attention"):
        with pytest.raises(InputError, match=f"does not show its layers, so there is no {how}"):
            look(victim, IMAGES, LABELS, how=how)


def test_a_net_can_be_occluded_too() -> None:
    net = small_net()
    found = look(net, IMAGES, LABELS, how="occlusion", patches=3)
    expected = by_loop(softmax_of(lambda x: net(x).detach()), IMAGES, LABELS, 3)
    assert found.queries == 20 and np.allclose(found.maps, expected, atol=1e-5)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(360, 4))  # neither convolutions nor attention
    assert look(flat, IMAGES, LABELS, patches=2).how == "occlusion" and hows(flat) == ("occlusion",)


def test_a_function_and_an_onnx_file(tmp_path) -> None:
    net = small_net()
    own = softmax_of(lambda x: net(x).detach())
    assert_occluded(wrap(lambda x: net(x).detach(), output="logits", name="function"), own)
    pytest.importorskip("onnxruntime")
    path = export_onnx(TorchVictim(net, shape=SHAPE), tmp_path / "net.onnx")
    assert_occluded(brusle.load_victim(f"onnx:{path}?output=logits", "cpu"), own)


def test_a_defence_is_what_answers() -> None:
    victim = TorchVictim(small_net(), name="net")
    rounded = defences.make("round:2", victim)
    assert_occluded(rounded, lambda image, label: float(rounded(_one(image))[0, label]))
    only_label = defences.make("label", victim)
    found = look(only_label, IMAGES, LABELS, patches=3)
    assert set(np.unique(found.maps)) <= {-1.0, 0.0, 1.0}
    assert look(rounded.victim, IMAGES, LABELS).how == "gradcam"  # who wants to look behind it


def _one(image: np.ndarray) -> Tensor:
    return torch.from_numpy(image)[None]


def test_confidences_of_lists_and_labels_that_are_not_listed() -> None:
    victim = defences.make("topk:2", TorchVictim(small_net()))
    listed = victim(IMAGES)
    labels = listed.argmax(1).tolist()

    def confidence(image: np.ndarray, label: int) -> float:
        score = float(victim(_one(image))[0, label])
        return 0.0 if score == ABSENT else score

    found = look(victim, IMAGES, labels, patches=4)
    assert np.allclose(found.maps, by_loop(confidence, IMAGES, labels, 4), atol=1e-6)
    assert np.abs(found.maps).max() <= 1  # an absent label is no -1
    assert "a label that is not listed counts as 0" in found.note
    absent = [int((row == ABSENT).nonzero()[0]) for row in listed]
    assert look(victim, IMAGES, absent, patches=4).maps.max() <= 0


def test_labels_that_have_only_names() -> None:
    def says(images: Tensor) -> list[dict[str, float]]:
        light = images.mean((1, 2, 3)).tolist()
        return [{"light": share, "dark": 1 - share} if share > 0.4 else {} for share in light]

    victim = wrap(says, output="confidences", named=True)
    assert victim.vocabulary is not None
    victim(IMAGES)
    found = look(victim, IMAGES, victim.vocabulary.column("light"), patches=2)
    expected = by_loop(lambda image, _: float(image.mean()), IMAGES, LABELS, 2)
    assert np.allclose(found.maps, expected, atol=1e-6) and "the class's confidence" in found.note
    # a label that nobody has named so far is a column to come
    assert not look(victim, IMAGES, 7, patches=2).maps.any()


@dataclass
class Service:
    """A victim that keeps books, as paid services do."""

    name: str = "service"
    output: str = "confidences"
    gives: str = "partial"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    asked: int = 0
    refuses: int = -1

    def __call__(self, images: Tensor) -> Tensor:
        return self.consult(images, torch.zeros(len(images))).scores

    def consult(self, images, keys, again=False) -> Consultation:
        replies = []
        for image in images:
            good = self.asked != self.refuses
            light = np.array([float(image.mean())])
            replies.append(Reply(light, ("light",)) if good else Reply(error="refused"))
            self.asked += 1
        return Consultation.of(replies, self.vocabulary)


@pytest.mark.parametrize(
    "wrapped",
    [lambda v: v, lambda v: timed(v, 5.0), lambda v: defences.make("median:3", v)],
    ids=["plain", "with a time limit", "defended"],
)
def test_who_keeps_books_is_asked_only_on_demand(wrapped) -> None:
    service = Service()
    victim = wrapped(service)
    with pytest.raises(InputError, match="keeps books, and to look at it takes 34 queries: say "):
        look(victim, IMAGES, 0, patches=4)
    assert service.asked == 0 and hows(victim) == ("occlusion",)
    found = look(victim, IMAGES, 0, how="occlusion", patches=4)
    assert found.queries == service.asked == 34


def test_squares_without_an_answer_are_said_and_not_drawn() -> None:
    service = Service(refuses=3)
    found = look(service, IMAGES, 0, how="occlusion", patches=2)
    assert found.queries == 9 and not found.maps[0, 6:, :5].any()
    assert "(9 queries; 1 were not answered and count as no fall" in found.note
    with pytest.raises(VictimError, match="service does not answer the image: refused"):
        look(Service(refuses=0), IMAGES, 0, how="occlusion", patches=2)


def test_a_served_model_gives_the_map_of_its_list() -> None:
    pytest.importorskip("starlette")
    inner = brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    image = brusle.data.load("sample").images[:1]
    label = int(inner(image).argmax())
    with Server(inner, "google-vision") as server:
        victim = brusle.load_victim(server.name, "cpu")
        victim.vocabulary.column(inner.classes[label])
        with pytest.raises(InputError, match="keeps books"):
            look(victim, image, 0)
        found = look(victim, image, 0, how="occlusion", patches=3)
    listed = defences.make("confidences:0.01,0.5,10", inner)
    expected = look(listed, image, label, patches=3)
    assert found.queries == 10 and np.allclose(found.maps, expected.maps, atol=1e-3)


def test_a_victim_that_never_answers() -> None:
    def broken(images: Tensor) -> Tensor:
        raise ValueError("no")

    victim = Counting(broken).victim()
    with pytest.raises(VictimUnavailable, match="none of 17 images was answered"):
        look(victim, IMAGES, 0, patches=4)
    with pytest.raises(InputError, match="label 9 of image 0 is out of range"):
        look(integer_model(SHAPE, 4).victim(), IMAGES, 9)
