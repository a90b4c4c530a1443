"""Variables of the environment are set for a while, and then as they were."""

import os

import pytest

from brusle.environment import environment


def test_what_was_there_comes_back_and_what_was_not_is_gone(monkeypatch) -> None:
    monkeypatch.setenv("BRUSLE_KEPT", "before")
    monkeypatch.delenv("BRUSLE_NEW", raising=False)
    seen: list[str] = []

    def fail() -> None:
        with environment({"BRUSLE_KEPT": "x", "BRUSLE_NEW": "y"}):
            seen.extend(os.environ[name] for name in ("BRUSLE_KEPT", "BRUSLE_NEW"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen == ["x", "y"]
    assert os.environ["BRUSLE_KEPT"] == "before" and "BRUSLE_NEW" not in os.environ
