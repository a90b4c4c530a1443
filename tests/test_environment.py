"""Variables of the environment are set for a while, and then as they were."""

import os

import pytest

from brusle.environment import environment


def test_what_was_there_comes_back_and_what_was_not_is_gone(monkeypatch) -> None:
    monkeypatch.setenv("BRUSLE_KEPT", "before")
    monkeypatch.delenv("BRUSLE_NEW", raising=False)
    with pytest.raises(KeyError), environment({"BRUSLE_KEPT": "x", "BRUSLE_NEW": "y"}):
        assert (os.environ["BRUSLE_KEPT"], os.environ["BRUSLE_NEW"]) == ("x", "y")
        raise KeyError
    assert os.environ["BRUSLE_KEPT"] == "before" and "BRUSLE_NEW" not in os.environ
