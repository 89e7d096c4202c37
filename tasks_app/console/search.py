"""The pages of search and of failed tasks; saved searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from taskstore.errors import InvalidInput

from ..access.policy import Action, may
from ..reading import saved_searches
from ..reading.failures import failures
from ..reading.pages import Cursor, rows_of
from ..reading.saved_searches import MOST, saved_by
from ..reading.search import grammar
from ..reading.search.finding import LIMIT_S, Found, find
from ..reading.search.grammar import Key
from ..reading.search.suggestions import suggest
from ..writer.totals import tasks_with_errors
from . import links, parameters
from .pages import changes, reads, user_of

MOST_SUGGESTED = 6  # Saved searches.


@reads(Action.SEE, from_replica=True)
def search(request: HttpRequest) -> HttpResponse:
    """Show the tasks that match; redirect a lone id to its task."""
    return answer(request, request.GET.get("q", ""))


def answer(request: HttpRequest, text: str, *, refused: Mapping[str, Sequence[str]] | None = None) -> HttpResponse:
    """Render the results. `refused` has the errors of the name under which somebody wanted to save the search."""
    after = request.GET.get("after")
    try:
        terms = parameters.terms_of(text, user_of(request))
        place = Cursor.read(after, "after") if after else None
    except InvalidInput as wrong:
        # An error of the search names the term itself.
        fields = [("" if field == "q" else f"{field}: ", texts) for field, texts in wrong.fields.items()]
        return _page(request, text, problems=[f"{field}{each}" for field, texts in fields for each in texts])
    if not refused and (task_id := grammar.lone_id(terms)):
        return redirect("tasks_app:task", task_id)
    return _page(request, text, find(terms, after=place) if terms else None, refused=refused or {})


@reads(Action.SEE)
def suggestions(request: HttpRequest) -> HttpResponse:
    """Suggest saved searches, then completions of the text, each as the whole text of the box."""
    text = request.GET.get("q", "")
    saved = [each for each in saved_by(user_of(request)) if text.casefold() in f"{each.name}\n{each.q}".casefold()]
    context = {"saved": saved[:MOST_SUGGESTED], "suggestions": suggest(text)}
    return render(request, "tasks_app/_suggestions.html", context)


def chips_of(text: str) -> list[tuple[str, str]]:
    """Return the terms of a search as written, each with the address of the search without it."""
    terms = grammar.tokens_of(text)
    others = (terms[:place] + terms[place + 1 :] for place in range(len(terms)))
    return [(term, links.to("search", q=" ".join(rest))) for term, rest in zip(terms, others, strict=True)]


def _page(
    request: HttpRequest,
    text: str,
    found: Found | None = None,
    *,
    problems: Sequence[str] = (),
    refused: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> HttpResponse:
    sees_payloads = may(user_of(request), Action.SEE_PAYLOADS)
    return render(
        request,
        "tasks_app/search.html",
        {
            "searched": text,
            "chips": chips_of(text) if found else [],
            "found": found,
            "rows": rows_of(found.ids, found.at_ms, with_data=sees_payloads) if found else [],
            "problems": problems,
            "sees_payloads": sees_payloads,
            "may_operate": may(user_of(request), Action.OPERATE),
            "hints": [(key, hint) for key, hint in grammar.HINTS.items() if sees_payloads or key is not Key.DATA],
            "limit_s": LIMIT_S,
            "is_first": (is_first := "after" not in request.GET),
            "is_whole": bool(found and is_first and not found.after),  # All that match are on this page.
            "refused": [text for texts in refused.values() for text in texts],
            "new_name": request.POST.get("name", ""),
            "most_saved": MOST,
        },
        status=400 if problems else 422 if refused else 200,
    )


@changes(Action.SEE)
def save_search(request: HttpRequest) -> HttpResponse:
    q = request.POST.get("q", "")
    try:
        saved = saved_searches.save(user_of(request), _name_in(request), q)
    except InvalidInput as refused:
        return answer(request, q, refused=refused.fields)
    messages.success(request, f"Saved as {saved.name}.")
    return redirect(links.to("search", q=q))


@changes(Action.SEE)
def rename_search(request: HttpRequest, search_id: int) -> HttpResponse:
    name = _name_in(request)
    try:
        saved_searches.rename(user_of(request), search_id, name)
    except InvalidInput as refused:
        return answer(request, "", refused=refused.fields)
    messages.success(request, f"Renamed to {name}.")
    return redirect("tasks_app:search")


@changes(Action.SEE)
def delete_search(request: HttpRequest, search_id: int) -> HttpResponse:
    saved_searches.delete(user_of(request), search_id)
    messages.success(request, "Deleted the saved search.")
    return redirect("tasks_app:search")


def _name_in(request: HttpRequest) -> str:
    return parameters.text_of(request.POST, "name", saved_searches.NAME_LENGTH).strip()


@reads(Action.SEE, from_replica=True)
def failed(request: HttpRequest) -> HttpResponse:
    # The count first: a task that fails in between is then announced rather than missed.
    context = {"tasks": tasks_with_errors(), "failures": failures()}
    return render(request, "tasks_app/failed.html", context)
