import pytest
import torch

import brusle


@pytest.fixture(scope="session")
def victim():
    return brusle.load_victim("zoo:cifar10-resnet20", "cpu")


@pytest.fixture(scope="session")
def images() -> torch.Tensor:
    return brusle.data.load("sample").images[:4]
