"""``brusle serve`` as a user starts and ends it."""

import json
import os
import re
import signal
import subprocess

import httpx
import pytest
from entry import run
from served import COMMAND, base64_png, served


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_when_it_is_ready_and_ends_when_told(number) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--as", "google-vision"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    line = process.stdout.readline()
    found = re.fullmatch(
        r"zoo:cifar10-resnet20 answers at (http://127\.0\.0\.1:\d+); "
        r"attack it with: brusle evaluate --victim '(.*)'\n",
        line,
    )
    assert found and found[2] == f"google-vision:{found[1]}?size=32,32"
    assert httpx.get(f"{found[1]}/-/books").json()["calls"] == 0
    process.send_signal(number)
    rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_books_outlive_a_kill_and_hold_no_key(tmp_path, images) -> None:
    file = tmp_path / "books.jsonl"
    options = ("--as", "json", "--books", file, "--key", "MY_KEY", "--defence", "label")
    with served(*options, MY_KEY="very-secret") as server:
        asked = {"image": base64_png(images[0])}
        url = f"{server.url}/classify"
        assert httpx.post(url, json=asked).status_code == 401
        answer = httpx.post(url, json=asked, headers={"X-Api-Key": "very-secret"})
        assert answer.json()["labels"] == [{"label": "airplane", "score": 1.0}]
        server.process.kill()
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["outcome"], line["images"]) == ("answered", 1)
    assert "very-secret" not in file.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--key", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE is not set"),
        (("--latency", "soon"), "latency 'soon' is none"),
        (("--rate", "soon"), "rate 'soon' is none"),
        (("--fail", 0.8, "--drop", 0.8), "shares of the calls"),
        (("--fail", 2), "not in the range"),
        (("--host", "256.0.0.1"), "cannot listen"),
        (("--as", "soap"), "soap"),
        (("--books", "/no/such/folder/file"), "/no/such/folder/file"),
    ],
)
def test_a_wrong_request_is_one_line(options, message) -> None:
    answer = run("serve", *options)
    assert answer.returncode == 2 and message in answer.stderr and not answer.stdout
    assert "Traceback" not in answer.stderr


def test_it_warns_when_others_can_reach_it() -> None:
    answer = run("serve", "--host", "0.0.0.0", "--rate", "soon")
    first, second = answer.stderr.splitlines()
    assert first == "warning: 0.0.0.0 can be reached from other machines"
    assert second.startswith("error: rate")
