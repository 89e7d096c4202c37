"""The table of all commands: those of the client with their modules, those of the server, and their order in the help.

Reading the table imports no command, so that commands start fast.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from taskstore.types.bulk import ACTIONS

from .program import MANAGE, typed_as

if TYPE_CHECKING:
    from taskstore.cli.program import Program

PACKAGE = "taskstore.cli"
COMPLETION = "_TASKSTORE_COMPLETE"  # Set by the shell's part of the completion, see click.
HELP = ("help", "--help", "-h")
OPTIONS = {"data": ""}  # The typed option ` --data DIR`, which hints have to repeat.

BULK = {action.command: f"change:{name}" for name, action in ACTIONS.items()}
COMMANDS = {
    "groups": "read:groups",
    "stats": "read:stats",
    "watch": "following:watch",
    "ls": "read:ls",
    "show": "read:show",
    "search": "read:search",
    "history": "read:history",
    "workers": "read:workers",
    "add": "working:add",
    "claim": "working:claim",
    "update": "working:update",
    "delete": "working:delete",
    **BULK,
    "operations": "change:operations",
    "undo": "change:undo",
    "stop": "change:stop",
    "pause": "change:pause",
    "resume": "change:resume",
    "limits": "limits:limits",
    "batches": "batches:batches",
    "export": "files:export",
    "import": "files:import_",
    "job": "jobs:job",
    "schedule": "schedules:schedule",
    "commands": "taskstore_project.shell_worker:commands",
    "work": "taskstore_project.job_worker:work",
    "completion": "program:completion",
}

# The commands of the server.
SERVERS_COMMANDS = {
    "up": "Run the server in one process: console, REST API and gRPC.",
    "serve": "Run the server in several processes, on PostgreSQL, for heavy traffic.",
    "token": "Create, list and revoke access tokens for programs.",
    "backup": "Back up the whole store to a file.",
    "restore": "Restore a backup into an empty store.",
    "verify": "Check the store for damage.",
}

# The commands of a checkout: a wheel has no lab.
LAB_COMMANDS = {
    "demo": "Watch workers process tasks while some of them are killed.",
    "bench": "Measure the speed of the store on this machine.",
    "soak": "Measure a steady load for hours.",
    "chaos": "Break servers, databases and networks, and check the store's guarantees.",
    "cluster": "Run several nodes with database failover on this machine.",
    "faults": "Seed faults into the product, and say which tests notice them.",
    "docs": "Generate reference pages and screenshots of the documentation.",
    "test": "Run all checks and tests.",
}

# In the order of the help.
SECTIONS = {
    "Run a server": ("up", "serve", "token", "backup", "restore", "verify"),
    "View the store": ("groups", "stats", "watch", "ls", "show", "search", "history", "workers"),
    "Work with tasks": ("add", "claim", "update", "delete", "batches", "export", "import"),
    "Change many tasks": (*BULK, "operations", "undo", "stop", "pause", "resume", "limits"),
    "Jobs, schedules and shell commands": ("job", "work", "schedule", "commands"),
    "Demo and development": ("demo", "bench", "soak", "chaos", "cluster", "docs", "faults", "test"),
    "Your shell": ("completion",),
}


def asked_for(arguments: Sequence[str]) -> list[str] | None:
    """Return the arguments for `run` if they name a command of the client or its help; None otherwise."""
    match arguments:
        case _ if COMPLETION in os.environ:
            return list(arguments)
        case [name, *_] if name in COMMANDS:
            return list(arguments)
        case ["help", name, *_] if name in COMMANDS:
            return [name, "--help"]
    return None


def is_for_help(arguments: Sequence[str]) -> bool:
    """Return whether the arguments ask for the list of commands."""
    return not arguments or (len(arguments) == 1 and arguments[0] in HELP)


def names() -> list[str]:
    """Return the names of all commands of this project."""
    return [*COMMANDS, *_others()]


def _others() -> dict[str, str]:
    """Return the commands that are not the client's, with their descriptions."""
    return {**SERVERS_COMMANDS, **(LAB_COMMANDS if MANAGE.exists() else {})}


def named(arguments: Sequence[str]) -> str:
    """Return the named command, also when only its help is requested; empty when none is named."""
    match arguments:
        case ["help", name, *_] | [name, *_] if name not in ("help", "version") and not name.startswith("-"):
            return name
    return ""


def run(arguments: Sequence[str]) -> None:
    """Run a command of the client, and end the process with its exit code."""
    program().main(args=list(arguments), prog_name=typed_as(), complete_var=COMPLETION)


def summary(*, has_server: bool) -> str:
    """Return the list of commands for `--help`."""
    from click import Context

    made = program(has_server=has_server)
    return made.get_help(Context(made, info_name=typed_as()))


def program(*, has_server: bool = True) -> Program:
    from taskstore.cli.program import Program

    places = {name: place if "." in place else f"{PACKAGE}.{place}" for name, place in COMMANDS.items()}
    return Program(
        places,
        others=_others(),
        sections={title: [name for name in section if name in names()] for title, section in SECTIONS.items()},
        has_others=has_server and bool(find_spec("django")),
        options=OPTIONS["data"],
    )
