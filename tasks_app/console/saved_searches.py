"""Keeping searches under names of one's own."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from .. import saved_searches
from ..errors import InvalidInput
from ..policy import Action
from . import links, reading, searching
from .pages import page, user_of


@require_POST
@page(Action.SEE)
def save_search(request: HttpRequest) -> HttpResponse:
    q = request.POST.get("q", "")
    try:
        saved = saved_searches.save(user_of(request), _name_in(request), q)
    except InvalidInput as refused:
        return searching.answer(request, q, refused=refused.fields)
    messages.success(request, f"Saved as {saved.name}.")
    return redirect(links.search_page(q))


@require_POST
@page(Action.SEE)
def rename_search(request: HttpRequest, search_id: int) -> HttpResponse:
    name = _name_in(request)
    try:
        saved_searches.rename(user_of(request), search_id, name)
    except InvalidInput as refused:
        return searching.answer(request, "", refused=refused.fields)
    messages.success(request, f"Renamed to {name}.")
    return redirect("console:search")


@require_POST
@page(Action.SEE)
def delete_search(request: HttpRequest, search_id: int) -> HttpResponse:
    saved_searches.delete(user_of(request), search_id)
    messages.success(request, "Deleted a saved search. No task was touched.")
    return redirect("console:search")


def _name_in(request: HttpRequest) -> str:
    return reading.text_of(request.POST, "name", saved_searches.NAME_LENGTH).strip()
