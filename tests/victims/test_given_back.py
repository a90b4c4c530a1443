"""A user's module is borrowed: it answers in evaluation mode, and comes back as it was."""

import copy
import random

import numpy as np
import pytest
import torch
from merging import Merging
from torch import nn

import brusle
from brusle.attacks import PGD0, BruSLe
from brusle.victims import TorchVictim, as_victim, export_onnx, normalised, wrap

SHAPE, CLASSES = (3, 8, 8), 4
IMAGES = torch.randint(0, 256, (12, *SHAPE), generator=torch.Generator().manual_seed(1)) / 255


class Net(nn.Module):
    """Convolution, batch normalisation and dropout, which answer differently in training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6 * 36, CLASSES)
        self.modes: list[bool] = []

    def forward(self, x):
        self.modes.append(any(part.training for part in self.modules()))
        return self.head(self.drop(self.stem(x).flatten(1)))


def make_net() -> Net:
    """In training mode, but for one frozen normalisation and one frozen weight."""
    torch.manual_seed(0)
    net = Net()
    for _ in range(3):  # statistics that are not the trivial ones
        net(IMAGES)
    net.stem[1].eval()
    net.stem[0].weight.requires_grad_(False)
    net.modes.clear()
    return net


def facts(module: nn.Module) -> list[object]:
    """All that somebody could find changed about a module."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [
        [(name, part.training) for name, part in module.named_modules()],
        [(n, id(t), t.requires_grad, t.device, t.dtype, t.stride(), t.grad) for n, t in tensors],
        [(n, t.is_inference(), t.tolist()) for n, t in tensors],
        [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in module.modules()],
    ]


def globals_of_torch() -> list[object]:
    return [
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.get_default_dtype(),
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
    ]


def labels_of(net: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return copy.deepcopy(net).eval()(IMAGES).argmax(1)


def attack(net: Net) -> None:
    BruSLe(3, 20)(net, IMAGES, labels_of(net))


def white_box(net: Net) -> None:
    PGD0(3, 20)(net, IMAGES, labels_of(net))


def evaluate(net: Net) -> None:
    brusle.evaluate(net, (IMAGES, labels_of(net)), [BruSLe(3, 20)])


def check(net: Net) -> None:
    brusle.check(net, (IMAGES, labels_of(net)))


def in_several_victims(net: Net) -> None:
    labels = labels_of(net)
    plain, framed = wrap(net, output="logits"), TorchVictim(normalised(net, [0.5] * 3, [2.0] * 3))
    defended = brusle.defences.make("rnd:0.01", as_victim(net))
    for victim in (plain, framed, defended, plain):
        BruSLe(3, 10)(victim, IMAGES, labels)


def from_double(net: Net) -> None:
    """A module of another type and layout than brusle computes in."""
    TorchVictim(net, dtype=torch.float64)(IMAGES)


@pytest.mark.parametrize(
    "use", [attack, white_box, evaluate, check, in_several_victims, from_double]
)
def test_a_module_and_torch_are_given_back_as_they_were(use) -> None:
    net = make_net()
    before, around = facts(net), globals_of_torch()
    use(net)
    assert facts(net) == before  # labels come out of a copy
    assert globals_of_torch() == around
    assert not any(net.modes)  # whenever it was asked, it was in evaluation mode


def test_a_module_that_raises_is_given_back_too() -> None:
    net = make_net()
    labels = labels_of(net)
    before = facts(net)
    asked = 0

    def interrupt(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 4:
            raise KeyboardInterrupt

    victim = TorchVictim(net, fuse=False)
    net.drop.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        BruSLe(3, 20)(victim, IMAGES, labels)
    net.drop._forward_hooks.clear()
    # and once more, in vain, to verify what was finished
    assert asked == 6 and facts(net) == before


def test_an_exported_module_is_given_back(tmp_path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    net = make_net()
    before, around = facts(net), globals_of_torch()
    victim = TorchVictim(net, shape=SHAPE)
    path = export_onnx(victim, tmp_path / "net.onnx")
    assert facts(net) == before and globals_of_torch() == around
    exported = brusle.load_victim(f"onnx:{path}")(IMAGES)
    assert torch.allclose(exported, copy.deepcopy(net).eval()(IMAGES), atol=1e-4)


@pytest.mark.parametrize("name", ["zoo:cifar10-resnet20", "zoo:cifar10-vit"])
def test_opening_a_victim_draws_no_random_numbers_of_the_caller(name) -> None:
    around = globals_of_torch()
    brusle.load_victim(name)
    assert globals_of_torch() == around


def plain_layers() -> nn.Module:
    """The same without a list of its own, so that its normalisation can be merged."""
    torch.manual_seed(0)
    head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6 * 36, CLASSES))
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), *head)


@pytest.mark.parametrize("make", [make_net, plain_layers])
def test_training_goes_on_between_attacks_and_is_noticed(make) -> None:
    """What an attack sees is the module of that moment, not of when it was wrapped."""
    net = make()
    victim = wrap(net, output="logits")
    victim(IMAGES)
    optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.5)
    nn.functional.cross_entropy(net(IMAGES), torch.arange(12) % CLASSES).backward()
    optimiser.step()
    net.train()(IMAGES)  # new running statistics
    with torch.no_grad():
        expected = copy.deepcopy(net).eval()(IMAGES)
    assert torch.allclose(victim(IMAGES), expected, atol=1e-5)
    other = TorchVictim(net, dtype=torch.float64)
    assert torch.allclose(other(IMAGES).float(), expected, atol=1e-5)
    with torch.no_grad():
        next(net.parameters()).mul_(2)
        expected = copy.deepcopy(net).eval()(IMAGES)
    assert torch.allclose(other(IMAGES).float(), expected, atol=1e-5)


def test_layers_with_a_switch_of_their_own_are_switched_by_it() -> None:
    """As LoRA does, which merges weights for evaluation and takes them apart for training."""

    class MergingLinear(Merging, nn.Linear):
        pass

    torch.manual_seed(0)
    layer = MergingLinear(12, 3)
    net = nn.Sequential(nn.Flatten(), layer)
    weight = layer.weight.detach().clone()
    images = torch.rand(5, 3, 2, 2)
    scores = TorchVictim(net)(images)
    assert torch.allclose(scores, images.flatten(1) @ (weight + 1).T + layer.bias, atol=1e-5)
    assert torch.allclose(layer.weight, weight, atol=1e-6)
    assert layer.training and not layer.merged
