"""Does what a page says, block by block, in a process of its own: `play`."""

import contextlib
import io
import json
import linecache
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

SECONDS = 400  # for one block
LOCAL = """import socket

def local(function):
    def inner(self, address, *rest):
        host = address[0] if isinstance(address, tuple) else "localhost"
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"the tests of the documentation have no network: {host}")
        return function(self, address, *rest)
    return inner

socket.socket.connect = local(socket.socket.connect)
socket.socket.connect_ex = local(socket.socket.connect_ex)
"""
OFFLINE = {
    "DO_NOT_TRACK": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "offline",
}


def play(
    name: str, page: str, folder: Path, slow: bool = True, installed: Path | None = None
) -> str:
    """Do what a page says in an empty folder; what is wrong, or nothing.

    Args:
        name: of the page, for messages.
        page: its text.
        folder: where; it gets a folder ``work`` for the page, and others.
        slow: blocks that are slow, too.
        installed: the programs of an environment in which brusle is installed; None is this
            checkout.
    """
    from blocks import blocks, port

    todo = [
        asdict(block) | {"text": block.tested, "notes": block.notes}
        for block in blocks(page)
        if slow or "slow" not in block.notes
    ]
    work = folder / "work"
    work.mkdir(parents=True)
    script = {"name": name, "page": page, "blocks": todo, "port": port(page)}
    (folder / "script.json").write_text(json.dumps(script))
    done = subprocess.run(
        [installed / "python" if installed else sys.executable, __file__, folder / "script.json"],
        cwd=work,
        env=environment(folder, installed),
        input="\n" * 9,  # whoever asks for Enter gets it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode else ""


def environment(folder: Path, installed: Path | None = None) -> dict[str, str]:
    """Commands of this checkout or of what is installed, a home that is empty, and no network."""
    programs, local = folder / "programs", folder / "local"
    programs.mkdir()
    local.mkdir()
    (local / "sitecustomize.py").write_text(LOCAL)
    commands = {
        "python": sys.executable,
        "brusle": f"{sys.executable} -c 'from brusle.cli import main; main()'",
    }
    if installed:
        commands = {program: str(installed / program) for program in commands}
    for program, words in commands.items():
        path = programs / program
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)
    tests = Path(__file__).parent
    paths = [local] if installed else [local, tests.parent / "src", tests]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BRUSLE_")}
    return kept | {
        **OFFLINE,
        "COLUMNS": "80",
        "HOME": str(folder),
        "MPLBACKEND": "agg",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(map(str, paths)),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


class Wrong(Exception):
    """A block does not do what the page says."""


class Player:
    """One page being played."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.name, self.page, self.port = script["name"], script["page"], script["port"]
        self.blocks = script["blocks"]
        self.free = _free_port() if self.port else ""
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.groups: list[int] = []
        lines = [line + "\n" for line in self.page.splitlines()]
        linecache.cache[self.name] = (len(self.page), None, lines, self.name)

    def play(self) -> None:
        """All blocks, in their order."""
        try:
            for block in self.blocks:
                try:
                    self._do(block)
                except Wrong as wrong:
                    raise SystemExit(f"{self.name}, line {block['line']}: {wrong}") from None
        finally:
            for group in self.groups:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)

    def _do(self, block: dict[str, Any]) -> None:
        notes, text = block["notes"], self._with_port(block["text"])
        if name := notes.get("file"):
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif block["language"] == "python":
            self._compare(block, self._python(text, block["line"]))
        elif block["language"] == "shell" and "background" in notes:
            self._start(text)
        elif block["language"] == "shell":
            self._compare(block, self._shell(text, int(notes.get("exit", 0))))

    def _with_port(self, text: str) -> str:
        return re.sub(rf"\b{self.port}\b", self.free, text) if self.port else text

    def _compare(self, block: dict[str, Any], printed: str) -> None:
        if self.port:
            printed = printed.replace(self.free, self.port)
        if block["output"] is not None and not fits(block["output"], printed, block["part"]):
            raise Wrong(f"the page says\n{block['output']}\nbut this is printed:\n{printed}")

    def _python(self, text: str, line: int) -> str:
        printed = io.StringIO()
        try:
            code = compile("\n" * (line - 1) + text, self.name, "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, self.names)
        except (Exception, SystemExit) as error:
            lines = traceback.format_exception(error.with_traceback(_below(error)))
            raise Wrong(f"{''.join(lines)}\n{printed.getvalue()}") from None
        return printed.getvalue()

    def _shell(self, text: str, expected: int) -> str:
        out, errors = Path("../stdout"), Path("../stderr")
        with out.open("w") as stdout, errors.open("w") as stderr:
            process = self._popen(text, stdout, stderr)
            try:
                code = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                code = None
        printed = out.read_text(), errors.read_text()
        if code != expected:
            what = f"no end after {SECONDS} s" if code is None else f"exit code {code}"
            raise Wrong(f"{what}\n{text}\n{printed[0]}\n{printed[1]}")
        return printed[0]

    def _start(self, text: str) -> None:
        """What goes on while the page is played, ready when it has printed something."""
        said = Path(f"../background-{len(self.groups)}")
        with said.open("w") as out:
            process = self._popen(text, out, out)
        began = time.monotonic()
        while not said.stat().st_size or "\n" not in said.read_text():
            if process.poll() or time.monotonic() - began > SECONDS:  # a shell may end before it
                raise Wrong(f"it says nothing\n{text}\n{said.read_text()}")
            time.sleep(0.05)
        time.sleep(0.2)
        if process.poll():
            raise Wrong(f"exit code {process.returncode}\n{text}\n{said.read_text()}")

    def _popen(self, text: str, stdout: Any, stderr: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self.groups.append(process.pid)
        return process


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _below(error: BaseException) -> Any:
    """The traceback without the player's own frame."""
    return error.__traceback__ and error.__traceback__.tb_next


def fits(expected: str, printed: str, part: bool = False) -> bool:
    """Whether a text is what was expected, in which ``...`` stands for anything within a line, and
    for any number of lines if it is alone in one.
    """
    lines = []
    for line in _lines(expected):
        pieces = map(re.escape, line.split("..."))
        lines.append(r"(?:.*\n)*?" if line.strip() == "..." else f"{'.*?'.join(pieces)}\n")
    pattern, text = "".join(lines), "".join(f"{line}\n" for line in _lines(printed))
    if part:
        return re.search(f"^{pattern}", text, re.MULTILINE) is not None
    return re.fullmatch(pattern, text) is not None


def _lines(text: str) -> list[str]:
    """Without spaces at ends of lines, and empty lines around them."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


if __name__ == "__main__":
    Player(json.loads(Path(sys.argv[1]).read_text())).play()
