"""Shell commands: this store's own workers at a server of its own, and what shells cost without any."""

from __future__ import annotations

import subprocess
import time

from taskstore.types.command_record import CommandStatus, group_of
from taskstore.types.commands import Submission

from ..load import GROUP
from .client import Party
from .jobs import AtOurServer, WorkersClient, wait_until, working

CHUNK = 1_000
NOTHING = ":"  # As quick as a line can be.


class CommandsClient(AtOurServer, WorkersClient):
    def commands(self, number: int) -> dict[str, float]:
        """Submit commands, start the workers when all are in lists, and look on until all are completed."""
        before = self.finished()  # Those of an earlier round.
        self.enqueue(number)
        wait_until(lambda: not self._count(CommandStatus.NEW))
        with working(self.workers()):
            return self._results(before, number)

    def enqueue(self, number: int) -> None:
        # By what is usually expected ten would be a list.
        asked = [Submission(cmd=NOTHING, expected_duration=1)] * CHUNK
        for start in range(0, number, CHUNK):
            self.store.commands.submit(GROUP, asked[: number - start])

    def workers(self) -> list[list[str]]:
        return [[*self.in_store("commands"), "worker", GROUP]] * self.load.clients

    def finished(self) -> int:
        return self._count(CommandStatus.COMPLETED)

    def _count(self, status: CommandStatus) -> int:
        return self.tasks_of(group_of(GROUP, status))


class XargsClient(Party):
    def prepare(self) -> None:
        """Nothing."""

    def commands(self, number: int) -> dict[str, float]:
        command = ["xargs", f"-P{self.load.clients}", "-n1", "sh", "-c"]
        began_s = time.monotonic()
        subprocess.run(command, input=f"{NOTHING}\n".encode() * number, check=True)
        return {"per_second": number / (time.monotonic() - began_s)}
