from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import brusle
from brusle.attacks import BruSLe
from brusle.batching import default_batch_size
from brusle.errors import InputError, VictimError
from brusle.victims import TorchVictim, as_victim, normalised, wrap
from brusle.victims.fusion import Fused

X = torch.rand(6, 3, 5, 4)


def small_net() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(24, 3),
    )
    return nn.Sequential(*layers)


def test_a_module_answers_in_evaluation_mode_without_gradients() -> None:
    net = small_net().train()
    victim = TorchVictim(net)
    assert net.training  # the caller's affair
    first, second = victim(X), victim(X)
    assert torch.equal(first, second)  # no dropout, no batch statistics
    assert not first.requires_grad
    assert torch.allclose(first, net.eval()(X), atol=1e-6)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layout_and_dtype_do_not_change_the_answer(channels_last, dtype) -> None:
    expected = small_net().eval()(X)
    victim = TorchVictim(small_net(), dtype=dtype, channels_last=channels_last)
    assert victim(X).dtype == dtype
    assert torch.allclose(victim(X).float(), expected, atol=1e-5)


def test_numpy_functions_get_contiguous_float32_arrays() -> None:
    got: list[np.ndarray] = []

    def function(x: np.ndarray) -> np.ndarray:
        got.append(x)
        return x.reshape(len(x), -1)[:, :3].astype(np.float64)

    victim = wrap(function, output="logits", arrays="numpy")
    scores = victim(X.permute(0, 1, 3, 2))  # a view, as the renderer hands out
    assert got[0].dtype == np.float32
    assert got[0].flags["C_CONTIGUOUS"]
    assert torch.allclose(scores.float(), X.permute(0, 1, 3, 2).flatten(1)[:, :3])


def test_logits_and_probabilities_lead_to_the_same_attack() -> None:
    net = small_net().double().eval()
    labels = net(X.double()).argmax(1)

    def logits(x: torch.Tensor) -> torch.Tensor:
        return net(x.double())

    attack = BruSLe(4, 30)
    a = attack(wrap(logits, output="logits"), X, labels)
    b = attack(wrap(lambda x: logits(x).softmax(1), output="probabilities"), X, labels)
    assert a.queries.tolist() == b.queries.tolist()
    assert torch.equal(a.images, b.images)


def test_declarations_are_checked_against_the_answers() -> None:
    probabilities = wrap(lambda x: torch.rand(len(x), 4).softmax(1), output="logits", name="p")
    with pytest.raises(VictimError, match="p is declared to give logits.*probabilities"):
        probabilities(X)
    logits = wrap(lambda x: torch.randn(len(x), 4) * 3, output="probabilities", name="l")
    with pytest.raises(VictimError, match="declare output='logits'"):
        logits(X)
    one_hot = wrap(lambda x: torch.eye(4)[:1].repeat(len(x), 1), output="logits")
    assert one_hot(X).shape == (6, 4)  # a rule-based model may answer so


def test_a_plain_function_must_be_declared() -> None:
    with pytest.raises(InputError, match=r"brusle\.victims\.wrap\(function, output='logits'"):
        BruSLe(3)(lambda x: x, X, 0)
    with pytest.raises(InputError, match="is no victim"):
        as_victim(3)
    with pytest.raises(InputError, match="choose from logits, probabilities, confidences"):
        wrap(small_net(), output="scores")  # type: ignore[arg-type]
    with pytest.raises(VictimError, match="returned tuple"):
        TorchVictim(_Tuple())(X)


class _Tuple(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x.flatten(1), 1


def test_normalised_divides_per_channel() -> None:
    net = normalised(nn.Identity(), mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    expected = torch.stack([(X[:, 0] - 0.1) / 0.5, X[:, 1] - 0.2, (X[:, 2] - 0.3) / 2], 1)
    assert torch.allclose(net(X), expected)
    with pytest.raises(InputError, match="std above 0"):
        normalised(nn.Identity(), (0.0,), (0.0,))


def test_unknown_names_and_devices() -> None:
    with pytest.raises(InputError, match="known are zoo:cifar10-resnet20"):
        brusle.load_victim("zoo:resnet9000")
    with pytest.raises(InputError, match="try 'cpu'"):
        brusle.load_victim("zoo:cifar10-resnet20", device="quantum")


def test_batch_sizes_follow_the_image_size() -> None:
    cpu = torch.device("cpu")
    assert default_batch_size((3, 32, 32), cpu) == 256
    assert default_batch_size((3, 224, 224), cpu) == 20
    assert default_batch_size((3, 4000, 4000), cpu) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_same_rows_on_cuda() -> None:
    from models import integer_model, own_labels, random_images

    model = integer_model((3, 12, 12), 5)
    images = random_images(20, (3, 12, 12))
    labels = own_labels(model, images)
    on_cuda = wrap(lambda x: model(x.cpu()).cuda(), output="logits", device="cuda")
    a, b = (BruSLe(3, 40)(v, images, labels) for v in (model.victim(), on_cuda))
    assert a.queries.tolist() == b.queries.tolist()
    assert torch.equal(a.images, b.images)


# grey images before colour nets: arithmetic would stretch them without a word


def grey_nets() -> dict[str, Any]:
    """Models that normalise three channels themselves, so that one would do for arithmetic."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(3600, 10))
    return {
        "normalised": normalised(net, (0.5, 0.4, 0.3), (0.2, 0.2, 0.2)),
        "resnet": brusle.zoo.load("cifar10-resnet20"),
        "vit": brusle.zoo.load("cifar10-vit"),
        "named": brusle.load_victim("zoo:cifar10-resnet20", device="cpu"),
        "defended": brusle.defences.make("rnd:0.02", brusle.load_victim("zoo:cifar10-resnet20")),
        "declared": wrap(lambda x: x.flatten(1)[:, :5], output="logits", shape=(3, 32, 32)),
    }


@pytest.mark.parametrize("name", ["normalised", "resnet", "vit", "named", "defended", "declared"])
def test_grey_images_are_not_stretched_to_colours(name) -> None:
    victim = grey_nets()[name]
    colour = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    attack = BruSLe(pixels=2, queries=2)
    attack(victim, colour, [0, 1])
    with pytest.raises(InputError, match="images (have 1 channel|are 1 x 32 x 32)") as caught:
        attack(victim, colour[:, :1], [0, 1])
    assert "\n" not in str(caught.value)


def test_one_mean_for_all_channels_is_fine() -> None:
    net = normalised(nn.Flatten(), (0.5,), (0.25,))
    x = torch.rand(2, 3, 4, 4)
    assert torch.allclose(net(x), ((x - 0.5) / 0.25).flatten(1))


def test_checking_channels_does_not_keep_layers_from_being_merged() -> None:
    net = grey_nets()["normalised"].eval()
    assert Fused(net).quick is not net
    x = torch.rand(2, 3, 32, 32)
    assert torch.allclose(Fused(net).quick(x), net(x), atol=1e-5)
