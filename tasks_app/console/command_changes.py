"""The pages that submit shell commands and change submitted ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django import forms
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import resolve_url

from taskstore.errors import InvalidInput, refuse
from taskstore.types.command_record import DEFAULT_PROJECT, FINAL, LONGEST_PROJECT, OF_LISTS, CommandStatus
from taskstore.types.commands import LONGEST_DURATION, MOST_FAILS, Submission
from taskstore.units import counted

from .. import bulk
from .. import commands as command_lists
from ..access.policy import Action
from ..commands import looking
from ..commands.changes import record
from ..core.actors import Actor
from ..database import atomic
from ..forms import with_plain_ends
from . import links, parameters
from .command_lists import id_in, project_in, rights_of, status_in
from .fields import TellingForm, WholeNumber
from .pages import ask_first, asks, changes, done, existing, fill_in, posted, reads
from .words import status_word

PLACE = re.compile(r"commands\[(\d+)\]\.(\w+)")
# The form's fields, by the names that a submission has for them.
FIELDS = {"commands": "lines", "cmd": "lines", "expected_duration": "expected"}


class SubmitForm(TellingForm):
    """Shell lines, their project, and how they are run."""

    project = forms.CharField(max_length=LONGEST_PROJECT, strip=False, initial=DEFAULT_PROJECT)
    lines = forms.CharField(
        strip=False, widget=forms.Textarea({"rows": 10, "spellcheck": "false", "autocapitalize": "off"})
    )
    expected = WholeNumber(required=False, least=1, most=LONGEST_DURATION)
    max_fails = WholeNumber(required=False, least=1, most=MOST_FAILS)
    until = forms.CharField(required=False, widget=forms.DateTimeInput({"type": "datetime-local"}))
    stashed = forms.BooleanField(required=False)

    def clean_until(self) -> int | None:
        text = self.cleaned_data["until"]
        try:
            return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) if text else None
        except (ValueError, OverflowError):
            raise forms.ValidationError("must be a UTC time such as 2026-01-31T14:00") from None

    def submissions(self) -> list[Submission]:
        given = self.cleaned_data
        return [
            Submission(cmd=cmd, expected_duration=given["expected"], until=given["until"], max_fails=given["max_fails"])
            for cmd in self._numbered().values()
        ]

    def tell(self, refused: InvalidInput) -> None:
        """Show each error at its field; an error of a command names its line."""
        numbers = list(self._numbered())
        for path, texts in refused.fields.items():
            found = PLACE.fullmatch(path)
            name = found[2] if found else path
            field = FIELDS.get(name, name)
            where = f"line {numbers[int(found[1])]}: " if found and field == "lines" else ""
            self.add_error(field if field in self.fields else None, [f"{where}{text}" for text in texts])

    def _numbered(self) -> Mapping[int, str]:
        """Return the lines that are not blank, by number."""
        lines = with_plain_ends(self.cleaned_data["lines"]).split("\n")
        return {number: line for number, line in enumerate(lines, 1) if line.strip()}


# Each change of many commands: what does it, what is said then, and what it applies to when nothing is selected.
VERBS: dict[str, tuple[Callable[..., int], str, Sequence[CommandStatus]]] = {
    "retry": (command_lists.retry, "Retried commands", (CommandStatus.FAILED_TIME, CommandStatus.FAILED_COUNT)),
    "stash": (command_lists.stash, "Stashed commands and lists", (CommandStatus.NEW, CommandStatus.OPEN)),
    "unstash": (
        command_lists.unstash,
        "Unstashed commands and lists",
        (CommandStatus.NEW_STASHED, CommandStatus.OPEN_STASHED),
    ),
    "archive": (command_lists.archive, "Archived commands", (CommandStatus.COMPLETED,)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A change to confirm. Without `ids` it applies to all commands of the statuses, later ones included."""

    verb: str
    project: str
    statuses: Sequence[CommandStatus]
    ids: Sequence[int] | None
    number: int  # Of commands, or of the selected rows.

    @property
    def status(self) -> CommandStatus | None:
        """Return the only status; None when there are several, or none."""
        return self.statuses[0] if len(self.statuses) == 1 else None

    @property
    def in_words(self) -> str:
        return " or ".join(map(status_word, self.statuses))


@asks(Action.COMMANDS)
def submit(request: HttpRequest) -> HttpResponse:
    """Show the form; submit its lines, with the audit entry in the same transaction."""
    form = SubmitForm(posted(request), initial={"project": request.GET.get("project") or DEFAULT_PROJECT})

    def do(actor: Actor) -> HttpResponse:
        given = form.cleaned_data
        with atomic():
            made = command_lists.submit(given["project"], form.submissions(), stashed=given["stashed"])
            record(actor, "submit", given["project"], len(made))
        url = links.to("command_project", project=given["project"])
        return done(request, f"Submitted {counted(len(made), 'command')}.", url)

    context = {"projects": [each.project for each in looking.overview()], **rights_of(request)}
    return fill_in(request, form, "submit_commands", context, do)


@reads(Action.COMMANDS)
def confirm(request: HttpRequest) -> HttpResponse:
    """Ask for confirmation of a change of selected commands or lists, or of all."""
    if (verb := request.GET.get("verb", "")) not in VERBS:
        raise InvalidInput({"verb": [f"must be one of {', '.join(VERBS)}"]})
    return _ask(request, _asked(request.GET, verb))


@changes(Action.COMMANDS)
def change(request: HttpRequest, verb: str) -> HttpResponse:
    """Make the confirmed change, or ask again when far more commands match by now."""
    return _ask(request, _asked(request.POST, verb))


def _ask(request: HttpRequest, asking: Question) -> HttpResponse:
    project, ids = asking.project, asking.ids

    def do(actor: Actor) -> HttpResponse:
        refuse(bulk.drifted(expected, asking.number, "lists" if of_lists else "commands"))
        change_them, said, _ = VERBS[asking.verb]
        only = {"status": asking.status} if asking.verb == "retry" and ids is None else {}
        said = f"{said}: {change_them(project, ids, actor, **only)}."
        return done(request, said, links.to("command_project", project=project))

    expected = parameters.whole_number("expected", request.POST.get("expected", "")) if request.POST else 0
    of_lists = asking.status in OF_LISTS
    context = {
        "asking": asking,
        "what": counted(asking.number, "list" if of_lists else "command"),
        "nothing": not asking.number,
        "address": resolve_url(f"tasks_app:{asking.verb}_commands"),
        "of_lists": of_lists,
    }
    return ask_first(request, "confirm_commands", f"{asking.verb.capitalize()} commands", context, do)


@asks(Action.COMMANDS)
def reopen(request: HttpRequest, list_id: int) -> HttpResponse:
    """Ask for confirmation; make a running list available to another worker."""
    found = existing(looking.command_list(list_id))

    def do(actor: Actor) -> HttpResponse:
        if not command_lists.reopen(found.project, found.list.task, actor):
            raise InvalidInput({"list": ["must be a running list: this one has finished or is open again"]})
        said = f"Reopened list {found.list.name}."
        return done(request, said, links.to("command_project", project=found.project))

    context = {"seen": found.list, "nothing": found.list.status is not CommandStatus.RUNNING}
    return ask_first(request, "reopen_list", f"Reopen list {found.list.name}", context, do)


@asks(Action.COMMANDS)
def cancel(request: HttpRequest) -> HttpResponse:
    """Ask for a reason; cancel a command. The others of its list go on."""
    asked = posted(request) or request.GET
    project, command_id = project_in(asked), id_in(asked)
    found = existing(looking.command(project, command_id))

    def do(actor: Actor) -> HttpResponse:
        if not command_lists.cancel(project, [command_id], actor):
            raise InvalidInput({"command": ["must be a command that has not ended"]})
        return done(request, f"Cancelled command {command_id}.", back)

    back = links.to("command", project=project, id=command_id)
    status = found.newest.status
    context = {
        "kind": "command",
        "project": project,
        "shown": command_id,
        "back": back,
        "is_held": status is CommandStatus.RUNNING,
        "nothing": not command_lists.may_be_cancelled(found.newest),
    }
    return ask_first(request, "cancel", f"Cancel command {command_id}", context, do)


def _asked(asked: QueryDict, verb: str) -> Question:
    """Return the requested change with the current number of commands. Raises InvalidInput."""
    project, status = project_in(asked), status_in(asked)
    if not asked.get("all"):
        ids = parameters.ids_of(asked)
        return Question(verb=verb, project=project, statuses=[status] if status else [], ids=ids, number=len(ids))
    _, _, statuses = VERBS[verb]
    if verb == "retry" and status in FINAL:
        statuses = (status,)
    counts = looking.status(project).counts
    number = sum(counts.get(each, 0) for each in statuses)
    return Question(verb=verb, project=project, statuses=statuses, ids=None, number=number)
