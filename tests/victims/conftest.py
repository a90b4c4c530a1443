"""RobustBench as the tests need it, and small nets to write into files."""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from random_weights import randomise
from torch import Tensor, nn


@pytest.fixture(scope="session")
def robustbench(timm: ModuleType) -> ModuleType:
    """RobustBench; AutoAttack, which it imports and no test calls, is on PyPI as pyautoattack."""
    if find_spec("robustbench") is None:
        pytest.skip("robustbench is not installed")
    if "autoattack" not in sys.modules and find_spec("autoattack") is None:
        if find_spec("pyautoattack") is None:
            pytest.skip("robustbench needs autoattack, which is not installed")
        for name in ("pyautoattack", "pyautoattack.state"):
            sys.modules[name.replace("pyautoattack", "autoattack")] = import_module(name)
    return import_module("robustbench.utils")


@pytest.fixture
def small_vit(torchvision: ModuleType) -> nn.Module:
    """A transformer with the layers of ViT-B/16, for 32 x 32 images."""
    sizes = {"image_size": 32, "patch_size": 16, "num_layers": 2, "num_heads": 2}
    net = torchvision.models.VisionTransformer(**sizes, hidden_dim=16, mlp_dim=64, num_classes=5)
    return randomise(net)


class SmallNet(nn.Module):
    """Five classes, 3 x 12 x 10 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.head = nn.Linear(6 * 10 * 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn(self.conv(x))).flatten(1))


@pytest.fixture
def net() -> nn.Module:
    return randomise(SmallNet())


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (7, 3, 12, 10), generator=generator).float() / 255
