"""What works in a server process beside the answering of requests."""

from __future__ import annotations

from .bulk.runner import Runner
from .writer import Writer


def start_work() -> Writer:
    """Start the writer, and who goes on with bulk operations, on the loop that runs now. It stops with the writer."""
    writer = Writer.start()
    writer.keep(Runner())
    return writer
