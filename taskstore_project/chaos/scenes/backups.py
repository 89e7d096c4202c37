"""A backup that is restored while clients still hold what came after it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..loss import Loss, Return
from ..outcome import Outcome, outcome_with
from ..processes import StoreServer, command, run_command
from ..stage import Stage


def backup(stage: Stage) -> Outcome:
    """Taken under load; the store goes on, is stopped, and another one goes on from the backup, for the same clients.

    They hold, know and name ids that the restored store never gave out.
    """
    servers = stage.servers()
    file = str(stage.folder / "store.zip")
    with stage.load(servers):
        time.sleep(stage.pace.seconds / 4)
        safe_s = time.monotonic()
        command("backup", file, **place_of(servers))
        time.sleep(stage.pace.seconds)
        for server in servers:
            server.end()
        back = Return(safe_s=safe_s, ended_s=time.monotonic())
        use_empty_store(stage, servers)
        command("restore", file, **place_of(servers))
        for server in servers:
            server.start()
        time.sleep(stage.pace.seconds / 4)
    history = stage.history(servers[0], may_be_unavailable=True)
    return outcome_with(Loss(history, [back]), problems=list(what_verify_says(servers)))


def place_of(servers: Sequence[StoreServer]) -> dict[str, Any]:
    """Where the commands find the store that the servers serve."""
    return {"folder": servers[0].folder, "DATABASE_URL": servers[0].variables["DATABASE_URL"]}


def use_empty_store(stage: Stage, servers: Sequence[StoreServer]) -> None:
    """From their next start on the servers serve another store, in which nothing is yet."""
    if stage.is_sqlite:
        for server in servers:
            server.folder = stage.folder / "restored"
            server.folder.mkdir()
    else:
        url = stage.places.cluster.new_database(stage.folder.name)
        for server in servers:
            server.variables = {**server.variables, "DATABASE_URL": url}


def what_verify_says(servers: Sequence[StoreServer]) -> Iterator[str]:
    done = run_command("verify", **place_of(servers))
    if done.returncode:
        yield from (f"verify says: {line}" for line in (done.stdout + done.stderr).splitlines())
