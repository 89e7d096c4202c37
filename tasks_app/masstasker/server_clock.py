"""What time it is where the tasks are."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from .masstasker_pb2 import Task


class ServerClock:
    """The server's time, as the newest task that it gave out says; before that, this machine's.

    A lease ends by the server's clock. A machine whose own is minutes behind would renew leases into the past.
    """

    def __init__(self) -> None:
        self._ahead_s = time.time() - time.monotonic()

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.monotonic() + self._ahead_s, UTC)

    def hear(self, task: Task, own_for: timedelta) -> None:
        """A task was given out just now, to be owned for so long."""
        given_out_at = task.not_before.ToDatetime(UTC) - own_for
        self._ahead_s = given_out_at.timestamp() - time.monotonic()
