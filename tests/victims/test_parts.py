"""Modules that return more than one tensor."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from random_weights import randomise
from torch import Tensor, nn

import brusle
from brusle.errors import InputError, VictimError
from brusle.victims import TorchVictim, export_onnx, normalised, wrap
from brusle.victims.fingerprints import fingerprint

Two = namedtuple("Two", ["features", "out"])


@dataclass
class Held:
    logits: Tensor
    features: Tensor


SHAPES = {
    "dict": lambda logits, features: {"features": features, "logits": logits},
    "scores": lambda logits, features: {"hidden": features[:, :, None], "scores": logits},
    "tuple": lambda logits, features: (logits, features),
    "named tuple": lambda logits, features: Two(features, logits),
    "object": lambda logits, features: Held(logits, features),
}
WHERE = {"dict": "logits", "scores": "scores", "tuple": 0, "named tuple": "out", "object": "logits"}


class Net(nn.Module):
    """Returns logits and features in some shape."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = shape
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def features(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x))).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Any:
        features = self.features(x)
        return SHAPES[self.shape](self.head(features), features)


def plain(net: Net, images: Tensor) -> Tensor:
    with torch.no_grad():
        return net.eval().head(net.features(images))


def net_of(shape: str) -> Net:
    return randomise(Net(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_offered_is_what_works(shape, images) -> None:
    """A refusal names what came back and the call that puts it right, which does."""
    net = net_of(shape)
    with pytest.raises(VictimError, match=r"Net returned .*\(7 x 5\).*: say which") as said:
        brusle.attacks.BruSLe(2, 10)(net, images, torch.zeros(7, dtype=torch.int64))
    offer = str(said.value).partition("as in ")[2]
    assert repr(WHERE[shape]) in offer
    victim = eval(offer, {"brusle": brusle, "model": net})  # the very words of the message
    assert torch.allclose(victim(images), plain(net, images), atol=1e-6)


def test_the_attack_on_a_part_is_the_attack_on_the_logits(images) -> None:
    net = net_of("dict")
    with torch.no_grad():
        net.head.bias.sub_(plain(net, images).mean(0))  # so that labels differ and can change
    labels = plain(net, images).argmax(1)
    attack = brusle.attacks.BruSLe(40, 60)
    whole = attack(wrap(net, output="logits", scores="logits"), images, labels)
    bare = attack(nn.Sequential(net, _Pick()), images, labels)
    assert torch.equal(whole.images, bare.images) and torch.equal(whole.queries, bare.queries)
    assert whole.success.any()


class _Pick(nn.Module):
    def forward(self, answer: dict[str, Tensor]) -> Tensor:
        return answer["logits"]


def test_gradients_go_through_the_part(images) -> None:
    net = net_of("tuple")
    victim = wrap(net, output="logits", scores=0)
    leaf = images.clone().requires_grad_()
    victim.graph(leaf)[:, 1].sum().backward()
    other = images.clone().requires_grad_()
    net.eval().head(net.features(other))[:, 1].sum().backward()
    assert torch.allclose(leaf.grad, other.grad, atol=1e-6)
    assert float(leaf.grad.abs().max()) > 0


def test_it_is_looked_into_and_exported_like_any_other(images, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    net = net_of("tuple")
    victim = wrap(net, output="logits", scores=0, shape=(3, 12, 10))
    exported = brusle.load_victim(f"onnx:{export_onnx(victim, tmp_path / 'net.onnx')}", "cpu")
    assert torch.allclose(exported(images), plain(net, images), atol=1e-4)
    assert len(exported._session.get_outputs()) == 1
    labels = torch.arange(7) % 5
    bare = brusle.looking.look(nn.Sequential(net, _First()), images, labels, how="gradcam")
    told = brusle.looking.look(victim, images, labels, how="gradcam")
    assert np.allclose(told.maps, bare.maps, atol=1e-5) and bare.maps.std() > 0


class _First(nn.Module):
    def forward(self, answer: tuple[Tensor, Tensor]) -> Tensor:
        return answer[0]


def test_layers_and_weights_are_known_by_their_own_names(images) -> None:
    """A module that returns one tensor is used as it is, and a part changes no fingerprint."""
    net = net_of("tuple")
    only = TorchVictim(nn.Sequential(net, _First()))
    only(images)
    with only.borrowed() as module:
        assert module is only.module
    part = wrap(net, output="logits", scores=0)
    part(images)
    with part.borrowed() as module:
        assert torch.allclose(module(images), plain(net, images), atol=1e-6)
        assert not module.training
    assert fingerprint(part) == fingerprint(TorchVictim(net))


def test_what_cannot_be_picked_is_refused(images) -> None:
    for victim, pattern in (
        (wrap(net_of("dict"), output="logits", scores="logit"), "scores='logits'"),
        (wrap(net_of("tuple"), output="logits", scores=2), "returned tuple with 0 .7 x 5., 1 "),
        (wrap(nn.Flatten(), output="logits", scores=0), "returned one tensor and no 0: leave sco"),
        (wrap(_Nothing(), output="logits"), "returned list, which has no tensors: give a module"),
    ):
        with pytest.raises(VictimError, match=pattern):
            victim(images)
    with pytest.raises(InputError, match="can return its scores alone"):
        wrap(lambda x: x, output="logits", scores=0)


class _Nothing(nn.Module):
    def forward(self, images: Tensor) -> list[str]:
        return ["cat"] * len(images)


def test_normalisation_may_stand_in_front(images) -> None:
    net = net_of("dict")
    victim = wrap(normalised(net, [0.5] * 3, [0.2] * 3), output="logits", scores="logits")
    assert torch.allclose(victim(images), plain(net, (images - 0.5) / 0.2), atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_programs_in_files_say_it_in_their_names(images, tmp_path) -> None:
    net = net_of("tuple").eval()
    torch.jit.save(torch.jit.trace(net, images), tmp_path / "net.ts")
    dynamic = ({0: torch.export.Dim("batch", min=1, max=5)},)
    torch.export.save(
        torch.export.export(net, (images[:3],), dynamic_shapes=dynamic), tmp_path / "net.pt2"
    )
    for kind, file in (("torchscript", "net.ts"), ("export", "net.pt2")):
        name = f"{kind}:{tmp_path / file}"
        victim = brusle.load_victim(f"{name}?scores=0", "cpu")
        assert torch.allclose(victim(images), plain(net, images), atol=1e-5)
        with pytest.raises(VictimError, match="in its name, as in scores=0"):
            brusle.load_victim(name, "cpu")(images)
