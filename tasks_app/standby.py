"""What PostgreSQL says of a commit that a synchronous standby may not have.

Somebody has cancelled the wait for it. The commit is done here and is answered as a success, with a warning beside it;
after a failover to that standby it may never have been.
"""

from __future__ import annotations

from typing import Any

# Where in PostgreSQL's source the warning comes from: its text depends on the server's language, and it has no code.
WAITS = "SyncRepWaitForLSN"


class Doubts:
    """Hears the notices of a connection, as psycopg hands them over."""

    def __init__(self) -> None:
        self.are_there = False

    def hear(self, notice: Any) -> None:
        self.are_there |= notice.source_function == WAITS
