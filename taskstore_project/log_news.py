"""What is worth a line of the log."""

from __future__ import annotations

import logging

from tasks_app.readiness import readiness


def is_news(record: logging.LogRecord) -> bool:
    """That a server which was told to end says so each time a proxy asks is none."""
    request = getattr(record, "request", None)
    return not (readiness.is_withdrawn and request is not None and request.path == "/readyz")
