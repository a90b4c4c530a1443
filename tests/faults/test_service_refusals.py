"""What is refused before anything is sent to a service: one line, and no packet."""

import re
import socket
from pathlib import Path

import anyio
import entry
import numpy as np
import pytest
import torch
from hostile_services import response
from rehearsing import evaluation, misbehaving, name_of, net

AWAY = "oip:http://192.0.2.1:8000/m"  # an address that nobody has (RFC 5737)


class Connected(Exception):
    """Somebody would have been asked."""


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Where connections would have gone; none is made."""
    monkeypatch.delenv("BRUSLE_AUTHORISED", raising=False)
    monkeypatch.setattr("brusle.victims.remote.connecting._TRIES", 1)
    made: list[object] = []

    def connect(self: socket.socket, address: object) -> None:
        made.append(address)
        raise OSError("no packet leaves this test")

    async def connect_tcp(remote_host: str, remote_port: int, **_: object) -> None:
        made.append((remote_host, remote_port))
        raise OSError("no packet leaves this test")

    # the event loop may be one that asks no socket of Python's
    monkeypatch.setattr(anyio, "connect_tcp", connect_tcp)
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect)
    return made


def refused(*words: object, code: int = 2) -> str:
    """The one line of a command that is refused."""
    said = entry.run(*words)
    (line,) = said.stderr.splitlines()
    assert said.returncode == code and not said.stdout
    assert len(line) <= 1000
    return line


COMMANDS = {
    "evaluate": ("evaluate", "--limit", 2),
    "dry run": ("evaluate", "--limit", 2, "--dry-run"),
    "check": ("check",),
    "pairs": ("pairs",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_others_are_not_asked_without_a_word(command, attempts, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(*COMMANDS[command], "--victim", AWAY)
    assert line == (
        "error: http://192.0.2.1:8000 is not on this machine: test only what you own or are "
        "authorised to test, and say so with --i-am-authorised"
    )
    assert not attempts and not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_the_word_is_taken(how, attempts, tmp_path, monkeypatch) -> None:
    words = evaluation(AWAY, tmp_path / "run")
    if how == "flag":
        words = (*words, "--i-am-authorised")
    else:
        monkeypatch.setenv("BRUSLE_AUTHORISED", "1")
    line = refused(*words, code=3)
    assert line.startswith(f"error: {AWAY} does not answer")
    assert attempts == [("192.0.2.1", 8000)]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("oip:", "needs an address such as|is not complete|write oip:"),
        ("oip:ftp://127.0.0.1/m", "needs an address such as http://127.0.0.1:8000/resnet"),
        ("oip:http://127.0.0.1:99999/m", "needs an address such as"),
        ("oip:http://user:secret@127.0.0.1/m", "has a password: take it out"),
        ("oip:http://127.0.0.1:1/m?colour=red", "colour"),
        ("oip:http://127.0.0.1:1/m?type=float99", "float99"),
        ("google-vision:http://127.0.0.1:1?match=smell", "smell"),
        ("rest:no-such-file.yaml", "no-such-file.yaml"),
    ],
)
def test_wrong_names(name, told, attempts) -> None:
    line = refused("evaluate", "--victim", name)
    assert re.search(told, line) and "secret" not in line
    assert not attempts


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("google-vision:", "GOOGLE_API_KEY"),
        ("huggingface-api:owner/model", "HF_TOKEN"),
        ("rekognition:eu-west-1", "AWS_ACCESS_KEY_ID"),
        ("rest:service.yaml", "NO_SUCH_KEY"),
    ],
)
def test_a_missing_key_is_named(name, variable, attempts, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for known in ("GOOGLE_ACCESS_TOKEN", "AWS_PROFILE", variable):
        monkeypatch.delenv(known, raising=False)
    Path("service.yaml").write_text(
        "url: http://127.0.0.1:1/x\nheaders: {X-Api-Key: '${NO_SUCH_KEY}'}\n"
        "body: {raw: png}\nanswer: {scores: $.scores, labels: $.labels}\n"
    )
    line = refused("evaluate", "--victim", name, "--i-am-authorised")
    assert variable in line and not attempts


def test_a_service_that_is_not_there(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("brusle.victims.remote.connecting._TRIES", 1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = refused(*evaluation(f"oip:http://127.0.0.1:{port}/m", tmp_path / "run"), code=3)
    assert "does not answer" in line and not (tmp_path / "run").exists()


def test_what_cannot_be_with_a_service(tmp_path) -> None:
    with misbehaving(net) as server:
        words = evaluation(name_of(server), tmp_path / "run")
        assert "leave out --workers" in refused(*words, "--workers", 2)
        assert "leave --defence out" in refused(*words, "--defence", "rnd:0.02")
        assert "a budget needs a price" in refused(*words, "--budget", 3)
        assert "rate 'often' is none" in refused(*words, "--rate", "often")
        assert "price 'much' is none" in refused(*words, "--price", "much")
    assert not server.calls, "nothing was asked"


def test_data_without_names_of_classes(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    images = torch.rand(4, 3, 32, 32).numpy()
    np.savez(tmp_path / "data.npz", images=images, labels=np.arange(4))
    with misbehaving(lambda _: response({"responses": []})) as server:
        words = ("--data", f"npz:{tmp_path / 'data.npz'}", "--out", tmp_path / "run")
        line = refused("evaluate", "--victim", f"google-vision:{server.url}", *words)
    assert "give data with class names" in line and not server.calls
