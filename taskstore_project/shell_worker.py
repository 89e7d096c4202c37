"""`taskstore commands worker`: the command that starts a worker of shell commands."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Sequence
from typing import Any

import click

from taskstore.cli import parameter_types
from taskstore.cli.base import Left, Mistake, Scope, Session, command
from taskstore.cli.commands_read import commands
from taskstore.client.client import Client
from taskstore.errors import InvalidInput

__all__ = ["commands", "worker"]

FACTOR = click.FloatRange(min=0.1, max=1_000)


@command("worker", needs=Scope.COMMANDS, below=commands)
@click.argument("projects", nargs=-1, required=True, metavar="PROJECT...")
@click.option(
    "--name", default="", metavar="TEXT", help="Name shown in files and in the console [default: host and process]."
)
@click.option("--lists-at-once", type=click.IntRange(min=1, max=1_000), default=1, show_default=True, metavar="N",
              help="Lists to run at the same time; the commands of a list run one after the other.")  # fmt: skip
@click.option(
    "--shell", default="/bin/sh", show_default=True, metavar="FILE", help="Shell to use; it is run with -c LINE."
)
@click.option("--cwd", metavar="DIR", help="Working directory of the commands [default: this one].")
@click.option("--env", type=parameter_types.pair, multiple=True, metavar="NAME=VALUE",
              help="Additional environment variable; may be repeated.")  # fmt: skip
@click.option("--memory", "memory_bytes", type=parameter_types.size_bytes, metavar="SIZE",
              help="Memory limit of a command and its child processes, such as 512MiB.")  # fmt: skip
@click.option("--timeout-factor", type=FACTOR, default=2, show_default=True, metavar="N",
              help="Kill a command that takes this many times its expected duration.")  # fmt: skip
@click.option("--least-timeout", "least_timeout_ms", type=parameter_types.duration_ms, default="30s", show_default=True,
              metavar="TIME", help="Minimum time limit of a command.")  # fmt: skip
@click.option("--output-limit", "output_bytes", type=parameter_types.size_bytes, default="10MiB", show_default=True,
              metavar="SIZE", help="How much of each output to keep; of a longer one half from each end.")  # fmt: skip
@click.option("--output", type=click.Choice(["copy", "store", "raw"]), default="store", show_default=True,
              help="Where outputs go beside the store: nowhere (store), or to standard error, each line with the id of "
                   "its command (copy) or without (raw).")  # fmt: skip
@click.option("--allow-stderr", is_flag=True, help="Don't count what is written to standard error as a failure.")
@click.option("--lease-factor", type=FACTOR, default=2, show_default=True, metavar="N",
              help="With --no-renew, the lease of a list as a multiple of its expected duration.")  # fmt: skip
@click.option("--least-lease", "least_lease_ms", type=parameter_types.lease_ms, default="1min", show_default=True,
              metavar="TIME", help="Minimum lease of a list.")  # fmt: skip
@click.option("--renew/--no-renew", default=True, show_default=True,
              help="Renew the lease of a list while it runs, or lease it for its expected duration.")  # fmt: skip
@click.option("--burst", "until_empty", is_flag=True, help="Stop when no list is open and no command is new.")
@click.option("--burst-wait", "burst_wait_ms", type=parameter_types.duration_ms, default="1min", show_default=True,
              metavar="TIME", help="With --burst, how long to wait for commands that run again, or whose worker "
                                   "is gone. If some come later, the exit code is 3.")  # fmt: skip
@click.option("--grace", "grace_ms", type=parameter_types.duration_ms, default="8s", show_default=True, metavar="TIME",
              help="Time for a command to finish after SIGTERM or Ctrl-C; then its list is given back.")  # fmt: skip
def worker(session: Session, /, projects: Sequence[str], **options: Any) -> None:
    """Run the shell commands of PROJECTs as the current user, until Ctrl-C.

    Anyone who may submit commands to these projects decides what runs. Other projects are ignored.

    taskstore commands worker reports --lists-at-once 4 --memory 2GiB
    """
    # Only this command needs it.
    from taskstore.commands.worker import CommandWorker
    from taskstore.worker.engine import left_over

    for name in ("least_timeout", "least_lease", "grace", "burst_wait"):
        options[f"{name}_s"] = options.pop(f"{name}_ms") / 1_000
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("taskstore").setLevel(logging.INFO)
    how = {name: options.pop(name) for name in ("until_empty", "burst_wait_s")}
    with Client(**session.where) as store:
        try:
            made = CommandWorker(store, projects, **{**options, "env": dict(options["env"])})
        except InvalidInput as problem:
            typed = {each.name: each.opts[0] for each in click.get_current_context().command.params}
            raise Mistake(
                str(InvalidInput({typed.get(name, name): why for name, why in problem.fields.items()}))
            ) from None
        session.note(warning(made.projects))
        made.run(**how)
    if made.left:
        raise Left(left_over(made.left))


def warning(projects: Sequence[str]) -> str:
    """Return the warning about who decides what the worker runs."""
    named = f"the project {projects[0]}" if len(projects) == 1 else f"the projects {', '.join(projects)}"
    user = getpass.getuser()
    return (
        f"This worker runs shell commands of {named} as the user {user}: "
        f"everyone who can submit there can act as {user}."
    )
