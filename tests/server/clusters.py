"""PostgreSQL servers of a test's own, whose settings it may change, and that may be killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.testing.postgresql import FAST, Cluster, give

from .harness import wait_for


@contextmanager
def cluster() -> Iterator[Cluster]:
    # Not pytest's folder: the user of PostgreSQL has to reach it.
    with tempfile.TemporaryDirectory(prefix="taskstore-cluster-") as folder, Cluster(Path(folder), **FAST) as started:
        started.make()
        started.start()
        yield started


def follow(standby: Cluster, primary: Cluster) -> None:
    """Start the standby as a copy of the primary, which does not wait for it."""
    shutil.rmtree(standby.folder / "data")
    where = ["-h", str(primary.folder), "-U", "postgres", "-D", str(standby.folder / "data")]
    subprocess.run([str(primary.binaries / "pg_basebackup"), *where, "-R", "-c", "fast"], check=True)
    give(standby.folder)
    os.chmod(standby.folder / "data", 0o700)
    standby.start()
    streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
    wait_for(lambda: primary.number(streaming) == 1, "the standby follows")


def configure(cluster: Cluster, change: str) -> None:
    """By `ALTER SYSTEM`: it holds for connections that are open, too."""
    cluster.execute(f"ALTER SYSTEM {change}")
    cluster.execute("SELECT pg_reload_conf()")


def waiting_for_standby(cluster: Cluster) -> bool:
    return cluster.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0


def give_up_on_standby(cluster: Cluster) -> None:
    """What an operator does to let a server go on whose standby has gone."""
    wait_for(lambda: waiting_for_standby(cluster), "a COMMIT that waits for the standby")
    cluster.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
