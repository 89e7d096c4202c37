"""What every page of the console has in common: who may see it, and what an error looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import unquote_to_bytes

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseFailure
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.utils.cache import patch_cache_control
from django.views.decorators.cache import never_cache

from taskstore.errors import CommitUnknown, Forbidden, InvalidInput, JobUnfinished, StoreBusy, StoreUnavailable, refuse

from ..access.people import must_choose_password
from ..access.policy import Action, actor_of, may
from ..core.actors import REASON_LENGTH, Actor
from ..core.validation import text
from ..database.outage import reason_of, translated
from .replica import note_change

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]

RETRY_AFTER_S = 5


def page(action: Action) -> Callable[[View[P]], View[P]]:
    """A page for people who may do `action`; nothing of it is kept by browsers and proxies.

    Others are led to the sign-in, to the choice of a password, or get a 403. What the store
    refuses to take becomes a 400 that names the fields, a store that can't answer a 503.
    """

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        @never_cache
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            try:
                user = request.user
                if not isinstance(user, User):
                    return _to_login(request)
                if must_choose_password(user):
                    return redirect("console:password")
                if not may(user, action):
                    raise PermissionDenied
                refuse_broken_text(request)
                note_change(request)
                return view(request, *args, **kwargs)
            except (
                PermissionDenied, Forbidden, InvalidInput, JobUnfinished, StoreBusy, StoreUnavailable,
            ) as error:  # fmt: skip
                return problem(request, error)
            except DatabaseFailure as error:
                if translated(error) is None:
                    raise
                return problem(request, error)

        return guarded

    return decorate


def refuse_broken_text(request: HttpRequest) -> None:
    """Django replaces what is no UTF-8, and something would be done to another group than the one that was meant."""
    texts = [request.META.get("QUERY_STRING", "")]
    if request.content_type == "application/x-www-form-urlencoded":
        texts.append(request.body)
    try:
        for text in texts:
            unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidInput({"request": ["must be percent-encoded UTF-8"]}) from None


def user_of(request: HttpRequest) -> User:
    """The person who is signed in; only within a page."""
    assert isinstance(request.user, User)  # noqa: S101 - the guard of every page has seen to it.
    return request.user


def actor_for(request: HttpRequest) -> Actor:
    """Return the person who is signed in, with the reason that a form gives; only within a page.

    Raises InvalidInput about the reason.
    """
    reason = request.POST.get("reason", "").strip()
    refuse(text("reason", reason, REASON_LENGTH))
    return actor_of(user_of(request), reason)


def is_partial(request: HttpRequest) -> bool:
    """Whether a script asks for a part of a page."""
    return request.headers.get("HX-Request-Type") == "partial"


def go_to(request: HttpRequest, url: str) -> HttpResponse:
    """Lead there, also from a part of a page: what is asked for by a script would land inside of it."""
    if not is_partial(request):
        return redirect(url)
    response = HttpResponse(status=204)
    response["HX-Redirect"] = url
    return response


def problem(request: HttpRequest, error: Exception) -> HttpResponse:
    """The page, or the content of a dialog, that says what went wrong and what to do."""
    if isinstance(translated(error), StoreUnavailable):
        return away(request, error)
    status, title, text = _told(error)
    fields: Mapping[str, Any] = error.fields if isinstance(error, InvalidInput) else {}
    template = "console/_problem.html" if is_partial(request) else "console/problem.html"
    response = render(request, template, {"title": title, "text": text, "fields": fields}, status=status)
    if status == 503:
        response["Retry-After"] = RETRY_AFTER_S
    return response


def away(request: HttpRequest, error: Exception) -> HttpResponse:
    """The page, or the content of a dialog, for an outage of the database. Needs no database itself.

    What was to be read is asked for again by itself. A change is not: only the person knows whether it is wanted twice.
    """
    retries = request.method in ("GET", "HEAD")
    title, text = _told_of_outage(error, is_change=not retries)
    told = {"title": title, "text": text, "retries": retries, "retry_after_s": RETRY_AFTER_S}
    template = "console/_away.html" if is_partial(request) else "console/away.html"
    response = render(request, template, told, status=503)
    response["Retry-After"] = RETRY_AFTER_S
    if retries and not is_partial(request):
        response["Refresh"] = RETRY_AFTER_S
    patch_cache_control(response, no_store=True)
    return response


def _told_of_outage(error: Exception, *, is_change: bool) -> tuple[str, str]:
    if isinstance(error, CommitUnknown):
        return "The outcome is unknown", "Check the tasks before you try again."
    reason = reason_of(error)
    why = "" if reason == "the database can't be reached" else f"{reason[0].upper()}{reason[1:]}. "
    if not is_change:
        return "The database is not responding", f"{why}This page appears as soon as it is back."
    if isinstance(error, StoreUnavailable):
        return "The database is not responding", f"{why}Nothing was changed. Try again in a moment."
    return (
        "The database is not responding",
        f"{why}Your change may or may not have been made. Check before you try again.",
    )


def _told(error: Exception) -> tuple[int, str, str]:
    match error:
        case PermissionDenied():
            return (
                403,
                "Permission denied",
                "Your role does not allow this. An administrator can give you another role.",
            )
        case Forbidden():
            return 403, "Permission denied", f"{error} Nothing was changed."
        case InvalidInput():
            return 400, "Invalid request", "Nothing was changed."
        case JobUnfinished():
            return 409, "The job is not finished", f"{error} Nothing was changed."
        case _:
            return (
                503,
                "The store is busy",
                "Other operations are using these tasks. Nothing was changed. Try again in a moment.",
            )


def _to_login(request: HttpRequest) -> HttpResponse:
    login = resolve_url("console:login")
    return go_to(request, login) if is_partial(request) else redirect_to_login(request.get_full_path(), login)
