"""The program `taskstore`: a click group that imports commands when they are needed, and its shell completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

LONGEST_SENTENCE = 200  # Characters of a summary, which is wrapped.

HELP = """Task Store: run a server, or work with one from any machine that can reach it.

Client commands use the server at --url or TASKSTORE_URL. The default is the server on this machine, which needs no
token; --data DIR or TASKSTORE_DATA names its data directory. Other servers require a token: --token or TASKSTORE_TOKEN.

Exit codes: 0 success, 1 rejected or not found, 2 wrong usage, 3 the server is not responding, 4 not allowed.
"""
NOT_INSTALLED = 'Not installed here; pip install "taskstore[server]" adds: '


class Program(click.Group):
    """The root command.

    `places`: the location `package.module:variable` of each command, by name. `others`: Django's commands with their
    summaries, which appear in the help and in completion; `has_others`: whether they are installed. `sections`: all
    names as grouped in the help. `options`: the common options typed, which hints must repeat.
    """

    def __init__(
        self,
        places: Mapping[str, str],
        others: Mapping[str, str],
        *,
        sections: Mapping[str, Sequence[str]],
        has_others: bool,
        options: str = "",
    ) -> None:
        super().__init__(name="taskstore", help=HELP)
        self.options = options
        self._places, self._others, self._has_others, self._sections = places, others, has_others, sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module, _, variable = self._places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), variable)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self._sections.items():
            lines = [(name, self._in_short(ctx, name)) for name in names if name in self._places or self._has_others]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def _in_short(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return command.get_short_help_str(LONGEST_SENTENCE) if command else self._others[name]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(f"`{ctx.info_name} COMMAND --help` shows the options of a command.")
        if self._has_others:
            formatter.write_text(f"`{ctx.info_name} help --commands` also lists Django's own commands.")
        else:
            formatter.write_text(f"{NOT_INSTALLED}{', '.join(self._others)}.")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        others = self._others if self._has_others else ()
        beside = [CompletionItem(name) for name in others if name.startswith(incomplete)]
        return super().shell_complete(ctx, incomplete) + beside


# ---- The completion of commands, options and the names of groups in a shell


SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion", short_help="Print the completion script for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script: put eval "$(taskstore completion bash)" into ~/.bashrc."""
    root = ctx.find_root()
    name = root.command.name or ""
    click.echo(SHELLS[shell](root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
