"""A clock to set to what a schedule is due at."""

import pytest

from tasks_app.models import Task
from tests.behaviour.conftest import Clock

from .schedules import HOUR_MS


@pytest.fixture
def clock(db: None, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Five minutes past an hour."""
    return Clock(Task.objects.now_ms() // HOUR_MS * HOUR_MS + 300_000, monkeypatch)
