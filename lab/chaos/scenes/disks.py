"""A disk that is full."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lab.testing import CannotTry
from lab.testing.postgresql import Cluster, give

from ..history import NEVER_S
from ..outcome import Figure, SceneResult, outcome_of
from ..processes import StoreServer
from ..stage import TEMPLATE, Stage, make_store, token_of

SIZE_MB = 256
FULL_S = 10.0  # And as long afterwards.
RECOVERED_S = 5.0
PIECE = b"\0" * 2**16


def disk_full(stage: Stage) -> SceneResult:
    """Fill the disk, then free it: 503 in between, reads continue, writes continue afterwards without a restart."""
    with small_disk(stage.places.new_folder("disk")) as disk:
        server = server_on(stage, disk)
        with stage.load([server]):
            time.sleep(stage.pace.seconds / 6)
            ballast = fill(disk)
            began_s = time.monotonic()
            time.sleep(FULL_S)
            ended_s = time.monotonic()
            ballast.unlink()
            time.sleep(FULL_S)
        history = stage.history(server, may_be_unavailable=True)
        server.kill()
    meanwhile = [event for event in history.requests if began_s < event.sent_s and event.received_s < ended_s]
    written_s = [event.received_s for event in history.done if event.made and event.sent_s > ended_s]
    problems = []
    if not any(event.status == 503 for event in meanwhile):
        problems.append("the disk was never full for the store")
    if not any(event.status == 200 and not event.is_change for event in meanwhile):
        problems.append("nobody could read while the disk was full")
    if not written_s:
        problems.append("nobody could write after the disk was freed")
    back = Figure(name="writes again within", value=min(written_s, default=NEVER_S) - ended_s, limit=RECOVERED_S)
    return outcome_of(history, faults=1, problems=problems, figures=[back])


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a small file system."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        raise CannotTry(f"a small disk can't be mounted, which takes root: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def server_on(stage: Stage, disk: Path) -> StoreServer:
    """Start a server whose database is on the disk, except for PostgreSQL's log, without which it would stop."""
    if stage.is_sqlite:
        shutil.copytree(stage.folder / "data", disk / "data")
        shutil.rmtree(stage.folder / "data")
        (stage.folder / "data").symlink_to(disk / "data")
        return stage.server()
    cluster = stage.until_the_end(Cluster(stage.places.new_folder("postgresql")))
    cluster.make()
    log = cluster.folder / "data" / "pg_wal"
    log.rename(cluster.folder / "pg_wal")
    log.symlink_to(cluster.folder / "pg_wal")
    shutil.copytree(cluster.folder / "data", disk / "data", symlinks=True)
    shutil.rmtree(cluster.folder / "data")
    (cluster.folder / "data").symlink_to(disk / "data")
    give(disk)
    cluster.start()
    make_store(stage.folder / "data", cluster.new_database(TEMPLATE))
    stage.token = token_of(stage.folder / "data")
    return stage.server(DATABASE_URL=cluster.url_of(TEMPLATE))


def fill(disk: Path) -> Path:
    """Fill the disk with a file."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(PIECE):
            pass
    return ballast
