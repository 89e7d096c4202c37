"""The primary PostgreSQL dies, and a standby replaces it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import quote

from lab.testing import CannotTry
from lab.testing.postgresql import Cluster, give

from ..history import History
from ..loss import Loss, Return
from ..outcome import Figure, SceneResult, outcome_of, outcome_with
from ..processes import StoreServer
from ..stage import TEMPLATE, Stage, make_store, token_of, wait_until

GAP_S = 10.0
SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
RECEIVING = "SELECT count(*) FROM pg_stat_wal_receiver"
# As numbers of bytes.
WRITTEN = "SELECT pg_current_wal_flush_lsn() - '0/0'"
RECEIVED = "SELECT coalesce(pg_last_wal_receive_lsn() - '0/0', 0)"
CUT_OFF_S = (0.5, 1.5)


def failover(stage: Stage) -> SceneResult:
    """Fail over to a synchronous standby: everything acknowledged exists, and no id is reused."""
    primary, standby, servers = begun(stage, is_synchronous=True)
    with stage.load(servers):
        for _ in range(stage.pace.failovers):
            stage.pause(1.0, 3.0)
            primary.kill()
            promote(standby, servers)
            stage.pause(1.0, 2.0)
            primary, standby = standby, primary
            follow(standby, primary, is_synchronous=True)
        stage.pause(1.0, 2.0)
    history = stage.history(servers[0], may_be_unavailable=True)
    return outcome_of(history, faults=stage.pace.failovers, figures=[gap_in(history)])


def asynchronous_failover(stage: Stage) -> SceneResult:
    """Fail over to a standby that was just cut off: only changes acknowledged after that are lost."""
    primary, standby, servers = begun(stage, is_synchronous=False)
    returns = []
    with stage.load(servers):
        for _ in range(stage.pace.failovers):
            stage.pause(1.0, 3.0)
            safe_s = cut_off(standby, primary)
            stage.pause(*CUT_OFF_S)
            primary.kill()
            returns.append(Return(safe_s=safe_s, ended_s=time.monotonic()))
            promote(standby, servers)
            stage.pause(1.0, 2.0)
            primary, standby = standby, primary
            follow(standby, primary, is_synchronous=False)
        stage.pause(1.0, 2.0)
    history = stage.history(servers[0], may_be_unavailable=True)
    return outcome_with(Loss(history, returns), figures=[gap_in(history)])


def begun(stage: Stage, *, is_synchronous: bool) -> tuple[Cluster, Cluster, Sequence[StoreServer]]:
    """A primary, its standby, and servers that use the writable one of the two."""
    primary, standby = (Cluster(stage.places.new_folder("postgresql")) for _ in range(2))
    for cluster in (primary, standby):
        stage.until_the_end(cluster)
    primary.make()
    primary.start()
    make_store(stage.folder / "data", primary.new_database(TEMPLATE))
    stage.token = token_of(stage.folder / "data")
    follow(standby, primary, is_synchronous=is_synchronous)
    hosts = ",".join(quote(str(cluster.folder), safe="") for cluster in (primary, standby))
    url = f"postgresql:///{TEMPLATE}?user=postgres&host={hosts}&target_session_attrs=read-write"
    return primary, standby, [stage.server(DATABASE_URL=url) for _ in range(2)]


def follow(standby: Cluster, primary: Cluster, *, is_synchronous: bool) -> None:
    """Create the standby from the primary, which waits for it at each commit if it is synchronous."""
    shutil.rmtree(standby.folder / "data", ignore_errors=True)
    primary.execute("ALTER SYSTEM RESET synchronous_standby_names")
    primary.execute("SELECT pg_reload_conf()")
    copy(primary, standby)
    standby.start()
    wait_until(lambda: primary.number(STREAMING) == 1, "the standby follows")
    if is_synchronous:
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        wait_until(lambda: primary.number(SYNCHRONOUS) == 1, "the standby is synchronous")


def copy(primary: Cluster, standby: Cluster) -> None:
    program = str(primary.binaries / "pg_basebackup")
    where = ["-h", str(primary.folder), "-U", "postgres", "-D", str(standby.folder / "data")]
    copied = subprocess.run([program, *where, "-R", "-c", "fast"], capture_output=True, text=True, check=False)
    if copied.returncode:
        raise CannotTry(f"pg_basebackup: {copied.stderr.strip()}")
    give(standby.folder)
    os.chmod(standby.folder / "data", 0o700)


def cut_off(standby: Cluster, primary: Cluster) -> float:
    """Cut the standby off from the primary. Returns a time until which it has everything."""
    safe_s = time.monotonic()
    written = primary.number(WRITTEN)
    wait_until(lambda: standby.number(RECEIVED) >= written, "the standby has what was written")
    standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
    standby.execute("SELECT pg_reload_conf()")
    wait_until(lambda: standby.number(RECEIVING) == 0, "the standby is cut off")
    return safe_s


def promote(standby: Cluster, servers: Sequence[StoreServer]) -> None:
    standby.execute("SELECT pg_promote()")
    wait_until(lambda: all(server.is_ready() for server in servers), "the servers find the standby")


def gap_in(history: History) -> Figure:
    return Figure(name="without a commit for", value=longest_gap_s(history), limit=GAP_S)


def longest_gap_s(history: History) -> float:
    """Return the longest time without an acknowledged change."""
    answered_s = sorted(event.received_s for event in history.done)
    return max((later - earlier for earlier, later in pairwise(answered_s)), default=0.0)
