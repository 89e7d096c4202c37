"""Commands that a page shows to be copied into a terminal."""

from __future__ import annotations

import json
import shlex

from django.http import HttpRequest


def command_to_add(request: HttpRequest, group: str) -> str:
    """Adds a task to the group, over the REST API of this very server."""
    body = json.dumps({"clientid": 1, "adds": [{"group": group, "data": "hello"}]}, ensure_ascii=False)
    return (
        "TOKEN=$(python3 manage.py token create try --scope work)\n"
        f"curl {request.build_absolute_uri('/update')} \\\n"
        '  -H "Authorization: Bearer $TOKEN" \\\n'
        f"  -d {shlex.quote(body)}"
    )
