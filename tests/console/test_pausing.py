"""Pausing and resuming a group from its page."""

import pytest

from tasks_app.models import Task

from .store import ANN, add

pytestmark = pytest.mark.django_db


def pause(client, **fields):
    return client.post("/console/pause", {"name": "mail", "reason": "the mail server is down", **fields})


def test_it_says_who_paused_it_and_why(operator):
    add()
    pause(operator)
    html = operator.get("/console/group?name=mail").content.decode()
    assert "Paused by olaf" in html
    assert "the mail server is down" in html


def test_it_asks_with_what_waits_and_what_is_held(operator):
    add(count=3)
    Task.objects.claim("mail", owner=ANN)
    html = operator.get("/console/pause?name=mail").content.decode()
    assert "<strong>2</strong> ready tasks will wait." in html
    assert "Workers can still finish the <strong>1</strong> task they hold" in html
