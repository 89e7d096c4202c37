"""When a worker that says nothing is late, and when it is lost."""

LATE_MS, LOST_MS = 30_000, 120_000  # After its last heartbeat.
