"""``brusle completion``."""

from __future__ import annotations

import click

from brusle.cli.output import print_text

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_BRUSLE_COMPLETE"  # click's own name for it


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the lines that make SHELL complete commands, options, their words and files.

    \b
    eval "$(brusle completion bash)"                                in ~/.bashrc
    eval "$(brusle completion zsh)"                                 in ~/.zshrc, after compinit
    brusle completion fish > ~/.config/fish/completions/brusle.fish
    """  # noqa: D301 - click reads the backspace character as "keep these lines"
    from click.shell_completion import get_completion_class

    from brusle.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    print_text(kind(cli, {}, "brusle", _VARIABLE).source())
