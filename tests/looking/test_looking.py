"""The one entry to maps: what it leaves as it was, what it refuses, and victims that misbehave."""

import copy
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from merging import Merging
from models import random_images
from random_weights import randomise
from torch import Tensor, nn

import brusle
from brusle.errors import BrusleError, InputError, VictimError
from brusle.looking import Look, hows, look
from brusle.victims import TorchVictim
from brusle.victims.wrappers import timed

SHAPE = (3, 12, 8)
IMAGES = random_images(3, SHAPE)


class Net(nn.Module):
    """Convolution, batch normalisation and dropout, which answer differently in training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(inplace=True)
        )
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6 * 24, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(self.drop(self.stem(x).flatten(1)))


class ViT(nn.Module):
    """A convolution and one of torch's encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        return self.head((x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


def half_trained(net: nn.Module) -> nn.Module:
    """In training mode, with one frozen part, a gradient that somebody has left, and a hook."""
    net = randomise(net).train()
    first = next(net.children())
    first.eval()
    weights = list(net.parameters())
    weights[0].requires_grad_(False)
    weights[-1].grad = torch.ones_like(weights[-1])
    first.register_forward_hook(_nothing)
    return net


def _nothing(_layer, _args, _output) -> None:
    return None


def facts(net: nn.Module) -> list[object]:
    """All that somebody could find changed about a module."""
    tensors = [*net.named_parameters(), *net.named_buffers()]
    gradients = {n: None if t.grad is None else t.grad.tolist() for n, t in tensors}
    return [
        [(name, part.training) for name, part in net.named_modules()],
        [(n, id(t), t.requires_grad, t.stride(), t._version, t.tolist()) for n, t in tensors],
        gradients,
        [(list(p._forward_hooks), list(p._forward_pre_hooks)) for p in net.modules()],
        [(list(p._backward_hooks), sorted(vars(p))) for p in net.modules()],
    ]


def around() -> list[object]:
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        os.getcwd(),
    ]


WAYS = [
    (Net, "auto", "gradcam"),
    (Net, "occlusion", "occlusion"),
    (ViT, "auto", "attention"),
    (ViT, "attention-last", "attention-last"),
    (ViT, "gradcam", "gradcam"),
]


@pytest.mark.parametrize(("kind", "how", "expected"), WAYS)
def test_a_module_and_all_around_it_are_left_as_they_were(kind, how, expected) -> None:
    net = half_trained(kind())
    exact = copy.deepcopy(net).eval()
    before, outside = facts(net), around()
    found = look(net, IMAGES, [0, 1, 2], how=how)
    assert hows(net)[-1] == "occlusion"
    assert facts(net) == before and around() == outside
    assert found.how == expected
    # it was looked at in evaluation mode, where dropout does nothing
    assert np.allclose(found.maps, look(exact, IMAGES, [0, 1, 2], how=how).maps, atol=1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", [Net, ViT])
def test_the_callers_mode_makes_no_difference(kind, mode) -> None:
    net = randomise(kind())
    expected = look(net, IMAGES, 1)
    with mode():
        assert np.array_equal(look(net, IMAGES, 1).maps, expected.maps)


def test_images_are_not_changed_and_a_batch_is_its_images_one_by_one() -> None:
    images = IMAGES.clone()
    for kind, how, _ in WAYS:
        net = randomise(kind())
        together = look(net, images, [0, 1, 2], how=how)
        assert torch.equal(images, IMAGES)
        for at in range(3):
            alone = look(net, images[at : at + 1], [at], how=how, batch_size=1)
            assert np.allclose(alone.maps[0], together.maps[at], atol=1e-5)


def test_numpy_names_and_wrapped_victims_are_the_same_to_it() -> None:
    images = brusle.data.load("sample").images[:2]
    expected = look("zoo:cifar10-resnet20", images, [3, 8], device="cpu")
    victim = brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    for other in (victim, victim.module, timed(victim, 60.0)):
        found = look(other, images.numpy(), np.array([3, 8]))
        assert found.how == "gradcam" and np.allclose(found.maps, expected.maps, atol=1e-6)


def test_layers_that_merge_weights_for_evaluation_stay_merged_while_they_are_looked_at() -> None:
    """As LoRA does: shared weights are other ones once the module is given back."""

    class MergingConvolution(Merging, nn.Conv2d):
        pass

    torch.manual_seed(0)
    net = nn.Sequential(MergingConvolution(3, 4, 3), nn.Flatten(), nn.Linear(4 * 60, 4))
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 60, 4))
    plain.load_state_dict(net.state_dict())
    with torch.no_grad():
        plain[0].weight += 1.0
    found = look(net, IMAGES, [0, 1, 2], how="gradcam")
    assert np.allclose(found.maps, look(plain, IMAGES, [0, 1, 2]).maps, atol=1e-4)
    assert found.maps.any() and net.training and not net[0].merged


def test_the_example_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "looking.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    said: dict = {}
    exec(code, said)
    maps = said["maps"]
    assert f'"{maps.how}", "{maps.layer}", {maps.queries}' in code and maps.note in code
    assert maps.maps.shape == maps.scaled.shape == (4, 32, 32) and "(4, 32, 32)" in code
    assert str(hows(said["victim"])).replace("'", '"') in code
    occluded = look(said["victim"], said["sample"].images[:1], 0, how="occlusion")
    assert f"{occluded.queries} queries per image" in page


def test_which_ways_there_are() -> None:
    assert hows("zoo:cifar10-resnet20") == ("gradcam", "occlusion")
    assert hows("zoo:cifar10-vit") == ("attention", "attention-last", "gradcam", "occlusion")
    # without a size nothing is asked: layers are counted
    assert hows(Net()) == ("gradcam", "occlusion")
    assert hows(ViT()) == ("attention", "attention-last", "gradcam", "occlusion")
    # and with one it is tried: this net has but single places
    single = nn.Sequential(nn.Conv2d(3, 4, (12, 8)), nn.Flatten(), nn.Linear(4, 4))
    assert hows(single) == ("gradcam", "occlusion")
    assert hows(TorchVictim(single, shape=SHAPE)) == ("occlusion",)
    assert look(single, IMAGES, 0).how == "occlusion"
    with pytest.raises(InputError, match="no convolution with more than one place"):
        look(single, IMAGES, 0, how="gradcam")


def test_maps_for_drawing_are_scaled_one_by_one_and_keep_their_sign() -> None:
    maps = np.array([[[0, 2], [4, -1]], [[0, 0], [0, -8]], [[0, 0], [0, 0]]], np.float32)
    scaled = Look("occlusion", maps, "", 0, "").scaled
    assert scaled.tolist() == [[[0, 0.5], [1, -0.25]], [[0, 0], [0, -1]], [[0, 0], [0, 0]]]
    assert scaled.dtype == np.float32


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (IMAGES, 0, {"how": "grad-cam"}, "how is 'grad-cam': choose from auto, attention, "),
        (IMAGES, 0, {"batch_size": 0}, "batch_size is 0: it must be at least 1"),
        (IMAGES, 0, {"how": "occlusion", "patches": 0}, "patches is 0: it must be at least 1"),
        (IMAGES, 4, {}, "label 4 of image 0 is out of range: the victim has 4 classes"),
        (IMAGES, [0, 1], {}, r"labels have shape \(2,\): give one integer for each of 3 images"),
        (IMAGES * 2, 0, {}, r"images must lie in \[0, 1\]"),
        (IMAGES[0], 0, {}, r"images have shape \(3, 12, 8\): give \(number, channels, height"),
        (IMAGES[:0], 0, {}, "images have shape"),
        (IMAGES[:, :, :6], 0, {}, "images are 3 x 6 x 8, net takes 3 x 12 x 8"),
    ],
)
def test_what_cannot_be_looked_at(images, labels, options, message) -> None:
    victim = TorchVictim(randomise(Net()), name="net", shape=SHAPE)
    with pytest.raises(InputError, match=message):
        look(victim, images, labels, **options)


class Hostile(Net):
    """A net that does ``deed`` when it answers."""

    def __init__(self, deed) -> None:
        super().__init__()
        self.deed = deed

    def forward(self, x: Tensor) -> Tensor:
        return self.deed(super().forward(x))


def _raise(kind, *words):
    def deed(_scores: Tensor) -> Tensor:
        raise kind(*words)

    return deed


def _with_gradient(deed):
    """``deed`` only when autograd watches: the first answer is good."""
    return lambda scores: deed(scores) if scores.requires_grad else scores


def _settings(scores: Tensor) -> Tensor:
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    os.chdir("/")
    return scores


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        (_raise(ValueError, "a\nb"), r"net cannot be looked into \(ValueError: a"),
        (_with_gradient(_raise(KeyError, "k")), r"net cannot be looked into \(KeyError: 'k'\)"),
        (_raise(SystemExit, 0), r"net tried to end the program \(exit code 0\)"),
        (_with_gradient(lambda _: os._exit(0)), r"net tried to end the program \(exit code 0\)"),
        (_with_gradient(lambda s: s * torch.nan), "the map of net has NaN or infinite values"),
        (lambda s: s[:, 0], r"net answered 1 images with shape \(1,\)"),
        (lambda s: [s], "net returned list with 0 .*: say which are the scores"),
        (_with_gradient(lambda s: {"scores": s}), "net cannot be looked into"),
        (_with_gradient(lambda s: s[:, :1]), "net cannot be looked into"),
    ],
)
def test_a_net_that_misbehaves_gives_one_line(deed, message) -> None:
    victim = TorchVictim(randomise(Hostile(deed)), name="net", fuse=False, shape=SHAPE)
    before = around()
    with pytest.raises(BrusleError, match=message) as error:
        look(victim, IMAGES, 3)
    assert isinstance(error.value, VictimError) and "\n" not in str(error.value)
    assert around() == before
    assert hows(victim)[-1] == "occlusion" and around() == before


def test_a_net_that_changes_settings_changes_them_for_itself() -> None:
    victim = TorchVictim(randomise(Hostile(_settings)), fuse=False)
    before = around()
    look(victim, IMAGES, 0)
    assert around() == before


def test_a_net_that_cannot_be_copied() -> None:
    net = randomise(Net())
    net.kept = net.head(torch.ones(1, 6 * 24))  # torch copies no results of layers
    with pytest.raises(VictimError, match="Net cannot be copied .*: use how='occlusion'") as error:
        look(net, IMAGES, 0)
    assert "\n" not in str(error.value)
    assert look(net, IMAGES, 0, how="occlusion", patches=2).queries == 15


def test_an_archive_shows_no_layers(tmp_path) -> None:
    """TorchScript's parts are of no class that is known."""
    path = tmp_path / "net.pt"
    plain = nn.Sequential(nn.Conv2d(3, 6, 3), nn.Flatten(), nn.Linear(360, 4)).eval()
    torch.jit.trace(plain, IMAGES[:1]).save(str(path))
    victim = brusle.load_victim(f"torchscript:{path}", "cpu")
    assert look(victim, IMAGES, 0, patches=2).how == "occlusion"
    with pytest.raises(BrusleError) as error:
        look(victim, IMAGES, 0, layer="0")
    assert "\n" not in str(error.value)
