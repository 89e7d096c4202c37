"""What a person does to commands: submit them, park them, run them again, put them away, open a list again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import render, resolve_url
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from .. import audit, command_lists
from ..command_lists import looking
from ..command_record import DEFAULT_PROJECT, FINAL, OF_LISTS, CommandStatus
from ..errors import Forbidden, InvalidInput
from ..models import Task
from ..policy import COMMANDS_ARE_OFF, Action, commands_are_on
from . import links, reading
from .command_form import SubmitForm
from .command_lists import project_in, rights_of, status_in
from .command_words import status_word
from .pages import P, View, go_to, is_partial, page, user_of


class Verb(StrEnum):
    """What is done to many commands at once."""

    RETRY = "retry"
    STASH = "stash"
    UNSTASH = "unstash"
    ARCHIVE = "archive"


# Which are meant when nothing is selected.
MEANT = {
    Verb.RETRY: (CommandStatus.FAILED_TIME, CommandStatus.FAILED_COUNT),
    Verb.STASH: (CommandStatus.NEW, CommandStatus.OPEN),
    Verb.UNSTASH: (CommandStatus.NEW_STASHED, CommandStatus.OPEN_STASHED),
    Verb.ARCHIVE: (CommandStatus.COMPLETED,),
}
TOLD = {
    Verb.RETRY: "Commands that are run once more",
    Verb.STASH: "Commands and lists that are parked now",
    Verb.UNSTASH: "Commands and lists that go on",
    Verb.ARCHIVE: "Commands that are put away",
}
DRIFT = 10  # So many more may have come since somebody was asked, or one in a hundred.
NOTHING: Mapping[str, Sequence[str]] = {}


def changing(view: View[P]) -> View[P]:
    """A page for people who may change commands, on a server that takes some."""

    @page(Action.COMMANDS)
    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not commands_are_on():
            raise Forbidden(f"No command can be submitted or changed: {COMMANDS_ARE_OFF}.")
        return view(request, *args, **kwargs)

    return guarded


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What somebody is asked before it is done. Without `ids` all of the statuses are meant, whatever comes to them."""

    verb: Verb
    project: str
    statuses: Sequence[CommandStatus]
    ids: Sequence[int] | None
    number: int  # Commands, or what was selected.

    @property
    def status(self) -> CommandStatus | None:
        """Where they lie, when that is one status."""
        return self.statuses[0] if len(self.statuses) == 1 else None

    @property
    def in_words(self) -> str:
        return " or ".join(map(status_word, self.statuses))


@require_http_methods(["GET", "HEAD", "POST"])
@changing
def submit(request: HttpRequest) -> HttpResponse:
    """Ask for the lines; submit them."""
    asked = request.POST if request.method == "POST" else None
    form = SubmitForm(asked, initial={"project": request.GET.get("project") or DEFAULT_PROJECT})
    number = _submit(request, form) if form.is_valid() else 0
    if number:
        messages.success(request, f"Submitted {number} command{'s' * (number > 1)}.")
        return go_to(request, links.commands_page(form.cleaned_data["project"]))
    context = {"form": form, "projects": [each.project for each in looking.overview()], **rights_of(request)}
    return render(request, "console/submit_commands.html", context, status=422 if asked else 200)


@require_safe
@changing
def confirm(request: HttpRequest) -> HttpResponse:
    """The question before a verb is done to selected commands or lists, or to all."""
    return _question(request, _asked(request.GET, _verb_in(request.GET)))


@require_POST
@changing
def retry(request: HttpRequest) -> HttpResponse:
    return _done(request, _asked(request.POST, Verb.RETRY))


@require_POST
@changing
def stash(request: HttpRequest) -> HttpResponse:
    return _done(request, _asked(request.POST, Verb.STASH))


@require_POST
@changing
def unstash(request: HttpRequest) -> HttpResponse:
    return _done(request, _asked(request.POST, Verb.UNSTASH))


@require_POST
@changing
def archive(request: HttpRequest) -> HttpResponse:
    return _done(request, _asked(request.POST, Verb.ARCHIVE))


@require_http_methods(["GET", "HEAD", "POST"])
@changing
def reopen(request: HttpRequest, list_id: int) -> HttpResponse:
    """Ask whether its worker is dead; let another one have the list."""
    found = looking.command_list(list_id)
    if found is None:
        raise Http404
    if request.method != "POST":
        template = "console/_reopen_list.html" if is_partial(request) else "console/reopen_list.html"
        return render(request, template, {"whole": found, "seen": found.seen, "now_ms": Task.objects.now_ms()})
    by, reason = user_of(request).username, _reason_in(request)
    if not command_lists.reopen(found.project, found.seen.task, by=by, reason=reason):
        raise InvalidInput({"list": ["one that is running: its worker is done with it, or it is open again already"]})
    messages.success(request, f"Opened list {found.seen.name} again.")
    return go_to(request, links.commands_page(found.project))


def _submit(request: HttpRequest, form: SubmitForm) -> int:
    """How many were submitted. 0 when they are refused; then the form says why."""
    given = form.cleaned_data
    try:
        with transaction.atomic():
            made = command_lists.submit(given["project"], form.submissions(), stashed=given["stashed"])
            by, selection = user_of(request).username, f"commands of {given['project']}"
            audit.record(actor=by, action="submit", selection=selection, done=len(made))
    except InvalidInput as refused:
        form.tell(refused)
        return 0
    return len(made)


def _verb_in(asked: QueryDict) -> Verb:
    if (text := asked.get("verb", "")) not in list(Verb):
        raise InvalidInput({"verb": [f"one of {', '.join(Verb)}"]})
    return Verb(text)


def _asked(asked: QueryDict, verb: Verb) -> Question:
    """What is meant, and how many there are of it now. Raises InvalidInput."""
    project, status = project_in(asked), status_in(asked)
    if not asked.get("all"):
        ids = reading.ids_of(asked)
        return Question(verb=verb, project=project, statuses=[status] if status else [], ids=ids, number=len(ids))
    statuses = MEANT[verb]
    if verb is Verb.RETRY and status in FINAL:
        statuses = (status,)
    counts = looking.status(project).counts
    number = sum(counts.get(each, 0) for each in statuses)
    return Question(verb=verb, project=project, statuses=statuses, ids=None, number=number)


def _question(request: HttpRequest, question: Question, errors: Mapping[str, Sequence[str]] = NOTHING) -> HttpResponse:
    return render(
        request,
        "console/_confirm_commands.html" if is_partial(request) else "console/confirm_commands.html",
        {
            "question": question,
            "address": resolve_url(f"console:{question.verb}_commands"),
            "of_lists": question.status in OF_LISTS,
            "reason": request.POST.get("reason", ""),
            "errors": errors,
        },
        status=422 if errors else 200,
    )


def _done(request: HttpRequest, question: Question) -> HttpResponse:
    """Do what was agreed to, or show the question again when there is far more to do by now."""
    expected = reading.whole_number("expected", request.POST.get("expected", ""))
    reason = _reason_in(request)  # Read first: nothing may be refused after the deed.
    if question.number - expected > max(DRIFT, expected // 100):
        return _question(request, question, {"expected": [f"{question.number} now, and not {expected} any more"]})
    number = _do(question, by=user_of(request).username, reason=reason)
    messages.success(request, f"{TOLD[question.verb]}: {number}.")
    return go_to(request, links.commands_page(question.project))


def _do(question: Question, **who: str) -> int:
    project, ids = question.project, question.ids
    match question.verb:
        case Verb.RETRY:
            return command_lists.retry(project, ids, question.status if ids is None else None, **who)
        case Verb.STASH:
            return command_lists.stash(project, ids, **who)
        case Verb.UNSTASH:
            return command_lists.unstash(project, ids, **who)
        case Verb.ARCHIVE:
            return command_lists.archive(project, ids, **who)


def _reason_in(request: HttpRequest) -> str:
    return reading.text_of(request.POST, "reason", reading.LONGEST_REASON).strip()
