"""The ten minutes of docs/remote.md, run as they are written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import blocks
from served import served

PAGE = Path(__file__).parents[2] / "docs" / "remote.md"


def commands() -> list[str]:
    """The commands of the rehearsal, without the one that starts the server."""
    text = PAGE.read_text(encoding="utf-8")
    rehearsal = text[text.index("**1. Rehearse.**") : text.index("**6. The real one.**")]
    shell = "".join(block.text for block in blocks(rehearsal) if block.language == "shell")
    return re.findall(r"^brusle .*$", re.sub(r"\\\n\s*", "", shell), re.M)


def test_the_page_rehearses_every_step() -> None:
    assert [line.split()[1] for line in commands()] == [
        "serve", "check", "evaluate", "evaluate", "verify", "evaluate",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_rehearsal_works_as_written(tmp_path) -> None:
    serve, *steps = commands()
    said = []
    options = shlex.split(serve)[2:]
    at = options.index("--port")
    with served(*options[:at], *options[at + 2 :]) as server:
        for step in steps:
            words = shlex.split(step.replace("http://127.0.0.1:8080", server.url))
            done = subprocess.run(
                [sys.executable, "-c", "from brusle.cli import main; main()", *words[1:]],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"
            said.append(done.stdout)
    tried, price, attacked, verified, replayed = said
    assert "understood" in tried and "labelAnnotations" in tried
    assert "nothing was asked" in price and "worst case" in price
    assert "images were sent" in attacked
    assert re.search(r"(\d+) of \1 successes hold", verified)
    assert "images were sent" not in replayed
    rows = [(tmp_path / "runs" / name / "rows.csv").read_text() for name in ("rehearsal", "again")]
    assert rows[0] == rows[1]
