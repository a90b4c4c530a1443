"""``brusle studio`` as a user starts and ends it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import webbrowser
from typing import Any

import httpx
import pytest
from entry import run
from stores import make_run, row, setting

from brusle.serving import Server

COMMAND = (sys.executable, "-c", "from brusle.cli import main; main()", "studio")


def started(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def client_of(said: dict[str, Any]) -> httpx.Client:
    headers = {"X-Brusle-Token": said["token"]}
    return httpx.Client(base_url=f"http://127.0.0.1:{said['port']}", headers=headers, timeout=60)


def test_it_ends_with_ctrl_c_in_the_middle_of_an_attack() -> None:
    process = started("--json")
    said = json.loads(process.stdout.readline())
    assert said["url"] == f"http://127.0.0.1:{said['port']}/?token={said['token']}"
    with client_of(said) as client:
        asked = {"victim": 0, "data": 0, "row": 0}
        image = client.post("/api/images/data", json=asked).json()["image"]
        slow = {"image": image, "attack": "brusle", "pace": 1}
        with client.stream("POST", "/api/attacks", json=slow) as stream:
            next(line for line in stream.iter_lines() if "point" in line)
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_it_offers_what_is_named_first_and_ends_when_told(tmp_path, monkeypatch) -> None:
    make_run(tmp_path / "mine", [(setting(), [row(1)])])
    process = started("mine", "--victim", "zoo:cifar10-vit", "--data", "sample", "--json")
    with client_of(json.loads(process.stdout.readline())) as client:
        offers = client.get("/api/offers").json()
        names = [victim["name"] for victim in offers["victims"]]
        assert names[0] == "zoo:cifar10-vit" and len(set(names)) == len(names) > 5
        assert offers["data"] == ["sample"]
        assert client.get("/api/runs").json()["runs"] == [{"run": 0, "name": "mine"}]
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_browser_opens_only_if_that_is_asked_for(monkeypatch) -> None:
    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        os.kill(os.getpid(), signal.SIGINT)
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    answer = run("studio", "--open")
    (line,) = answer.stdout.splitlines()
    found = re.fullmatch(r"the studio is at (http://127\.0\.0\.1:\d+/\?token=\S+) \(.*\)", line)
    assert answer.returncode == 0 and opened == [found[1]]


@pytest.mark.parametrize("victim", ["google-vision:", "rekognition:eu-west-1", "rest:no.yaml"])
def test_services_are_refused_before_anything_is_asked(victim) -> None:
    answer = run("studio", "--victim", victim)
    (line,) = answer.stderr.splitlines()
    assert answer.returncode == 2 and f"{victim} is a service" in line
    assert "attack it with `brusle attack`" in line and not answer.stdout


def test_a_service_on_this_machine_is_refused_too(monkeypatch, tmp_path) -> None:
    with Server("zoo:cifar10-resnet20", "oip") as server:
        answer = run("studio", "--victim", server.name)
        assert answer.returncode == 2 and "is a service" in answer.stderr
        # nor does a function of one's own hide it
        opened = f"brusle.load_victim({server.name!r}, 'cpu')"
        code = f"import brusle\ndef make():\n    return {opened}\n"
        (tmp_path / "hidden_service.py").write_text(code)
        monkeypatch.syspath_prepend(str(tmp_path))
        answer = run("studio", "--victim", "python:hidden_service:make")
        assert answer.returncode == 2 and "is a service" in answer.stderr
        assert server.books.as_dict()["calls"] == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("no-such-run",), 2, "no-such-run holds no run"),
        (("--victim", "zoo:no-such"), 2, "unknown victim"),
        (("--victim", "no-such"), 2, "unknown victim"),
        (("--device", "no-such", "--victim", "zoo:cifar10-vit"), 2, "no-such"),
        (("--port", "99999"), 2, "99999"),
        (("--host", "0.0.0.0"), 2, "No such option"),
    ],
)
def test_a_wrong_request_is_one_line(options, code, message) -> None:
    answer = run("studio", *options)
    assert answer.returncode == code and message in answer.stderr and not answer.stdout
    assert "Traceback" not in answer.stderr


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = run("studio", "--port", port)
    assert answer.returncode == 2
    assert f"cannot listen on port {port} of 127.0.0.1" in answer.stderr


def test_without_the_extra_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    answer = run("studio")
    assert answer.returncode == 3
    assert 'the studio needs the package starlette: pip install "brusle[serve]"' in answer.stderr
