"""Filter the log."""

from __future__ import annotations

import logging


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a record should be logged. 503s are not: outages and stops of the server are logged elsewhere."""
    return getattr(record, "status_code", None) != 503
