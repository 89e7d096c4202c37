"""Example commands that pages show to be copied into a terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest

from taskstore.types.command_record import DEFAULT_PROJECT

# Commands on the server.
COMMANDS = {
    "take commands": "up --commands",
    "be audited": "token create try --scope read",
    "make a token": "token create mailer --scope work",
}


def example(request: HttpRequest, what: str, *, group: str = "mail", project: str = DEFAULT_PROJECT) -> str:
    """Return a command that does what is named: one of COMMANDS, or a request to this server's REST API."""
    if what in COMMANDS:
        return on_the_server(COMMANDS[what])
    if what == "run commands":
        return f"taskstore commands worker {shlex.quote(project)}"
    task = {"group": group, "data": "hello"}
    plan = {"cron": "0 3 * * *", "zone": "Europe/Berlin", "task": task}
    requests: Mapping[str, tuple[str, str, str, object]] = {
        "add": ("work", "", "/update", {"clientid": 1, "adds": [task]}),
        "fail": ("work", "", "/update", {"clientid": 1, "adds": [task | {"error": "no such recipient"}]}),
        "enqueue": ("work", "", "/jobs", {"function": "mail.send", "args": ["ann"]}),
        "report a worker": ("work", "-X PUT ", "/clients/1", {"name": "try", "groups": [group]}),
        "schedule": ("operate", "-X PUT ", "/schedules/nightly", plan),
        "submit": (
            "commands",
            "",
            f"/commands/{quote(project, safe='')}",
            {"commands": [{"cmd": "echo 'A'; sleep 2; echo 'B'"}]},
        ),
    }
    scope, method, path, body = requests[what]
    return (
        f"TOKEN=$({on_the_server(f'token create try --scope {scope}')})\n"
        f"curl {method}{request.build_absolute_uri(path)} \\\n"
        '  -H "Authorization: Bearer $TOKEN" \\\n'
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )


def on_the_server(command: str) -> str:
    """Return a management command as typed on the server, with the options that select this server's store."""
    program = getattr(settings, "TYPED_AS", "python3 manage.py")
    return f"{program} {command}{getattr(settings, 'TYPED_BEHIND', '')}"
