"""The program `taskstore` as click sees it: commands that are imported when they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module

import click
from click.shell_completion import CompletionItem

HELP = """Work with a Task Store from any machine that reaches its server.

The server is that of --url or TASKSTORE_URL, else the one that runs on this machine, of which server.json in the data
folder tells address and token. Elsewhere a token comes with --token or TASKSTORE_TOKEN.

Exit codes: 0 done, 1 refused or nothing there, 2 typed wrongly, 3 the server is away, 4 not allowed.
"""


class Program(click.Group):
    """`places`: where each command is, by its name: `package.module:variable`.

    `others`: names that are no commands of this program, but stand beside them and are completed like them.
    """

    def __init__(self, places: Mapping[str, str], others: Iterable[str] = ()) -> None:
        super().__init__(name="taskstore", help=HELP, epilog="Each command has --help.")
        self._places, self._others = places, others

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module, _, variable = self._places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), variable)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        beside = [CompletionItem(name) for name in self._others if name.startswith(incomplete)]
        return super().shell_complete(ctx, incomplete) + beside
