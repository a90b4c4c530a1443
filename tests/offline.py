"""Hugging Face's packages as tests use them: nothing of theirs may leave the machine."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
os.environ.update(SETTINGS)  # read when the packages are imported


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket is opened, and their caches are of this test."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a test wants to talk to somebody")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
