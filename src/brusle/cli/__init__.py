"""The command line. One thin file per command, imported when it is used.

Exit codes: 0 all is well; 1 ``brusle attack`` found no adversarial image; 2 the request was
wrong; 3 the victim failed, on one image or on all, or something stored does not hold
(``brusle verify``); 4 ``brusle gate`` fails a run, and 5 it has too few images to tell; 70 a bug in
brusle; 130 interrupted; 141 whoever read the output has left.
An error is one line; with the variable BRUSLE_TRACEBACK=1 it comes with where it arose.
"""

from __future__ import annotations

import os
import select
import shlex
import sys
import threading
import traceback
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from brusle.books import SpendingLimit
from brusle.cli.output import say
from brusle.errors import BrusleError, InputError, VictimError, first_line
from brusle.leaving import end, no_hard_exit
from brusle.text import shortened, shown
from brusle.version import __version__

NOT_FOUND, BAD_INPUT, VICTIM_FAILED, BUG, INTERRUPTED, NO_READER = 1, 2, 3, 70, 130, 141
EXIT_OF = {"pass": 0, "fail": 4, "undecided": 5}  # of `brusle gate`
_LONG = 1000  # letters of an error: names in it may be of any length
_COMMANDS = {
    "attack": "Attack one image file and write the adversarial PNG.",
    "check": "Look at a victim and data before an evaluation.",
    "evaluate": "Attack many images; print a table and write a run folder.",
    "reproduce": "Run a table of the BruSLe paper; print our numbers beside the paper's.",
    "status": "Say how far the evaluation in a run folder is.",
    "explain": "Draw what happened to images of a run folder, and how it was found.",
    "report": "Write a run folder as one HTML page, or as Markdown.",
    "film": "Write one search of a run folder as a film of a few seconds.",
    "card": "Write what a run folder is evidence of, and of what not: a robustness card.",
    "gate": "Pass or fail a run by its robust accuracy, or say that images are too few to tell.",
    "compare": "Compare runs, or the attacks of one, with intervals.",
    "verify": "Look at every row of a run folder, and ask the victim again for every success.",
    "export": "Write the rows and adversarial images of a run folder in other formats.",
    "log": "Write what a run folder holds to MLflow, Weights & Biases or TensorBoard.",
    "studio": "Watch attacks live in a page on this machine, and run folders being written.",
    "serve": "Put a victim behind an HTTP server that imitates a service.",
    "victim": "Write a template for a service that brusle knows no format of.",
    "data": "Fetch data sets that are not bundled.",
    "pairs": "Choose images and target classes for evaluations, and write them down.",
    "completion": "Print the lines that make a shell complete brusle's commands and options.",
    "list": "List attacks, victims, data, defences and presets by their names.",
}


class _Escaped(Exception):  # noqa: N818 - not an error by itself
    """An exception that click must not see."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class _Lazy(click.Group):
    """A group that imports a command only when it runs: ``--help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]  # `list` is a command here, once it is imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"brusle.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; click would take some of our errors for its own.

        It ends with code 1 when a connection breaks, and takes the end of a file for Ctrl-C.
        """
        try:
            return super().invoke(ctx)
        except (EOFError, BrokenPipeError) as error:
            raise _Escaped(error) from error
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # of a plugin's own kind, or SystemExit
            raise _Escaped(error) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="brusle")
def cli() -> None:
    """Measure how robust an image classifier is to a handful of changed pixels.

    Test only models that you own or are authorised to test.

    \b
    brusle evaluate                      the demo: bundled classifier and images
    brusle attack cat.png --target dog   one image
    brusle COMMAND --help                all options of a command

    Exit codes: 0 fine, 1 no adversarial image found (attack), 2 wrong request, 3 the victim
    failed, 4 not robust enough and 5 too few images to tell (gate), 70 a bug in brusle
    (BRUSLE_TRACEBACK=1 shows where), 130 interrupted.
    """  # noqa: D301 - click reads the backspace character as "keep these lines"


def main() -> None:
    """Entry point: errors are one line on standard error."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as that of errors is from the start
    others = {*threading.enumerate()}
    try:
        with no_hard_exit():
            code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort as error:
        _complain("interrupted", error.__cause__)
        code = INTERRUPTED
    except click.ClickException as error:
        error.message = shortened(shown(error.message), _LONG)  # type: ignore[misc]
        error.show()
        code = BAD_INPUT
    except _Escaped as escaped:
        code = _failed(escaped.error)
    except Exception as error:
        code = _failed(error)
    end(code if isinstance(code, int) else 0, others)


def _failed(error: BaseException) -> int:
    """One line on standard error; returns the exit code."""
    if isinstance(error, BrokenPipeError) and _nobody_reads():
        return NO_READER
    code, text = _verdict(error)
    if os.environ.get("BRUSLE_TRACEBACK"):
        traceback.print_exception(error)
    _complain(f"error: {text}", error)
    return code


def _complain(text: str, error: BaseException | None) -> None:
    """A line, and how to go on, each on one line whatever names are in it."""
    for line in (shortened(text, _LONG), *_how_to_go_on(error)):
        say(line, err=True)


def _verdict(error: BaseException) -> tuple[int, str]:
    if isinstance(error, BrusleError):
        return VICTIM_FAILED if isinstance(error, VictimError) else BAD_INPUT, str(error)
    if isinstance(error, SystemExit):  # brusle itself does not end in the middle of a command
        return VICTIM_FAILED, f"code of the victim tried to end the program ({error.code})"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
        # a full disk, a folder without rights
        return BAD_INPUT, f"{error.filename or 'a file'}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return BAD_INPUT, "not enough memory: give fewer or smaller images"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return BUG, (
        f"{first_line(error)} ({os.path.basename(place.filename)}, line {place.lineno}): this is a "
        f"bug in brusle, please report it with what BRUSLE_TRACEBACK=1 shows"
    )


def _nobody_reads() -> bool:
    """Whether standard output is closed at the other end, as by ``| head -1``."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)
    closed = bool(watch.poll(0))  # only errors are reported that nobody asked for
    if closed:
        # or Python complains when it flushes at the very end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return closed


def _how_to_go_on(error: BaseException | None) -> list[str]:
    """What an evaluation that was ended has stored, and the command that does the rest."""
    stored: list[str] = getattr(error, "__notes__", [])
    if not stored or isinstance(error, InputError | SpendingLimit):  # the same would end as soon
        return stored
    return [*stored, f"the same command goes on: {shlex.join(['brusle', *sys.argv[1:]])}"]
