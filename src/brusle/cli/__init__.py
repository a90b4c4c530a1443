"""The command line. One thin file per command, imported when it is used.

Exit codes: 0 all is well; 1 ``brusle attack`` found no adversarial image; 2 the request was
wrong; 3 the victim failed, on one image or on all, or a stored success does not hold
(``brusle verify``); 130 interrupted.
"""

from __future__ import annotations

import shlex
import sys
from importlib import import_module

import click

from brusle import __version__
from brusle.errors import BrusleError, VictimError

NOT_FOUND, BAD_INPUT, VICTIM_FAILED, INTERRUPTED = 1, 2, 3, 130
_COMMANDS = {
    "attack": "Attack one image file and write the adversarial PNG.",
    "check": "Look at a victim and data before an evaluation.",
    "evaluate": "Attack many images; print a table and write a run folder.",
    "reproduce": "Run a table of the BruSLe paper; print our numbers beside the paper's.",
    "status": "Say how far the evaluation in a run folder is.",
    "report": "Write a run folder as one HTML page, or as Markdown.",
    "compare": "Compare runs, or the attacks of one, with intervals.",
    "verify": "Ask the victim again for every success in a run folder.",
    "export": "Write the rows and adversarial images of a run folder in other formats.",
    "data": "Fetch data sets that are not bundled.",
    "pairs": "Choose images and target classes for evaluations, and write them down.",
    "list": "List attacks, victims, data, defences and presets by their names.",
}


class _Lazy(click.Group):
    """A group that imports a command only when it runs: ``--help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"brusle.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


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
    failed, 130 interrupted.
    """  # noqa: D301 - click reads the backspace character as "keep these lines"


def main() -> None:
    """Entry point: errors that are meant for the user are one line on standard error."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort as error:
        click.echo("\n".join(["interrupted", *_how_to_go_on(error.__cause__)]), err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(BAD_INPUT)
    except BrusleError as error:
        click.echo("\n".join([f"error: {error}", *_how_to_go_on(error)]), err=True)
        sys.exit(VICTIM_FAILED if isinstance(error, VictimError) else BAD_INPUT)
    except OSError as error:  # a full disk, a folder without rights
        click.echo(f"error: {error.filename or 'a file'}: {error.strerror or error}", err=True)
        sys.exit(BAD_INPUT)
    sys.exit(code if isinstance(code, int) else 0)


def _how_to_go_on(error: BaseException | None) -> list[str]:
    """What an evaluation that was ended has stored, and the command that does the rest."""
    stored = getattr(error, "__notes__", [])
    command = shlex.join(["brusle", *sys.argv[1:]])
    return [*stored, f"the same command goes on: {command}"] if stored else []
