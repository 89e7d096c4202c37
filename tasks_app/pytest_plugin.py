"""The fixture `task_queue` for pytest-django, which finds it by the entry point of the package."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def task_queue(settings: Any) -> SimpleNamespace:
    """The tasks of the project in memory: `drain`, `enqueued` and `assert_enqueued`, as in tasks_app.testing."""
    from . import testing

    memory = f"{testing.MemoryBackend.__module__}.{testing.MemoryBackend.__name__}"
    settings.TASKS = {alias: {**backend, "BACKEND": memory} for alias, backend in settings.TASKS.items()}
    return SimpleNamespace(
        drain=testing.drain_queue, enqueued=testing.enqueued, assert_enqueued=testing.assert_enqueued
    )
