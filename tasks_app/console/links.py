"""Addresses of the console's pages that take more than a number."""

from __future__ import annotations

from django.shortcuts import resolve_url
from django.utils.http import urlencode

from taskstore.types.command_record import COMMAND_LABEL, OF_LISTS, place_of
from taskstore.types.tasks import State

from ..models import Task
from ..reading.search.grammar import Label, label_term, quoted


def page_of_action(name: str) -> str:
    """Return the name of the URL that starts a bulk action."""
    return f"tasks_app:{name}_many"


def group_page(name: str, state: State | None = None, **place: object) -> str:
    """Return the page of a group; `place` is the cursor `after` or `before`."""
    return f"{resolve_url('tasks_app:group')}?{_query(name=name, state=state, **place)}"


def folder_page(prefix: str, state: State | None = None) -> str:
    """Return the search for the tasks of all groups with this prefix."""
    return search_page(_filter(prefix + "*", state))


def filter_of_group(name: str, state: State | None = None) -> str:
    """Return the search for a tab of the group; empty for a name that ends with a star, which no search can name."""
    return "" if name.endswith("*") else _filter(name, state)


def export_file(q: str, format: str) -> str:
    """Return the export of a search."""
    return f"{resolve_url('tasks_app:export')}?{_query(q=q, format=format)}"


def confirm_page(verb: str, name: str, *, state: str | None = None, task: int | None = None) -> str:
    """Return the confirmation of an action on one task, or on all tasks of a group in this state."""
    which = {"all": 1} if task is None else {"id": task, "task": task}
    return f"{resolve_url('tasks_app:confirm')}?{_query(verb=verb, name=name, state=state, **which)}"


def confirm_signature_page(verb: str, signature: str, group: str | None = None) -> str:
    """Return the confirmation of an action on all failed tasks with this signature, in this group (None: in all)."""
    q = signature_search(signature, group)
    return f"{resolve_url('tasks_app:confirm')}?{_query(verb=verb, q=q, all=1)}"


def add_page(name: str) -> str:
    return f"{resolve_url('tasks_app:add')}?{_query(name=name)}"


def import_page(name: str) -> str:
    return f"{resolve_url('tasks_app:import')}?{_query(name=name)}"


def commands_page(project: str, status: str | None = None, **place: object) -> str:
    """Return the page of a project, with its commands of this status; `place` has `text` and `after`."""
    return f"{resolve_url('tasks_app:command_project')}?{_query(project=project, status=status, **place)}"


def commands_page_of(group: str) -> str:
    """Return the page of the project that owns the group; empty for a group without commands."""
    place = place_of(group)
    return commands_page(place[0]) if place else ""


def commands_page_of_task(task: Task) -> str:
    """Return the page of a task that is a command or a list; empty when it is neither."""
    project, end = place_of(task.group) or ("", "")
    if end in OF_LISTS:
        return resolve_url("tasks_app:command_list", task.origin)
    first_id = task.labels.get(COMMAND_LABEL, "")
    return command_page(project, first_id) if project and first_id else ""


def command_page(project: str, command_id: str) -> str:
    return f"{resolve_url('tasks_app:command')}?{_query(project=project, id=command_id)}"


def command_output(project: str, command_id: str, stream: str) -> str:
    """Return the download of a run's output."""
    return f"{resolve_url('tasks_app:command_output')}?{_query(project=project, id=command_id, stream=stream)}"


def submit_page(project: str = "") -> str:
    return f"{resolve_url('tasks_app:submit_commands')}?{_query(project=project)}"


def confirm_commands_page(verb: str, project: str, *, status: str | None = None, task: int | None = None) -> str:
    """Return the confirmation of a change of one command, or of all that it applies to."""
    which = {"all": 1} if task is None else {"id": task}
    return f"{resolve_url('tasks_app:confirm_commands')}?{_query(verb=verb, project=project, status=status, **which)}"


def search_page(q: str) -> str:
    return f"{resolve_url('tasks_app:search')}?{_query(q=q)}"


def labelled_page(name: str, state: State | None, label: Label) -> str:
    """Return the search for the tasks of a group, in this state, with the label."""
    return label_page(*label, _filter(name, state))


def label_page(name: str, value: str | None, q: str = "") -> str:
    """Return the search `q` narrowed to tasks with this label (None: any value)."""
    return search_page(f"{q} {label_term(name, value)}".lstrip())


def held_page(owner: int) -> str:
    """Return the search for the tasks that a client holds."""
    return search_page(f"owner:{owner} state:claimed")


def signature_page(signature: str, group: str | None = None, age: str | None = None) -> str:
    """Return the search for failed tasks with this signature, in this group (None: in all), within `age`."""
    return search_page(signature_search(signature, group, age))


def signature_search(signature: str, group: str | None = None, age: str | None = None) -> str:
    terms = [f"group:{quoted(group)}" if group else "", f"error:{quoted(signature)}", f"age:<{age}" if age else ""]
    return " ".join(filter(None, terms))


def rates_part(span: str, name: str = "") -> str:
    """Return the chart data of a group, or of all groups (empty)."""
    return f"{resolve_url('tasks_app:rates')}?{_query(span=span, name=name or None)}"


def pause_page(name: str) -> str:
    return f"{resolve_url('tasks_app:pause')}?{_query(name=name)}"


def facts_part(name: str) -> str:
    return f"{resolve_url('tasks_app:facts')}?{_query(name=name)}"


def _filter(pattern: str, state: State | None) -> str:
    return " ".join(filter(None, [f"group:{quoted(pattern)}", state and f"state:{state}"]))


def _query(**fields: object) -> str:
    return urlencode({name: str(value) for name, value in fields.items() if value is not None})
