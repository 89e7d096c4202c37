"""The completion of commands, options and the names of groups in a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion", short_help="Print the completion script for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script: put eval "$(taskstore completion bash)" into ~/.bashrc."""
    root = ctx.find_root()
    name = root.command.name or ""
    click.echo(SHELLS[shell](root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
