"""Commands: the projects, how far each is, a list of commands, and the page of one with what it has written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from .. import history
from ..command_lists import looking
from ..command_lists.looking import CommandSeen, CommandWhole, ListWhole, ProjectStatus
from ..command_record import (
    FINAL,
    OF_LISTS,
    PREFIX,
    Command,
    CommandStatus,
    LiveOutput,
    Output,
    place_of,
    why_no_project,
)
from ..errors import InvalidInput
from ..history import chain_of
from ..listing import Place
from ..models import Task
from ..operations import EVERY_GROUP, GroupScope
from ..policy import Action, commands_are_on, may, may_command
from ..validation import LABEL_LENGTH, LATEST_MS
from . import command_outputs, payload, reading
from .command_words import BESIDE, COLUMNS, LOOKS, MEANINGS, WAY, flow_of
from .commands import COMMAND_TO_TAKE_COMMANDS, command_to_run_commands, command_to_submit
from .pages import is_partial, page, user_of
from .replica import from_replica

OF_COMMANDS = GroupScope((f"{PREFIX}*",))
FEW = 10  # Of the lists that run, and of the results, on the page of a whole project.
# What can be done to those of a status that somebody selects.
VERBS = {
    CommandStatus.NEW: ["stash"],
    CommandStatus.NEW_STASHED: ["unstash"],
    CommandStatus.OPEN: ["stash"],
    CommandStatus.OPEN_STASHED: ["unstash"],
    CommandStatus.COMPLETED: ["archive", "retry"],
    CommandStatus.COMPLETED_ARCHIVE: ["retry"],
    CommandStatus.FAILED_TIME: ["retry"],
    CommandStatus.FAILED_COUNT: ["retry"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A run of a command, in the words of a page."""

    seen: CommandSeen
    out: command_outputs.Shown | None
    err: command_outputs.Shown | None

    @property
    def look(self) -> str:
        return LOOKS[self.seen.status]


@require_safe
@page(Action.SEE)
@from_replica
def commands(request: HttpRequest) -> HttpResponse:
    """The projects, each with how many of its commands are where."""
    found = looking.overview()
    return render(
        request,
        "console/command_projects.html",
        {
            "projects": [(each.project, flow_of(each.counts, each.lists, COLUMNS)) for each in found],
            "columns": [(status, LOOKS[status]) for status in COLUMNS],
            "now_ms": Task.objects.now_ms(),
            "command": command_to_submit(request),
            **rights_of(request),
        },
    )


@require_safe
@page(Action.SEE)
@from_replica
def project(request: HttpRequest) -> HttpResponse:
    """How far a project is; with `status` what lies there."""
    name, status = project_in(request.GET), status_in(request.GET)
    try:
        listed = _listed(request, name, status)
    except InvalidInput as refused:
        return _project(request, name, status, {"problems": refused.fields}, 400)
    return _project(request, name, status, listed)


@require_safe
@page(Action.SEE)
def command_list(request: HttpRequest, list_id: int) -> HttpResponse:
    """One list, found by any id that its task had; as a part of its page while it is not done."""
    found = looking.command_list(list_id)
    if found is None:
        return _list_elsewhere(request, list_id)
    return render(
        request,
        "console/_command_list.html" if is_partial(request) else "console/command_list.html",
        {
            "whole": found,
            "seen": found.seen,
            "look": LOOKS[found.seen.status],
            "rows": _rows_of(found),
            "now_ms": Task.objects.now_ms(),
            "sees_payloads": may(user_of(request), Action.SEE_PAYLOADS),
            **rights_of(request),
        },
    )


@require_safe
@page(Action.SEE)
def command(request: HttpRequest) -> HttpResponse:
    """One command: the run that has the `id`, or the newest one; as a part of its page while it is not done."""
    name, command_id = project_in(request.GET), _id_in(request)
    found = looking.command(name, command_id)
    if found is None:
        return render(request, "console/no_command.html", {"project": name, "command_id": command_id}, status=404)
    seen = run_with(found, command_id)
    return render(
        request,
        "console/_shell_command.html" if is_partial(request) else "console/shell_command.html",
        {
            "asked_id": command_id,
            "shown": _shown(seen),
            "line": payload.text_of(seen.command.cmd.encode(), is_whole=True),
            "meaning": MEANINGS[seen.status],
            "progress": _progress_of(seen),
            "in_list": seen.status in OF_LISTS,
            **_times_of(seen.command),
            "runs": [(each, LOOKS[each.status]) for each in (found.newest, *found.earlier)],
            "newest": found.newest,
            "tail": _tail_of(found.tail) if found.tail and seen is found.newest else None,
            "is_final": found.newest.status in FINAL,
            "now_ms": Task.objects.now_ms(),
            "sees_payloads": may(user_of(request), Action.SEE_PAYLOADS),
            **rights_of(request),
        },
    )


@require_safe
@page(Action.SEE_PAYLOADS)
def output(request: HttpRequest) -> HttpResponse:
    """What a run wrote, byte for byte as far as it is kept, to be saved and never to be shown by the browser."""
    name, command_id, stream = project_in(request.GET), _id_in(request), request.GET.get("stream", "")
    if stream not in ("out", "err"):
        raise InvalidInput({"stream": ["one of out, err"]})
    found = looking.command(name, command_id)
    run = run_with(found, command_id).command.run if found else None
    if run is None:
        raise Http404
    written: Output = getattr(run, stream)
    return HttpResponse(
        written.content,
        content_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="command.{stream}"'},
    )


def rights_of(request: HttpRequest) -> dict[str, Any]:
    """What the person who looks may do to commands here, and what to do about a server that does not take any."""
    return {
        "is_on": commands_are_on(),
        "may_change": may_command(user_of(request)),
        "command_to_switch_on": COMMAND_TO_TAKE_COMMANDS,
    }


def project_in(asked: Mapping[str, str]) -> str:
    name = reading.text_of(asked, "project", reading.LONGEST_FILTER)
    if why := why_no_project(name):
        raise InvalidInput({"project": [why]})
    return name


def status_in(asked: Mapping[str, str]) -> CommandStatus | None:
    """The status, or None when none is named."""
    text = asked.get("status", "")
    if text and text not in list(CommandStatus):
        raise InvalidInput({"status": [f"one of {', '.join(CommandStatus)}"]})
    return CommandStatus(text) if text else None


def _listed(request: HttpRequest, name: str, status: CommandStatus | None) -> dict[str, Any]:
    """What the page has below the flow."""
    text = reading.text_of(request.GET, "text", reading.LONGEST_FILTER)
    after = Place.read(request.GET["after"], "after") if request.GET.get("after") else None
    if status in OF_LISTS:
        return {"lists": looking.lists(name, status=status, after=after)}
    if status or text or after:
        _refuse_search(request, text)
        return {"results": looking.results(name, status=status, text=text, after=after)}
    running = looking.lists(name, status=CommandStatus.RUNNING, limit=FEW)
    return {"lists": running, "results": looking.results(name, limit=FEW)}


def _refuse_search(request: HttpRequest, text: str) -> None:
    if text and not may(user_of(request), Action.SEE_PAYLOADS):
        raise InvalidInput({"text": ["your role does not let you see command lines, nor search in them"]})


def _project(
    request: HttpRequest, name: str, status: CommandStatus | None, listed: Mapping[str, Any], code: int = 200
) -> HttpResponse:
    found = looking.status(name)
    results = listed["results"].results if "results" in listed else []
    rights = rights_of(request)
    context = {
        "project": name,
        "status": status,
        "found": found,
        "way": flow_of(found.counts, found.lists, WAY),
        "beside": flow_of(found.counts, found.lists, BESIDE),
        "here": flow_of(found.counts, found.lists, [status])[0] if status else None,
        "text": request.GET.get("text", ""),
        "is_first": "after" not in request.GET,
        "rows": [(each, LOOKS[each.status]) for each in results],
        "verbs": VERBS.get(status, ()) if status else (),
        "failed": _sum(found, CommandStatus.FAILED_TIME, CommandStatus.FAILED_COUNT),
        "waiting": _sum(found, CommandStatus.NEW, CommandStatus.OPEN),
        "stashed": _sum(found, CommandStatus.NEW_STASHED, CommandStatus.OPEN_STASHED),
        "completed": _sum(found, CommandStatus.COMPLETED),
        "now_ms": Task.objects.now_ms(),
        "command": command_to_submit(request, name),
        "command_to_run": command_to_run_commands(name),
        "sees_payloads": may(user_of(request), Action.SEE_PAYLOADS),
        **rights,
        "may_select": rights["may_change"] and status in VERBS,
        "taken_whole": FINAL,
        **listed,
    }
    return render(request, "console/command_project.html", context, status=code)


def _sum(found: ProjectStatus, *statuses: CommandStatus) -> int:
    return sum(found.counts.get(status, 0) for status in statuses)


def _list_elsewhere(request: HttpRequest, list_id: int) -> HttpResponse:
    """What became of a list: an earlier id leads to it, and one that is done to its project."""
    chain = chain_of(list_id, OF_COMMANDS)
    if chain and chain.living and chain.living.id != list_id and looking.command_list(chain.living.id):
        return redirect("console:command_list", chain.living.id)
    place = place_of(chain.group) if chain else None
    why = history.fate_of(list_id, EVERY_GROUP) or ""
    context = {"list_id": list_id, "why": why, "project": place[0] if place else "", "is_known": chain is not None}
    if is_partial(request):  # An open page of it is told in its place: a 404 would leave it as it was.
        return render(request, "console/_no_command_list.html", context)
    return render(request, "console/no_command_list.html", context, status=404)


def _rows_of(found: ListWhole) -> list[tuple[Command, str, str]]:
    """Each command of a list with its look, and the word for how far it is."""
    under_way = {live.command for live in found.live}
    return [
        (command, *_progress(command, place < found.seen.done, command.id in under_way))
        for place, command in enumerate(found.list.commands)
    ]


def _progress_of(seen: CommandSeen) -> str:
    """How far a command is within its running list; empty: it is in none."""
    found = looking.command_list(seen.task) if seen.status is CommandStatus.RUNNING else None
    words = {command.id: word for command, _, word in _rows_of(found)} if found else {}
    return words.get(seen.command.id, "")


def _progress(command: Command, is_done: bool, is_under_way: bool) -> tuple[str, str]:
    if command.run:
        return ("failed", "failed") if command.run.failed else ("finished", "completed")
    if is_under_way:
        return "claimed", "running"
    return ("finished", "has run") if is_done else ("ready", "waiting")


def run_with(found: CommandWhole, command_id: str) -> CommandSeen:
    """The run of this id, or the newest one, with all that is kept of what it wrote."""
    seen = next((each for each in found.earlier if each.command.id == command_id), found.newest)
    [task] = Task.objects.find([seen.task]) if seen is not found.newest else [None]
    return replace(seen, command=Command.decode(bytes(task.data))) if task else seen


def _shown(seen: CommandSeen) -> Shown:
    run = seen.command.run
    return Shown(
        seen=seen,
        out=command_outputs.show(run.out) if run else None,
        err=command_outputs.show(run.err) if run else None,
    )


def _times_of(command: Command) -> dict[str, int]:
    """Its times in milliseconds, 0 for those that it has not."""
    run = command.run
    return {
        "created_ms": _ms(command.created),
        "until_ms": _ms(command.until),
        "started_ms": _ms(run.started) if run else 0,
        "ended_ms": _ms(run.ended) if run else 0,
    }


def _ms(seconds: int) -> int:
    # A worker, or an import, may tell of times that no calendar has.
    return min(seconds * 1_000, LATEST_MS)


def _tail_of(live: LiveOutput) -> dict[str, Any]:
    return {
        "at_ms": _ms(live.at),
        "out": command_outputs.show(live.out),
        "err": command_outputs.show(live.err),
    }


def _id_in(request: HttpRequest) -> str:
    text = reading.text_of(request.GET, "id", LABEL_LENGTH)
    if not text:
        raise InvalidInput({"id": ["the id of a command"]})
    return text
