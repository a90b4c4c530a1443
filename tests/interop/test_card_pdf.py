"""The card as a PDF, by WeasyPrint, which gets nothing from elsewhere."""

import json
import socket
import subprocess
from shutil import which

import pytest
from entry import run as command
from stores import make_run, rows_of, setting

pytestmark = pytest.mark.interop


@pytest.fixture
def folder(tmp_path):
    names = ["cat", "<img src=http://127.0.0.1:9/x.png>", "emu"]
    parts = [(setting(), rows_of([1] * 6, 4)), (setting("Mine", pixels=9), rows_of([1] * 8, 2))]
    make_run(tmp_path / "run", parts, classes=names, victim=names[1]).store.close()
    return tmp_path / "run"


def test_a_card_is_a_pdf_and_no_socket_is_opened(folder, tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    said = command("card", folder, "--out", tmp_path / "card.pdf", "--json")
    assert said.returncode == 0
    data = (tmp_path / "card.pdf").read_bytes()
    assert data.startswith(b"%PDF-") and b"/Image" in data  # the curves
    assert json.loads(said.stdout)["parts"]["untested"]["points"]


@pytest.mark.skipif(which("pdftotext") is None, reason="there is no pdftotext")
def test_it_says_what_the_page_says(folder, tmp_path) -> None:
    assert command("card", folder, "--out", tmp_path / "card.pdf").returncode == 0
    assert command("card", folder, "--out", tmp_path / "card.json").returncode == 0
    text = subprocess.run(
        ["pdftotext", "-layout", tmp_path / "card.pdf", "-"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    flat = " ".join(text.split())
    card = json.loads((tmp_path / "card.json").read_text())
    for part in card["parts"].values():
        assert part["heading"] in flat
        for point in part["points"]:
            assert " ".join(point.split()) in flat
    assert card["parts"]["provenance"]["facts"]["SHA-256 of the rows"] in flat
