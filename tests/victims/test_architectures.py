"""The nets for checkpoints against the code bases whose names they use."""

import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import torch
from random_weights import randomise
from torch import Tensor, nn

import brusle
from brusle import zoo
from brusle.errors import VictimError
from brusle.victims.architectures import ARCHITECTURES, CifarResNet18, ResNet9
from brusle.victims.options import IMAGENET
from brusle.victims.wrappers import normalised
from brusle.zoo.resnet import CIFAR10_MEAN, CIFAR10_STD
from brusle.zoo.vit import Block


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def assert_same_answers(ours: nn.Module, theirs: nn.Module, size: int) -> None:
    images = torch.rand(2, 3, size, size)
    with torch.no_grad():
        expected = theirs(images)
        assert expected.std() > 1e-3
        assert torch.allclose(ours(images), expected, rtol=1e-4, atol=1e-4)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("arch", "name"),
    [("resnet50", "resnet50"), ("resnet50-sin", "resnet50"), ("vit-b-16", "vit_b_16")],
)
def test_nets_of_imagenet_are_torchvisions(torchvision: ModuleType, arch: str, name: str) -> None:
    with torch.device("meta"):
        ours, theirs = ARCHITECTURES[arch].build(1000), torchvision.models.get_model(name)
    assert type(ours) is type(theirs) and shapes(ours) == shapes(theirs)
    assert shapes(ours)[ARCHITECTURES[arch].head][0] == 1000


def test_a_checkpoint_of_torchvisions_layout(torchvision: ModuleType, tmp_path: Path) -> None:
    theirs = randomise(torchvision.models.resnet50(num_classes=7))
    state = {f"module.model.{name}": tensor for name, tensor in theirs.state_dict().items()}
    torch.save({"state_dict": state | {"module.other": torch.zeros(1)}}, tmp_path / "net.pt")
    options = "arch=resnet50&prefix=module.model.&size=64"
    victim = brusle.load_victim(f"checkpoint:{tmp_path}/net.pt?{options}", "cpu")
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = normalised(theirs, IMAGENET.mean, IMAGENET.std)(images)
    assert expected.std() > 1e-3
    assert torch.allclose(victim(images), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("arch", "net"), [("resnet50", "resnet50"), ("vit-b-16", "vit_b_16")])
def test_without_torchvision_the_extra_is_named(monkeypatch, tmp_path, arch, net) -> None:
    torch.save({"fc.weight": torch.zeros(2, 2)}, tmp_path / "net.pt")
    for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(VictimError) as error:
        brusle.load_victim(f"checkpoint:{tmp_path}/net.pt?arch={arch}", "cpu")
    assert str(error.value) == (
        f'torchvision\'s {net} needs the package torchvision: pip install "brusle[torchvision]"'
    )
    ARCHITECTURES["resnet18-cifar"].build(10)  # which is brusle's own


def test_cifar_resnet18_is_torchvisions_with_another_stem(torchvision: ModuleType) -> None:
    """An independent net: torchvision's layers, the stem exchanged, the pooling left out."""
    theirs = torchvision.models.resnet18(num_classes=10)
    theirs.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    theirs.maxpool = nn.Identity()
    randomise(theirs)
    names = {"downsample": "shortcut", "fc.": "linear."}
    state = {}
    for name, tensor in theirs.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = tensor
    ours = CifarResNet18(10).eval()
    ours.load_state_dict(state)
    assert_same_answers(ours, theirs, 32)


def test_resnet50_answers_as_timms(timm: ModuleType) -> None:
    theirs = randomise(timm.create_model("resnet50", num_classes=7))
    ours = ARCHITECTURES["resnet50"].build(7).eval()
    ours.load_state_dict(theirs.state_dict())
    assert_same_answers(ours, theirs, 64)


def test_resnet20_answers_as_torchvisions_blocks(torchvision: ModuleType) -> None:
    """Three stages of three of torchvision's blocks, halved at the start of the last two."""
    ours = zoo.load("cifar10-resnet20").eval()
    block, layers = torchvision.models.resnet.BasicBlock, []
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    for before, after in pairwise(widths):
        step = after // before
        change = nn.Sequential(nn.Conv2d(before, after, 1, 2, bias=False), nn.BatchNorm2d(after))
        layers.append(block(before, after, step, change if step == 2 else None))
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    theirs = nn.Sequential(*stem, *layers, *tail)
    mine = [weight for name, weight in ours.state_dict().items() if name not in ("mean", "std")]
    state = dict(zip(theirs.state_dict(), mine, strict=True))
    theirs.eval().load_state_dict(state)
    assert_same_answers(ours, normalised(theirs, CIFAR10_MEAN, CIFAR10_STD), 32)


def test_blocks_of_the_small_vit_are_torchs_encoder_layers() -> None:
    ours = randomise(Block(96, 3, 3))
    theirs = nn.TransformerEncoderLayer(
        96, 3, 288, activation="gelu", batch_first=True, norm_first=True
    ).eval()
    names = {
        "norm1": "norm1",
        "norm2": "norm2",
        "attention.out": "self_attn.out_proj",
        "mlp.0": "linear1",
        "mlp.2": "linear2",
    }
    state = ours.state_dict()
    copied = {
        f"{new}.{kind}": state[f"{old}.{kind}"]
        for old, new in names.items()
        for kind in ("weight", "bias")
    }
    for kind in ("weight", "bias"):
        copied[f"self_attn.in_proj_{kind}"] = state[f"attention.qkv.{kind}"]
    theirs.load_state_dict(copied)
    tokens = torch.randn(2, 64, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(ours(tokens), theirs(tokens), rtol=1e-4, atol=1e-4)


# Counted by hand: 9 weights for each pair of channels, a bias, and two numbers of batch norm.
RESNET9_BLOCKS = {
    "conv1": 9 * 3 * 64 + 3 * 64,
    "conv2": 9 * 64 * 128 + 3 * 128,
    "res1": 2 * (9 * 128 * 128 + 3 * 128),
    "conv3": 9 * 128 * 256 + 3 * 256,
    "conv4": 9 * 256 * 512 + 3 * 512,
    "res2": 2 * (9 * 512 * 512 + 3 * 512),
    "classifier": 512 * 10 + 10,
}


def test_resnet9_layer_by_layer() -> None:
    """Widths and sizes of the paper's STL-10 net: all four single blocks halve the image."""
    net, seen = ResNet9(10).eval(), {}
    for name, block in net.named_children():
        block.register_forward_hook(lambda _, x, y, name=name: seen.update({name: y.shape[1:]}))
    with torch.no_grad():
        net(torch.rand(1, 3, 96, 96))
    assert {name: tuple(shape) for name, shape in seen.items()} == {
        "conv1": (64, 48, 48),
        "conv2": (128, 24, 24),
        "res1": (128, 24, 24),
        "conv3": (256, 12, 12),
        "conv4": (512, 6, 6),
        "res2": (512, 6, 6),
        "classifier": (10,),
    }
    assert {n: parameters(block) for n, block in net.named_children()} == RESNET9_BLOCKS


@pytest.mark.parametrize(
    ("shifted", "lost"), [("conv1", 1), ("conv2", 2), ("conv3", 4), ("conv4", 8)]
)
def test_resnet9_looks_at_the_image_at_the_right_scale(shifted: str, lost: int) -> None:
    """A convolution that shifts by one column pushes 96 / size columns of the image out.

    All others pass the first channel on, so a white pixel arrives with 4 (two residual pairs add
    it to itself), or not at all.
    """
    net = ResNet9(2).eval()
    with torch.no_grad():
        for name, layer in net.named_modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.weight.zero_()
                layer.bias.zero_()
            if isinstance(layer, nn.Conv2d):
                layer.weight[0, 0, 1, 0 if name == f"{shifted}.0" else 1] = 1
        net.classifier.weight[0, 0] = 1
        images = torch.zeros(2, 3, 96, 96)
        images[0, :, 50, 95 - lost] = images[1, :, 50, 96 - lost] = 1
        assert torch.allclose(net(images)[:, 0], torch.tensor([4.0, 0.0]), atol=1e-3)


def test_resnet9_takes_the_largest_of_what_is_left() -> None:
    net = ResNet9(10).eval()
    features = torch.rand(2, 512, 6, 6)
    net.conv4.register_forward_hook(lambda *_: features)
    net.res2.register_forward_hook(lambda *_: torch.zeros_like(features))
    with torch.no_grad():
        expected = nn.functional.max_pool2d(features, 6).flatten(1) @ net.classifier.weight.T
        assert torch.allclose(net(torch.rand(2, 3, 96, 96)), expected + net.classifier.bias)


def authors_resnet9() -> dict[str, Tensor]:
    """Random weights under the names and in the shapes of the authors' file."""
    torch.manual_seed(0)
    weights = {}
    blocks = {"conv1": (3, 64), "conv2": (64, 128), "conv3": (128, 256), "conv4": (256, 512)}
    blocks |= {f"res1.{at}": (128, 128) for at in (0, 1)} | {
        f"res2.{at}": (512, 512) for at in (0, 1)
    }
    for name, (before, after) in blocks.items():
        weights[f"{name}.0.weight"] = 0.03 * torch.randn(after, before, 3, 3)
        for part in ("0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"):
            weights[f"{name}.{part}"] = torch.rand(after) + 0.5
    return weights | {
        "classifier.3.weight": 0.1 * torch.randn(10, 512),
        "classifier.3.bias": torch.ones(10),
    }


def test_resnet9_reads_the_authors_checkpoint(tmp_path) -> None:
    torch.save(authors_resnet9(), tmp_path / "stl.pth")
    victim = brusle.load_victim(f"checkpoint:{tmp_path}/stl.pth?arch=resnet9-stl", "cpu")
    net = victim.module[1]
    assert isinstance(net, ResNet9)
    assert victim.shape == (3, 96, 96)
    assert victim.classes[7] == "monkey"
    images = torch.rand(2, 3, 96, 96)
    mean, std = torch.tensor([0.4467, 0.4398, 0.4066]), torch.tensor([0.2241, 0.2215, 0.2239])
    normal = (images - mean[:, None, None]) / std[:, None, None]
    with torch.no_grad():
        assert torch.allclose(victim(images), net(normal), rtol=1e-4, atol=2e-3)


def test_deviations_are_those_of_single_images() -> None:
    """The paper's checkpoints and the zoo's nets are normalised by different deviations."""
    images = brusle.data.load("sample").images
    single, pixels = images.std((2, 3)).mean(0), images.transpose(0, 1).flatten(1).std(1)
    known = ARCHITECTURES["resnet18-cifar"].normalisation
    assert known is not None
    # 200 images: a standard error of 0.004 to 0.005
    assert torch.allclose(single, torch.tensor(known.std), atol=0.012)
    assert torch.allclose(pixels, torch.tensor(CIFAR10_STD), atol=0.012)


# ResNet-20: He et al. have 0.27 million; with option A 269 722, and two 1x1 convolutions more here.
PARAMETERS = {
    "resnet18-cifar": 11_173_962,
    "resnet9-stl": 6_575_370,
    "resnet50": 25_557_032,
    "resnet50-sin": 25_557_032,
    "vit-b-16": 86_567_656,
    "resnet20": 269_722 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64),
    "vit": 455_434,
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_parameters_as_published(torchvision: ModuleType, arch) -> None:
    with torch.device("meta"):
        net = ARCHITECTURES[arch].build(1000 if ARCHITECTURES[arch].size == 224 else 10)
    assert parameters(net) == PARAMETERS[arch]
    assert sum(RESNET9_BLOCKS.values()) == PARAMETERS["resnet9-stl"]


def test_the_packages_publish_the_same_numbers(torchvision: ModuleType) -> None:
    for arch, name in (("resnet50", "ResNet50_Weights"), ("vit-b-16", "ViT_B_16_Weights")):
        weights = torchvision.models.get_weight(f"{name}.IMAGENET1K_V1")
        assert weights.meta["num_params"] == PARAMETERS[arch]
