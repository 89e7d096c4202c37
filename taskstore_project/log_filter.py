"""What is worth a line of the log."""

from __future__ import annotations

import logging


def is_news(record: logging.LogRecord) -> bool:
    """A 503 is none: an outage of the database has lines of its own, and a server that ends says so by itself."""
    return getattr(record, "status_code", None) != 503
