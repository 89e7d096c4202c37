"""Example commands that pages show to be copied into a terminal."""

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
    """Return a management command as typed on the server, with the options that select this server's store."""
    program = getattr(settings, "TYPED_AS", "python3 manage.py")
    return f"{program} {command}{getattr(settings, 'TYPED_BEHIND', '')}"


def command_to_take_commands() -> str:
    """Return the command that starts the server with shell commands switched on."""
    return on_the_server("up --commands")


def command_to_be_audited() -> str:
    """Return a command that makes an audit entry."""
    return on_the_server("token create try --scope read")


def command_to_make_token() -> str:
    return on_the_server("token create mailer --scope work")


def command_to_add(request: HttpRequest, group: str) -> str:
    """Return a command that adds a task to the group, through this server's REST API."""
    return _update(request, {"group": group, "data": "hello"})


def command_to_fail(request: HttpRequest) -> str:
    """Return a command that adds a failed task."""
    return _update(request, {"group": "mail", "data": "hello", "error": "no such recipient"})


def command_to_enqueue(request: HttpRequest) -> str:
    """Return a command that enqueues a job."""
    return _asked(request, "/jobs", {"function": "mail.send", "args": ["ann"]})


def command_to_submit(request: HttpRequest, project: str = DEFAULT_PROJECT) -> str:
    """Return a command that submits a shell command to the project."""
    submitted = {"commands": [{"cmd": "echo 'A'; sleep 2; echo 'B'"}]}
    return _asked(request, f"/commands/{quote(project, safe='')}", submitted, scope="commands")


def command_to_run_commands(project: str) -> str:
    """Return the command that starts a worker of the project."""
    return f"taskstore commands worker {shlex.quote(project)}"


def command_to_report_worker(request: HttpRequest) -> str:
    """Return a command that reports a worker."""
    return _asked(request, "/clients/1", {"name": "try", "groups": ["mail"]}, "-X PUT ")


def command_to_schedule(request: HttpRequest) -> str:
    """Return a command that creates a schedule of nightly tasks."""
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
