"""The PostgreSQL that all depends on dies, and a standby takes its place."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from urllib.parse import quote

from taskstore_project.testing.postgresql import give, unprivileged_user

from .. import CannotTry
from ..history import History
from ..outcome import Figure, Outcome, outcome_of
from ..processes import Cluster
from ..stage import TEMPLATE, Stage, make_store, token_of, wait_until

GAP_S = 10.0
SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


def failover(stage: Stage) -> Outcome:
    """To a synchronous standby: all that was answered is there, no id is given out twice."""
    primary, standby = (Cluster(stage.places.new_folder("postgresql")) for _ in range(2))
    for cluster in (primary, standby):
        stage.until_the_end(cluster)
    primary.make()
    primary.start()
    make_store(stage.folder / "data", primary.new_database(TEMPLATE))
    stage.token = token_of(stage.folder / "data")
    follow(standby, primary)
    # Whichever of the two takes writes.
    hosts = ",".join(quote(str(cluster.folder), safe="") for cluster in (primary, standby))
    url = f"postgresql:///{TEMPLATE}?user=postgres&host={hosts}&target_session_attrs=read-write"
    servers = [stage.server(DATABASE_URL=url) for _ in range(2)]
    with stage.load(servers):
        for _ in range(stage.pace.failovers):
            stage.pause(1.0, 3.0)
            primary.kill()
            standby.execute("SELECT pg_promote()")
            wait_until(lambda: all(server.is_ready() for server in servers), "the servers find the standby")
            stage.pause(1.0, 2.0)
            primary, standby = standby, primary
            follow(standby, primary)
        stage.pause(1.0, 2.0)
    history = stage.history(servers[0], may_be_unavailable=True)
    gap = Figure(name="without a commit for", value=longest_gap_s(history), limit=GAP_S)
    return outcome_of(history, faults=stage.pace.failovers, figures=[gap])


def follow(standby: Cluster, primary: Cluster) -> None:
    """Make the standby anew from the primary, which from then on waits for it at each commit."""
    shutil.rmtree(standby.folder / "data", ignore_errors=True)
    primary.execute("ALTER SYSTEM RESET synchronous_standby_names")
    primary.execute("SELECT pg_reload_conf()")
    program = str(primary.server.binaries / "pg_basebackup")
    words = [
        program,
        "-h",
        str(primary.folder),
        "-U",
        "postgres",
        "-D",
        str(standby.folder / "data"),
        "-R",
        "-c",
        "fast",
    ]
    copied = subprocess.run(words, capture_output=True, text=True, check=False)
    if copied.returncode:
        raise CannotTry(f"pg_basebackup: {copied.stderr.strip()}")
    if user := unprivileged_user():
        give(standby.folder, user)
    os.chmod(standby.folder / "data", 0o700)
    standby.start()
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.execute("SELECT pg_reload_conf()")
    wait_until(lambda: primary.number(SYNCHRONOUS) == 1, "the standby is synchronous")


def longest_gap_s(history: History) -> float:
    """The longest time in which no change was answered."""
    answered_s = sorted(event.received_s for event in history.done)
    return max((later - earlier for earlier, later in pairwise(answered_s)), default=0.0)
