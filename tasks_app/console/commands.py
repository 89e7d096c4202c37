"""Commands that a page shows to be copied into a terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

COMMAND_TO_BE_AUDITED = "python3 manage.py token create try --scope read"


def command_to_add(request: HttpRequest, group: str) -> str:
    """Adds a task to the group, over the REST API of this very server."""
    return _update(request, {"group": group, "data": "hello"})


def command_to_fail(request: HttpRequest) -> str:
    """Adds a task that has failed already."""
    return _update(request, {"group": "mail", "data": "hello", "error": "no such recipient"})


def command_to_be_heard(request: HttpRequest) -> str:
    """Says that a worker lives."""
    return _asked(request, "/clients/1", {"name": "try", "groups": ["mail"]}, "-X PUT ")


def _update(request: HttpRequest, task: Mapping[str, str]) -> str:
    return _asked(request, "/update", {"clientid": 1, "adds": [task]})


def _asked(request: HttpRequest, path: str, body: Mapping[str, Any], method: str = "") -> str:
    text = json.dumps(body, ensure_ascii=False)
    return (
        "TOKEN=$(python3 manage.py token create try --scope work)\n"
        f"curl {method}{request.build_absolute_uri(path)} \\\n"
        '  -H "Authorization: Bearer $TOKEN" \\\n'
        f"  -d {shlex.quote(text)}"
    )
