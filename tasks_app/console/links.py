"""Addresses of the console's pages that take more than a number."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.utils.http import urlencode

from taskstore.types.command_record import COMMAND_LABEL, DEFAULT_PROJECT, OF_LISTS, place_of
from taskstore.types.tasks import State

from ..alerts.kinds import Link
from ..models import Task
from ..reading.search.grammar import Label, label_term, quoted


def to(page: str, *args: object, **query: object) -> str:
    """Return the address of a page, with the query without what is None or empty."""
    asked = {name: str(value) for name, value in query.items() if value is not None and value != ""}
    address = resolve_url(f"tasks_app:{page}", *args)
    return f"{address}?{urlencode(asked)}" if asked else address


def address(link: Link) -> str:
    """Return the address of what a diagnosis points to."""
    return to(link.page, *link.args, **link.query)


def page_of_action(name: str) -> str:
    """Return the name of the URL that starts a bulk action."""
    return f"tasks_app:{name}_many"


def folder_page(prefix: str, state: State | None = None) -> str:
    """Return the search for the tasks of all groups with this prefix."""
    return to("search", q=_filter(prefix + "*", state))


def filter_of_group(name: str, state: State | None = None) -> str:
    """Return the search for a tab of the group; empty for a name that ends with a star, which no search can name."""
    return "" if name.endswith("*") else _filter(name, state)


def confirm_page(verb: str, name: str, *, state: str | None = None, task: int | None = None) -> str:
    """Return the confirmation of an action on one task, or on all tasks of a group in this state."""
    which = {"all": 1} if task is None else {"id": task, "task": task}
    return to("confirm", verb=verb, name=name, state=state, **which)


def confirm_signature_page(verb: str, signature: str, group: str | None = None) -> str:
    """Return the confirmation of an action on all failed tasks with this signature, in this group (None: in all)."""
    q = signature_search(signature, group)
    return to("confirm", verb=verb, q=q, all=1)


def commands_page_of(group: str) -> str:
    """Return the page of the project that owns the group; empty for a group without commands."""
    place = place_of(group)
    return to("command_project", project=place[0]) if place else ""


def commands_page_of_task(task: Task) -> str:
    """Return the page of a task that is a command or a list; empty when it is neither."""
    project, end = place_of(task.group) or ("", "")
    if end in OF_LISTS:
        return resolve_url("tasks_app:command_list", task.origin)
    first_id = task.labels.get(COMMAND_LABEL, "")
    return to("command", project=project, id=first_id) if project and first_id else ""


def labelled_page(name: str, state: State | None, label: Label) -> str:
    """Return the search for the tasks of a group, in this state, with the label."""
    return label_page(*label, _filter(name, state))


def label_page(name: str, value: str | None, q: str = "") -> str:
    """Return the search `q` narrowed to tasks with this label (None: any value)."""
    return to("search", q=f"{q} {label_term(name, value)}".lstrip())


def member_search(batch: int, group: str, state: State) -> str:
    """Return the search for the members of a batch in this group and state."""
    return to("search", q=f"batch:{batch} {_filter(group, state)}")


def holder_search(group: str, owner: int) -> str:
    """Return the search for the tasks of a group that a client holds."""
    return to("search", q=f"{_filter(group, None)} owner:{owner} state:claimed")


def held_page(owner: int) -> str:
    """Return the search for the tasks that a client holds."""
    return to("search", q=f"owner:{owner} state:claimed")


def signature_page(signature: str, group: str | None = None, age: str | None = None) -> str:
    """Return the search for failed tasks with this signature, in this group (None: in all), within `age`."""
    return to("search", q=signature_search(signature, group, age))


def signature_search(signature: str, group: str | None = None, age: str | None = None) -> str:
    terms = [f"group:{quoted(group)}" if group else "", f"error:{quoted(signature)}", f"age:<{age}" if age else ""]
    return " ".join(filter(None, terms))


def _filter(pattern: str, state: State | None) -> str:
    return " ".join(filter(None, [f"group:{quoted(pattern)}", state and f"state:{state}"]))


# ---- Example commands that pages show to be copied into a terminal


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
        "limits": ("operate", "-X PUT ", f"/groups/{quote(group)}/limits", {"running": 20}),
        "batch": ("work", "", "/batches", {"clientid": 1, "adds": [task], "then": [{"group": "report"}]}),
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
