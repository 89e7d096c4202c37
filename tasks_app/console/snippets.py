"""Commands that a page shows to be copied into a terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest

from taskstore.types.command_record import DEFAULT_PROJECT


def on_the_server(command: str) -> str:
    """A command of the server as one types it there: about the store that this server shows, wherever its data is."""
    program = getattr(settings, "TYPED_AS", "python3 manage.py")
    return f"{program} {command}{getattr(settings, 'TYPED_BEHIND', '')}"


def command_to_take_commands() -> str:
    """Starts the server so that it takes shell commands."""
    return on_the_server("up --commands")


def command_to_be_audited() -> str:
    """Changes something, which the audit then tells."""
    return on_the_server("token create try --scope read")


def command_to_make_token() -> str:
    return on_the_server("token create mailer --scope work")


def command_to_add(request: HttpRequest, group: str) -> str:
    """Adds a task to the group, over the REST API of this very server."""
    return _update(request, {"group": group, "data": "hello"})


def command_to_fail(request: HttpRequest) -> str:
    """Adds a task that has failed already."""
    return _update(request, {"group": "mail", "data": "hello", "error": "no such recipient"})


def command_to_enqueue(request: HttpRequest) -> str:
    """Enqueues a job, for a worker that knows the function."""
    return _asked(request, "/jobs", {"function": "mail.send", "args": ["ann"]})


def command_to_submit(request: HttpRequest, project: str = DEFAULT_PROJECT) -> str:
    """Submits a command, for a worker of the project."""
    submitted = {"commands": [{"cmd": "echo 'A'; sleep 2; echo 'B'"}]}
    return _asked(request, f"/commands/{quote(project, safe='')}", submitted, scope="commands")


def command_to_run_commands(project: str) -> str:
    """Starts a worker for the project."""
    return f"taskstore commands worker {shlex.quote(project)}"


def command_to_be_heard(request: HttpRequest) -> str:
    """Says that a worker lives."""
    return _asked(request, "/clients/1", {"name": "try", "groups": ["mail"]}, "-X PUT ")


def command_to_schedule(request: HttpRequest) -> str:
    """Makes a schedule that adds a task each night."""
    plan = {"cron": "0 3 * * *", "zone": "Europe/Berlin", "task": {"group": "mail", "data": "hello"}}
    return _asked(request, "/schedules/nightly", plan, "-X PUT ", scope="operate")


def _update(request: HttpRequest, task: Mapping[str, str]) -> str:
    return _asked(request, "/update", {"clientid": 1, "adds": [task]})


def _asked(request: HttpRequest, path: str, body: Mapping[str, Any], method: str = "", *, scope: str = "work") -> str:
    text = json.dumps(body, ensure_ascii=False)
    return (
        f"TOKEN=$({on_the_server(f'token create try --scope {scope}')})\n"
        f"curl {method}{request.build_absolute_uri(path)} \\\n"
        '  -H "Authorization: Bearer $TOKEN" \\\n'
        f"  -d {shlex.quote(text)}"
    )
