"""The commands that ask a server, as a program on any machine would: where each of them is.

A table that can be read without importing them: the other commands should not wait for that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks_app.client.command_line.program import Program

PACKAGE = "tasks_app.client.command_line"
PROGRAM = "taskstore"
SERVERS_COMMANDS = Path(__file__).parent / "management" / "commands"
COMPLETION = "_TASKSTORE_COMPLETE"  # Set by the shell's half of the completion, see click.
HELP = ("help", "--help", "-h")

COMMANDS = {
    "groups": "looking:groups",
    "stats": "looking:stats",
    "watch": "watching:watch",
    "ls": "looking:ls",
    "show": "looking:show",
    "search": "looking:search",
    "history": "looking:history",
    "workers": "looking:workers",
    "add": "working:add",
    "claim": "working:claim",
    "update": "working:update",
    "delete": "working:delete",
    "requeue": "changing:requeue",
    "move": "changing:move",
    "purge": "changing:purge",
    "operations": "changing:operations",
    "undo": "changing:undo",
    "cancel": "changing:cancel",
    "pause": "pausing:pause",
    "resume": "pausing:resume",
    "export": "files:export",
    "import": "files:import_",
    "job": "jobs:job",
    "schedule": "schedules:schedule",
    "commands": "taskstore_project.commands_worker:commands",
    "work": "taskstore_project.work_command:work",
    "completion": "completing:completion",
}


def asked_for(arguments: Sequence[str]) -> list[str] | None:
    """The arguments for `run`, where they name one of these commands or its help; None: something else is meant."""
    match arguments:
        case _ if COMPLETION in os.environ:
            return list(arguments)
        case [name, *_] if name in COMMANDS:
            return list(arguments)
        case ["help", name, *_] if name in COMMANDS:
            return [name, "--help"]
    return None


def is_for_help(arguments: Sequence[str]) -> bool:
    """Whether somebody wants to know what commands there are."""
    return not arguments or (len(arguments) == 1 and arguments[0] in HELP)


def run(arguments: Sequence[str]) -> None:
    """Run one of the commands, and end the process with its exit code."""
    program().main(args=list(arguments), prog_name=PROGRAM)


def summary() -> str:
    """The list of the commands, as `--help` shows it."""
    from click import Context

    made = program()
    return made.get_help(Context(made, info_name=PROGRAM))


def program() -> Program:
    from tasks_app.client.command_line.program import Program

    places = {name: place if "." in place else f"{PACKAGE}.{place}" for name, place in COMMANDS.items()}
    return Program(places, others=servers_commands() if find_spec("django") else ())


def servers_commands() -> list[str]:
    """Those of this project that Django runs."""
    return sorted(file.stem for file in SERVERS_COMMANDS.glob("[a-z]*.py"))
