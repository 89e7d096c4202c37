"""The pages of command lists and their outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render

from taskstore.errors import InvalidInput
from taskstore.types.command_record import (
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
from taskstore.types.commands import CommandSeen, CommandWhole, ListPage, ListWhole, ResultPage
from taskstore.types.scalars import LABEL_LENGTH, LATEST_MS

from ..access.policy import Action, may, may_command
from ..commands import looking, may_be_cancelled
from ..commands.paging import command_seen
from ..conf.commands import commands_are_on
from ..core.operations import EVERY_GROUP, GroupScope
from ..models import Task
from ..reading import history
from ..reading.history import chain_of
from . import parameters, payload
from .pages import is_partial, reads, user_of
from .payload import HexLine
from .words import BESIDE, COLUMNS, LOOKS, STATUSES, WAY, flow_of

PART_BYTES = 64 * 1024  # Shown of the beginning, and of the end. The rest can be downloaded.
HEX_BYTES = 4 * 1024
CONTINUATION = range(0x80, 0xC0)  # Bytes of UTF-8 that continue a character.


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputView:
    """An output on a page: its beginning and, after a gap, its end."""

    size: int  # Bytes that the command wrote.
    missing: int  # Bytes of these that the worker did not keep.
    left_out: int  # Bytes between the beginning and the end, the missing ones included.
    parts: Sequence[str] = ()  # The beginning, and the end if there is a gap.
    odd: bool = False  # Whether some bytes are not UTF-8.
    hex: Sequence[HexLine] = ()  # The beginning of binary output.


def show(output: Output) -> OutputView | None:
    """Return the output for a page; None when nothing was written."""
    kept = output.kept
    size = len(kept) + output.missing
    if not size:
        return None
    head, tail = kept, b""
    if output.missing or len(kept) > 2 * PART_BYTES:
        cut_at = output.cut_at if output.missing else PART_BYTES
        head, tail = kept[:cut_at][:PART_BYTES], kept[cut_at:][-PART_BYTES:]
    left_out = size - len(head) - len(tail)
    if b"\0" in head or b"\0" in tail:
        lines = list(payload.hex_lines(head[:HEX_BYTES]))
        return OutputView(size=size, missing=output.missing, left_out=size - len(head[:HEX_BYTES]), hex=lines)
    # The end may begin within a character.
    begin = next((place for place, byte in enumerate(tail[:4]) if byte not in CONTINUATION), 0)
    texts = [_text(head, is_cut=bool(left_out)), _text(tail[begin:], is_cut=False)]
    return OutputView(
        size=size,
        missing=output.missing,
        left_out=left_out,
        parts=[text for text, _ in texts][: 2 if left_out else 1],
        odd=any(is_odd for _, is_odd in texts),
    )


def _text(data: bytes, *, is_cut: bool) -> tuple[str, bool]:
    """Return the text with visible control characters, and whether some bytes are not UTF-8."""
    text = payload.text_of(data, is_whole=not is_cut)
    if text is not None:
        return text, False
    replaced = data.decode(errors="replace").encode()
    return payload.text_of(replaced, is_whole=True) or "", True


OF_COMMANDS = GroupScope((f"{PREFIX}*",))
FEW = 10  # Running lists, and results, on the page of a whole project.
# The changes that are possible for selected commands of a status.
VERBS: Mapping[CommandStatus | None, Sequence[str]] = {
    CommandStatus.NEW: ["stash"],
    CommandStatus.NEW_STASHED: ["unstash"],
    CommandStatus.OPEN: ["stash"],
    CommandStatus.OPEN_STASHED: ["unstash"],
    CommandStatus.COMPLETED: ["archive", "retry"],
    CommandStatus.COMPLETED_ARCHIVE: ["retry"],
    CommandStatus.FAILED_TIME: ["retry"],
    CommandStatus.FAILED_COUNT: ["retry"],
    CommandStatus.CANCELLED: ["retry"],
}
# The numbers that say which changes of a whole project are possible.
SUMS = {
    "failed": (CommandStatus.FAILED_TIME, CommandStatus.FAILED_COUNT),
    "waiting": (CommandStatus.NEW, CommandStatus.OPEN),
    "stashed": (CommandStatus.NEW_STASHED, CommandStatus.OPEN_STASHED),
    "completed": (CommandStatus.COMPLETED,),
}


@reads(Action.SEE, from_replica=True)
def commands(request: HttpRequest) -> HttpResponse:
    """List the projects with their numbers of commands by status."""
    found = looking.overview()
    return render(
        request,
        "tasks_app/command_projects.html",
        {
            "projects": [(each.project, flow_of(each.counts, each.lists, COLUMNS)) for each in found],
            "columns": [(status, LOOKS[status]) for status in COLUMNS],
            "now_ms": Task.objects.now_ms(),
            **rights_of(request),
        },
    )


@reads(Action.SEE, from_replica=True)
def project(request: HttpRequest) -> HttpResponse:
    """Show the progress of a project; with `status`, list the commands that have it."""
    name, status = project_in(request.GET), status_in(request.GET)
    lists, results = None, None
    problems: Mapping[str, Sequence[str]] = {}
    try:
        lists, results = _listed(request, name, status)
    except InvalidInput as refused:
        problems = refused.fields
    found, text, verbs = looking.status(name), request.GET.get("text", ""), VERBS.get(status, ())
    sums = {word: sum(found.counts.get(each, 0) for each in statuses) for word, statuses in SUMS.items()}
    shown = {
        "project": name,
        "status": status,
        "text": text,
        "is_first": "after" not in request.GET,
        "found": found,
        "now_ms": Task.objects.now_ms(),
        "way": flow_of(found.counts, found.lists, WAY),
        "beside": flow_of(found.counts, found.lists, BESIDE),
        "here": flow_of(found.counts, found.lists, [status])[0] if status else None,
        "lists": lists,
        "results": results,
        "rows": [(each, LOOKS[each.status]) for each in results.commands] if results else [],
        "problems": problems,
        "verbs": verbs,
        "may_select": may_command(user_of(request)) and bool(verbs),
        # All commands of the status, not only those on the page.
        "may_take_all": status in FINAL and not text,
        **sums,
    }
    context = {"page": shown, "sees_payloads": may(user_of(request), Action.SEE_PAYLOADS), **rights_of(request)}
    return render(request, "tasks_app/command_project.html", context, status=400 if problems else 200)


@reads(Action.SEE)
def command_list(request: HttpRequest, list_id: int) -> HttpResponse:
    """Show a list, found by any id that its task had; an open page polls it as a partial."""
    found = looking.command_list(list_id)
    if found is None:
        return _list_elsewhere(request, list_id)
    return render(
        request,
        "tasks_app/_command_list.html" if is_partial(request) else "tasks_app/command_list.html",
        {
            "whole": found,
            "seen": found.list,
            "look": LOOKS[found.list.status],
            "rows": _rows_of(found),
            "now_ms": Task.objects.now_ms(),
            "sees_payloads": may(user_of(request), Action.SEE_PAYLOADS),
            **rights_of(request),
        },
    )


@reads(Action.SEE)
def command(request: HttpRequest) -> HttpResponse:
    """Show a command: the run with the `id`, or the newest one; an open page polls it as a partial."""
    name, command_id = project_in(request.GET), id_in(request.GET)
    found = looking.command(name, command_id)
    if found is None:
        return render(request, "tasks_app/no_command.html", {"project": name, "command_id": command_id}, status=404)
    seen = run_with(found, command_id)
    run, tail = seen.run, found.tail if seen is found.newest else None
    running = looking.command_list(seen.task) if seen.status is CommandStatus.RUNNING else None
    progress = {command.id: word for command, _, word in _rows_of(running)} if running else {}
    return render(
        request,
        "tasks_app/_shell_command.html" if is_partial(request) else "tasks_app/shell_command.html",
        {
            "asked_id": command_id,
            "seen": seen,
            "look": LOOKS[seen.status],
            "out": show(run.out) if run else None,
            "err": show(run.err) if run else None,
            "line": payload.text_of(seen.cmd.encode(), is_whole=True),
            "meaning": STATUSES[seen.status][1],
            "progress": progress.get(seen.id, ""),
            "in_list": seen.status in OF_LISTS,
            "created_ms": _ms(seen.created),
            "until_ms": _ms(seen.until),
            "started_ms": _ms(run.started) if run else 0,
            "ended_ms": _ms(run.ended) if run else 0,
            "runs": [(each, LOOKS[each.status]) for each in (found.newest, *found.earlier)],
            "newest": found.newest,
            "tail": _tail(seen, tail) if tail else None,
            "list_origin": running.list.origin if running else 0,
            "may_cancel": seen is found.newest and may_be_cancelled(seen),
            "is_final": found.newest.status in FINAL,
            "now_ms": Task.objects.now_ms(),
            "sees_payloads": may(user_of(request), Action.SEE_PAYLOADS),
            **rights_of(request),
        },
    )


def _tail(seen: CommandSeen, tail: LiveOutput) -> dict[str, Any]:
    """Return the output of a running command. `since_ms`: its start, before which another one reported progress."""
    started_s = tail.due - seen.expected_duration if tail.due else tail.at
    return {"at_ms": _ms(tail.at), "since_ms": _ms(started_s), "out": show(tail.out), "err": show(tail.err)}


@reads(Action.SEE_PAYLOADS)
def output(request: HttpRequest) -> HttpResponse:
    """Download the kept output of a run, byte for byte; the browser must not display it."""
    name, command_id, stream = project_in(request.GET), id_in(request.GET), request.GET.get("stream", "")
    if stream not in ("out", "err"):
        raise InvalidInput({"stream": ["must be out or err"]})
    found = looking.command(name, command_id)
    run = run_with(found, command_id).run if found else None
    if run is None:
        raise Http404
    written: Output = getattr(run, stream)
    return HttpResponse(
        written.content,
        content_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="command.{stream}"'},
    )


def rights_of(request: HttpRequest) -> dict[str, Any]:
    """Return the reader's rights to commands, and whether this server accepts any."""
    return {"is_on": commands_are_on(), "may_change": may_command(user_of(request))}


def project_in(asked: Mapping[str, str]) -> str:
    name = parameters.text_of(asked, "project", parameters.LONGEST_FILTER)
    if why := why_no_project(name):
        raise InvalidInput({"project": [why]})
    return name


def status_in(asked: Mapping[str, str]) -> CommandStatus | None:
    """Return the requested status, or None. Raises InvalidInput."""
    text = asked.get("status", "")
    if text and text not in list(CommandStatus):
        raise InvalidInput({"status": [f"must be one of {', '.join(CommandStatus)}"]})
    return CommandStatus(text) if text else None


def _listed(request: HttpRequest, name: str, status: CommandStatus | None) -> tuple[ListPage | None, ResultPage | None]:
    """Return the lists and the results that are asked for. Raises InvalidInput."""
    text = parameters.text_of(request.GET, "text", parameters.LONGEST_FILTER)
    after = request.GET.get("after") or None
    if status in OF_LISTS:
        return looking.lists(name, status=status, after=after), None
    if status or text or after:
        if text and not may(user_of(request), Action.SEE_PAYLOADS):
            raise InvalidInput({"text": ["can't be searched: your role does not allow you to see command lines"]})
        return None, looking.results(name, status=status, text=text, after=after)
    return looking.lists(name, status=CommandStatus.RUNNING, limit=FEW), looking.results(name, limit=FEW)


def _list_elsewhere(request: HttpRequest, list_id: int) -> HttpResponse:
    """Redirect an earlier id to its list, or explain what happened to the list."""
    chain = chain_of(list_id, OF_COMMANDS)
    if chain and chain.living and chain.living.id != list_id and looking.command_list(chain.living.id):
        return redirect("tasks_app:command_list", chain.living.id)
    place = place_of(chain.group) if chain else None
    why = history.fate_of(list_id, EVERY_GROUP) or ""
    context = {"list_id": list_id, "why": why, "project": place[0] if place else "", "is_known": chain is not None}
    if is_partial(request):  # An open page would ignore a 404 and stay as it was.
        return render(request, "tasks_app/_no_command_list.html", context)
    return render(request, "tasks_app/no_command_list.html", context, status=404)


def _rows_of(found: ListWhole) -> list[tuple[Command, str, str]]:
    """Return each command of a list with its look and the word for its progress."""
    live = {each.command for each in found.live}
    rows = []
    for command in found.commands:
        if command.run:
            look, word = ("failed", "failed") if command.run.failed else ("finished", "completed")
        elif command.id in live:
            look, word = "claimed", "running"
        else:
            look, word = "ready", "waiting"
        rows.append((command, look, word))
    return rows


def run_with(found: CommandWhole, command_id: str) -> CommandSeen:
    """Return the run with this id, or the newest one, with its whole kept output."""
    seen = next((each for each in found.earlier if each.id == command_id), found.newest)
    [task] = Task.objects.find([seen.task]) if seen is not found.newest else [None]
    return (command_seen(task, seen.project) if task else None) or seen


def _ms(seconds: int) -> int:
    # A worker or an import may report times beyond any calendar.
    return min(seconds * 1_000, LATEST_MS)


def id_in(asked: QueryDict) -> str:
    text = parameters.text_of(asked, "id", LABEL_LENGTH)
    if not text:
        raise InvalidInput({"id": ["must be the id of a command"]})
    return text
