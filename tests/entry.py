"""The entry point of the command line, in this process: starting one costs more than a command."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from brusle.cli import main


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    words = [str(argument) for argument in arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["brusle", *words])
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
            main()
    code = end.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
