"""The key to a service is in nothing that a command writes, whatever the service does."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

import entry
import numpy as np
import pytest
from hostile_services import Hostile, Request, response
from PIL import Image
from rehearsing import NET, brusle
from served import served

from brusle.data import load
from brusle.serving import Server

SIDE = 96  # Rekognition takes no smaller images


@dataclass(frozen=True)
class Way:
    """How a victim carries its key.

    Attributes:
        name: of the victim, with URL for the address.
        format: of the service.
        variables: environment variables that hold the key.
        others: further ones.
    """

    name: str
    format: str
    variables: tuple[str, ...]
    others: tuple[tuple[str, str], ...] = ()


WAYS = {
    "header": Way("rest:header.yaml", "json", ("SERVICE_KEY",)),
    "query": Way("rest:query.yaml", "google-vision", ("SERVICE_KEY",)),
    "google": Way(f"google-vision:URL?size={SIDE}", "google-vision", ("GOOGLE_API_KEY",)),
    "token": Way(f"google-vision:URL?size={SIDE}", "google-vision", ("GOOGLE_ACCESS_TOKEN",)),
    "hugging face": Way(
        f"huggingface-api:URL/models/cifar10-resnet20?size={SIDE}", "json", ("HF_TOKEN",)
    ),
    "rekognition": Way(
        f"rekognition:URL?size={SIDE}",
        "rekognition",
        ("AWS_ACCESS_KEY_ID",),
        (("AWS_SECRET_ACCESS_KEY", "an-AWS/secret+4711"),),
    ),
    "oip": Way("oip:URL/cifar10-resnet20?token=SERVICE_KEY", "oip", ("SERVICE_KEY",)),
}
TEMPLATES = {
    "header.yaml": """
url: URL/classify
headers: {X-Api-Key: "${SERVICE_KEY}", X-Other: "key ${SERVICE_KEY}"}
body: {json: {image: "{image.base64}"}}
answer: {scores: "$.labels[*].score", labels: "$.labels[*].label", version: $.version}
""",
    "query.yaml": """
url: URL/v1/images:annotate?key=${SERVICE_KEY}
body:
  json: {requests: [{image: {content: "{image.base64}"}, features: [{type: LABEL_DETECTION}]}]}
answer:
  scores: "$.responses[0].labelAnnotations[*].score"
  labels: "$.responses[0].labelAnnotations[*].description"
""",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to work in, with photographs that every service takes, and without credentials."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("brusle.victims.remote.tries._FIRST", 0.01)
    for way in WAYS.values():
        for variable in way.variables:
            monkeypatch.delenv(variable, raising=False)
    few = load("sample").balanced(2)
    for at, (image, label) in enumerate(zip(few.images, few.labels.tolist(), strict=True)):
        folder = Path("photos") / few.classes[label]
        folder.mkdir(parents=True, exist_ok=True)
        levels = (image.numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
        Image.fromarray(levels).resize((SIDE, SIDE)).save(folder / f"{at}.png")


class Secret:
    """A key that no other test has, and everything that was printed while it was used."""

    def __init__(self, kind: str, way: Way, patch: pytest.MonkeyPatch) -> None:
        self.way, self._patch = way, patch
        self.key = f"k3y/{kind.replace(' ', '-')}+Zx9=".replace("=", "" if way.others else "=")
        if way.others:
            self.key = self.key.replace("/", "-").replace("+", "-")  # it stands between slashes
        self.said = ""
        self.set(self.key)
        for name, value in way.others:
            patch.setenv(name, value)

    def set(self, key: str) -> None:
        for variable in self.way.variables:
            self._patch.setenv(variable, key)

    def victim(self, url: str) -> str:
        for name, text in TEMPLATES.items():
            Path(name).write_text(text.replace("URL", url))
        return self.way.name.replace("URL", url)

    def run(self, *words: object) -> int:
        done = entry.run(*words)
        assert "Traceback" not in done.stderr
        assert all(len(line) <= 1000 for line in done.stderr.splitlines())
        self.said += done.stdout + done.stderr
        return done.returncode

    def evaluate(self, url: str, *options: object) -> int:
        data = "sample" if self.way.format == "oip" else "folder:photos"
        return self.run(
            *("evaluate", "--victim", self.victim(url), "--data", data, "--limit", 2),
            *("--goal", "untargeted", "--attack", "brusle", "--pixels", 20, "--queries", 4),
            *("--out", "run", *options),
        )

    def require_kept(self, *more: str) -> None:
        """The key is nowhere, in no form."""
        secrets = [self.key, *(value for _, value in self.way.others), *more]
        forms = {form for one in secrets for form in (one, quote(one, safe=""), quote_plus(one))}
        for form in forms:
            assert form not in self.said
            for file in Path().rglob("*"):
                assert not file.is_file() or form.encode() not in file.read_bytes(), file


@pytest.fixture(params=WAYS)
def secret(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Secret:
    return Secret(request.param, WAYS[request.param], monkeypatch)


@pytest.mark.slow
def test_a_run_with_a_key(secret: Secret) -> None:
    with Server(NET, secret.way.format, key=secret.key, fail=0.2, drop=0.1, books="b") as server:
        assert secret.evaluate(server.url) == 0, secret.said
        assert secret.evaluate(server.url, "--json") == 0
        data = "sample" if secret.way.format == "oip" else "folder:photos"
        check = ("check", "--victim", secret.victim(server.url), "--data", data)
        secret.run(*check)
        secret.run(*check, "--json")
        assert secret.run("report", "run") == 0 and Path("run/report.html").exists()
        assert server.books.as_dict()["answered"] > 4
        secret.require_kept()
        secret.set("wr0ng-key-Zx8")
        assert secret.evaluate(server.url, "--out", "other") == 3
        assert secret.run(*check) == 3
    secret.require_kept("wr0ng-key-Zx8")


def echo(request: Request) -> str:
    """Everything that came, as services say it that debug."""
    carried = {**request.headers, "path": request.path}
    return "".join(f"{name}={value} " for name, value in carried.items())


async def slow(request: Request) -> bytes:
    await asyncio.sleep(0.5)
    return response(echo(request))


ECHOES: dict[str, Callable[[Request], object]] = {
    "busy": lambda r: response({"error": echo(r)}, 503, X_Echo=echo(r)),
    "refused": lambda r: response({"error": {"message": echo(r)}}, 403, X_Echo=echo(r)),
    "image": lambda r: response({"__type": "Invalid", "message": echo(r)}, 400),
    "nonsense": lambda r: response(echo(r)),
    "other format": lambda r: response([echo(r)]),
    "redirect": lambda r: response("", 302, Location=f"http://127.0.0.1:1/{echo(r)}"),
    "no HTTP": lambda r: f"{echo(r)}\r\n\r\n".encode(),
    "slow": slow,
}


def labels(request: Request) -> bytes:
    """An answer in all formats at once, whose labels say what came, as does the version."""
    found = [*request.headers.values(), request.path, "cat"]
    rows = [
        {"label": one, "score": 0.5, "description": one, "mid": one, "Name": one, "Confidence": 60}
        for one in found
    ]
    body = {
        "labels": rows,
        "version": echo(request),
        "responses": [{"labelAnnotations": rows}],
        "Labels": rows,
        "LabelModelVersion": echo(request),
    }
    return response(rows if "/models/" in request.path else body)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ECHOES)
@pytest.mark.parametrize("way", ["header", "query", "rekognition"])
def test_services_that_say_the_key(way: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret(f"{way}-{kind}", WAYS[way], monkeypatch)
    with Hostile(ECHOES[kind], count_images=lambda _: 1) as server:
        # a template finds no label in another format, which is what services say of some images
        assert secret.evaluate(server.url, "--timeout", 0.2) == 3 or kind == "other format"
        secret.run("check", "--victim", secret.victim(server.url), "--data", "folder:photos")
    assert server.calls
    secret.require_kept()


@pytest.mark.parametrize("way", [name for name in WAYS if name != "oip"])
def test_services_whose_labels_are_the_key(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret(f"{way}-labels", WAYS[way], monkeypatch)
    with Hostile(labels, count_images=lambda _: 1) as server:
        secret.evaluate(server.url)
        secret.run("check", "--victim", secret.victim(server.url), "--data", "folder:photos")
        secret.run("report", "run")
    assert len(server.calls) > 2 and Path("run/journal.sqlite").exists()
    secret.require_kept()


def test_another_host_gets_neither_images_nor_key(secret: Secret) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)
        away = f"http://127.0.0.1:{other.getsockname()[1]}/steal"
        moved = response("", 307, Location=away)
        with Hostile(lambda _: moved, moved, count_images=lambda _: 1) as server:
            assert secret.evaluate(server.url) == 3
        assert "redirects to http://127.0.0.1:" in secret.said
        with pytest.raises(BlockingIOError):
            other.accept()
    secret.require_kept()


@pytest.mark.slow
def test_commands_of_their_own(tmp_path: Path) -> None:
    """As above, in processes that have met no other key."""
    key = "k3y-of/its+own="
    with served("--victim", NET, "--as", "json", "--key", "HIDDEN", HIDDEN=key) as ready:
        for name, text in TEMPLATES.items():
            Path(name).write_text(text.replace("URL", ready.url))
        words = ("evaluate", "--victim", "rest:header.yaml", "--data", "folder:photos")
        run = ("--limit", 2, "--pixels", 20, "--queries", 8, "--attack", "brusle", "--out", "run")
        right = brusle(*words, *run, "--json", SERVICE_KEY=key)
        wrong = brusle(*words, "--out", "other", SERVICE_KEY="wr0ng/key")
    assert (right.returncode, wrong.returncode) == (0, 3), right.stderr
    said = right.stdout + right.stderr + wrong.stdout + wrong.stderr
    files = [file.read_bytes() for file in Path().rglob("*") if file.is_file()]
    for form in (key, quote(key, safe=""), "wr0ng/key"):
        assert form not in said and not any(form.encode() in content for content in files)
