"""The bare database from PostgreSQL's own benchmark, which is written in C: as fast as it can be asked."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .. import CannotMeasure
from ..load import Verb
from . import raw_sql
from .client import WaitForStart
from .raw_table import RawClient
from .sample import Notes, Sample, Window

SCRIPT = f"""
{raw_sql.claim(owner=":client_id", limit="1").strip()} \\gset
{raw_sql.delete(ids="ARRAY[:id]")};
"""
NOTHING_TO_CLAIM = "expected one row, got 0"


class PgbenchClient(RawClient):
    """Its log has the time of a whole cycle, not of the claim alone."""

    def work(self, number: int, wait_for_start: WaitForStart) -> Sample:
        if self.load.verb is not Verb.CYCLE or self.load.batch != 1:
            raise CannotMeasure("pgbench does one task after the other")
        if not self.where["pgbench"]:
            raise CannotMeasure("there is no pgbench here: install it, for example with `apt-get install postgresql`")
        with tempfile.TemporaryDirectory(prefix="taskstore-pgbench-") as folder:
            window = wait_for_start()
            has_run_dry = self._run(window, Path(folder))
            return _sample(window, Path(folder), has_run_dry=has_run_dry)

    def _run(self, window: Window, folder: Path) -> bool:
        """Run until the window ends, or until there is nothing left to claim: says whether that was so."""
        (folder / "cycle.sql").write_text(SCRIPT)
        # Not stopped at the moment itself: it would leave cycles half done, and lose the end of its log.
        seconds = math.ceil(window.ends_s - time.monotonic())
        done = subprocess.run(
            [*self._command(), f"--time={seconds}", "--file=cycle.sql", self.where["url"]],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0 and NOTHING_TO_CLAIM not in done.stdout:
            raise CannotMeasure(f"pgbench failed: {done.stdout.strip()[-500:]}")
        return done.returncode != 0

    def _command(self) -> list[str]:
        clients, threads = self.load.clients, min(self.load.clients, len(os.sched_getaffinity(0)))
        options = ["--no-vacuum", "--protocol=prepared", "--log", f"--client={clients}", f"--jobs={threads}"]
        return [self.where["pgbench"], *options]


def _sample(window: Window, folder: Path, *, has_run_dry: bool) -> Sample:
    sample = Notes(window).sample
    sample.has_run_dry = has_run_dry
    since_epoch_s = time.time() - time.monotonic()
    for took_us, ended_at_s in _logged(folder):
        ended_s = ended_at_s - since_epoch_s
        sample.taken += 1
        sample.last_s = max(sample.last_s, ended_s)
        if window.begins_s <= ended_s < window.ends_s:
            sample.tasks[window.part_of(ended_s)] += 1
            sample.claims_ms.append(took_us / 1000)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    share = sum(sample.tasks) / sample.taken if sample.taken else 0.0
    sample.cpu_s = (used.ru_utime + used.ru_stime) * share
    return sample


def _logged(folder: Path) -> Iterator[tuple[int, float]]:
    """For each cycle its microseconds, and when it ended in seconds since the Epoch."""
    # A file for each thread, a line for each cycle: client, number, time, script, seconds, microseconds.
    for file in folder.glob("pgbench_log.*"):
        for line in file.read_text().splitlines():
            _, _, took_us, _, second, microsecond = line.split()[:6]
            yield int(took_us), int(second) + int(microsecond) / 1_000_000
