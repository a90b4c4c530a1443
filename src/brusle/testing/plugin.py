"""What brusle brings to pytest, which finds it by itself (entry point ``pytest11``).

It is imported at the start of every test run of whoever has brusle installed, so it imports next to
nothing: PyTorch is loaded when a test calls the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import brusle.testing


@pytest.fixture(scope="session", name="assert_robust")
def assert_robust_fixture() -> Callable[..., Any]:
    """`brusle.testing.assert_robust`: raises unless a model is surely robust enough."""
    return brusle.testing.assert_robust
