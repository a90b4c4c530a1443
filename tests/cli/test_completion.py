"""``brusle completion``, in the shells that are there."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from brusle.cli import _COMMANDS

BRUSLE = Path(sys.executable).with_name("brusle")


def printed(*arguments: str) -> str:
    done = subprocess.run([BRUSLE, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def in_bash(tmp_path: Path, *words: str) -> list[str]:
    """What bash offers for the last of ``words``."""
    listed = " ".join(f"'{word}'" for word in words)
    script = f"""
    source '{tmp_path / "completion"}'
    COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}
    compopt() {{ echo "files:$*"; }}
    _brusle_completion '{BRUSLE}'
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    (tmp_path / "completion").write_text(printed("completion", "bash"))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_options_words_and_files(tmp_path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    assert set(in_bash(tmp_path, "brusle", "")) == set(_COMMANDS)
    assert in_bash(tmp_path, "brusle", "eva") == ["evaluate"]
    assert in_bash(tmp_path, "brusle", "attack", "--que") == ["--queries"]
    assert in_bash(tmp_path, "brusle", "evaluate", "--goal", "t") == ["targeted"]
    assert in_bash(tmp_path, "brusle", "report", "ru")[0].startswith("files:")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_lines_are_those_of_the_shell_and_parse(shell) -> None:
    lines = printed("completion", shell)
    assert "_BRUSLE_COMPLETE" in lines and f"{shell}_complete" in lines
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=lines, text=True, check=True)


def test_completing_loads_no_torch() -> None:
    """Whoever presses a key does not wait for that."""
    code = (
        "import sys, click\n"
        "from brusle.cli import cli\n"
        "for name in cli.list_commands(None): cli.get_command(None, name)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
