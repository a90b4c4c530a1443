from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from asking import Sleeps
from hostile_services import Answer, Hostile, scored
from torch import Tensor


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
def served() -> Iterator[Callable[..., Hostile]]:
    servers: list[Hostile] = []

    def start(answer: Answer = scored, **options: Any) -> Hostile:
        servers.append(Hostile(answer, **options).__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__()


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (40, 3, 4, 4), generator=generator).float() / 255
