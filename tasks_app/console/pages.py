"""The guard of every console page: access rights, and the pages for errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseFailure
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render, resolve_url
from django.template.response import SimpleTemplateResponse
from django.urls import get_script_prefix, is_valid_path
from django.utils import translation
from django.utils.cache import patch_cache_control
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from taskstore.errors import CommitUnknown, Forbidden, InvalidInput, JobUnfinished, StoreBusy, StoreUnavailable, refuse
from taskstore.types.scalars import REASON_LENGTH
from taskstore.types.sentences import is_utf8, text
from taskstore.types.texts import UNSEEN, visible

from ..access.people import Person, must_choose_password
from ..access.policy import Action, actions_of, actor_of, administrators, may
from ..conf import LIVE
from ..conf.commands import COMMANDS_ARE_OFF, commands_are_on
from ..core.actors import Actor
from ..database.outage import is_damaged, reason_of, translated
from .fields import TellingForm
from .replica import from_replica as on_replica
from .replica import note_change

P = ParamSpec("P")
T = TypeVar("T")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]

RETRY_AFTER_S = 5
FEW_NAMES = 3  # Of the administrators whom somebody without a right may ask.


def existing(found: T | None) -> T:
    """Return what was looked for. Raises Http404 if there is nothing."""
    if found is None:
        raise Http404
    return found


def page(action: Action) -> Callable[[View[P]], View[P]]:
    """Return a decorator that opens a page to people who may do `action`, and forbids caching.

    Others are redirected to the sign-in or to the choice of a password, or get 403. Invalid input
    becomes a 400 that names the fields, an unfinished job a 409, and an unavailable store a 503.
    """

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        @never_cache
        @in_english
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            try:
                user = request.user
                if not isinstance(user, Person):
                    return to_sign_in(request)
                if must_choose_password(user):
                    return redirect("tasks_app:password")
                if not may(user, action):
                    raise PermissionDenied
                if action is Action.COMMANDS and not commands_are_on():
                    raise Forbidden(f"Commands can't be submitted or changed, because {COMMANDS_ARE_OFF}.")
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


def reads(action: Action, *, from_replica: bool = False) -> Callable[[View[P]], View[P]]:
    """Return a decorator for a page that changes nothing; with `from_replica`, it may be seconds old."""
    return lambda view: require_safe(page(action)(on_replica(view) if from_replica else view))


def asks(action: Action) -> Callable[[View[P]], View[P]]:
    """Return a decorator for a page that asks for something, and then does it."""
    return lambda view: require_http_methods(["GET", "HEAD", "POST"])(page(action)(view))


def changes(action: Action) -> Callable[[View[P]], View[P]]:
    """Return a decorator for what changes something at once."""
    return lambda view: require_POST(page(action)(view))


def in_english(view: View[P]) -> View[P]:
    """Return the view with the texts and the numbers of the console, whatever the language of the project is."""

    @wraps(view)
    def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        with translation.override(None):
            response = view(request, *args, **kwargs)
            if isinstance(response, SimpleTemplateResponse):
                response.render()
            if isinstance(response, HttpResponse) and response.get("Content-Type", "").startswith("text/html"):
                response.content = _with_all_seen(response.content.decode())
            return response

    return answer


TAGS = re.compile(r"(<textarea\b.*?</textarea>|<[^>]*>)", re.DOTALL)


def _with_all_seen(html: str) -> str:
    """Return the page with its text as people must see it, and with the values of its forms as they are."""
    if not UNSEEN.search(html):
        return html
    pieces = TAGS.split(html)
    pieces[::2] = map(visible, pieces[::2])
    return "".join(pieces)


def sign_in_page() -> str:
    """Return the address of the project's sign-in page, or of the console's own where LOGIN_URL leads nowhere."""
    address = resolve_url(settings.LOGIN_URL)
    path = urlsplit(address)
    is_there = path.netloc or is_valid_path(f"/{path.path.removeprefix(get_script_prefix())}")
    return address if is_there else resolve_url("tasks_app:login")


def to_sign_in(request: HttpRequest) -> HttpResponse:
    """Lead to the sign-in, from which the person comes back to this page with all that was selected and typed.

    Above an open page the console's own sign-in is a dialog, so that the page stays as it is. What a form has sent is
    kept by the sign-in page.
    """
    if request.headers.get("HX-Request") and not is_partial(request):
        return HttpResponse(status=401)  # What an open page asks again and again: it stays as it is.
    page = sign_in_page()
    is_ours = page == resolve_url("tasks_app:login")
    if is_ours and is_partial(request):
        response = render(request, "tasks_app/_login.html", {"form": AuthenticationForm(request)}, status=401)
        response["HX-Retarget"] = "#sign-in"
        return response
    if is_ours and request.method == "POST":
        context = {"form": AuthenticationForm(request), "has_ended": True, "kept": kept_in(request)}
        if request.FILES:
            context |= {"next": request.get_full_path(), "lacks_file": True}
        return render(request, "tasks_app/login.html", context, status=401)
    if is_partial(request):
        before = urlsplit(request.headers.get("HX-Current-URL", ""))
        return go_to(request, redirect_to_login(f"{before.path}?{before.query}", page).url)
    return redirect_to_login(request.get_full_path(), page)


SECRETS = ("csrfmiddlewaretoken", "password", "old_password", "new_password1", "new_password2")


def kept_in(request: HttpRequest) -> str:
    """Return what a form has sent, as JSON that `sent_again` takes; empty if there is nothing. Files are not kept."""
    if request.method != "POST" or request.FILES:
        return ""
    fields = [[name, value] for name, values in request.POST.lists() if name not in SECRETS for value in values]
    return json.dumps({"to": request.get_full_path(), "fields": fields}, ensure_ascii=False)


def sent_again(request: HttpRequest, kept: str) -> dict[str, Any] | None:
    """Return what _send_again.html needs to send it again; None if it isn't for a page of this site."""
    try:
        found = json.loads(kept)
        to, fields = str(found["to"]), [(str(name), str(value)) for name, value in found["fields"]]
        if not all(is_utf8(each) for each in (to, *(part for field in fields for part in field))):
            return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_here = to.startswith("/") and url_has_allowed_host_and_scheme(to, {request.get_host()})
    return {"to": to, "fields": fields} if is_here else None


def live_address(request: HttpRequest) -> str:
    """Return the path of the websocket for the page.

    Empty where the server has none (tasks_app/live/asgi.py), and for a person who may not see what it would tell.
    """
    has_one = LIVE in getattr(request, "scope", ()) and may(request.user, Action.SEE)
    return resolve_url("tasks_app:live") if has_one else ""


@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """Say to whoever asks over HTTP that this is the address of a websocket."""
    return HttpResponse("This is the address of a websocket.\n", status=426, content_type="text/plain")


def refuse_broken_text(request: HttpRequest) -> None:
    """Raise InvalidInput for text that is not UTF-8: Django replaces it, which could name another group."""
    texts = [request.META.get("QUERY_STRING", "")]
    if request.content_type == "application/x-www-form-urlencoded":
        texts.append(request.body)
    try:
        for text in texts:
            unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidInput({"request": ["must be percent-encoded UTF-8"]}) from None


def user_of(request: HttpRequest) -> Person:
    """Return the person who is signed in; only within a page."""
    assert isinstance(request.user, Person)  # noqa: S101 - the guard of every page has checked it.
    return request.user


def actor_for(request: HttpRequest) -> Actor:
    """Return the person who is signed in, with the reason that a form gives; only within a page.

    Raises InvalidInput about the reason.
    """
    reason = request.POST.get("reason", "").strip()
    refuse(text("reason", reason, REASON_LENGTH))
    return actor_of(user_of(request), reason)


def is_partial(request: HttpRequest) -> bool:
    """Return whether a script asks for a part of a page."""
    return request.headers.get("HX-Request-Type") == "partial"


def go_to(request: HttpRequest, url: str) -> HttpResponse:
    """Redirect the whole page, also when a script asked for a part of it."""
    if not is_partial(request):
        return HttpResponseRedirect(url)
    response = HttpResponse(status=204)
    response["HX-Redirect"] = url
    return response


def ask_first(
    request: HttpRequest, question: str, title: str, context: dict[str, Any], do: Callable[[Actor], HttpResponse]
) -> HttpResponse:
    """Ask before a change; make it once it is confirmed, or ask again with what was refused.

    `question`: the template, which extends _question.html. A page that has nothing to ask about sets `nothing`.
    """
    refused: InvalidInput | None = None
    if request.method == "POST":
        try:
            return do(actor_for(request))
        except InvalidInput as problem:
            refused = problem
    template = f"tasks_app/_{question}.html"
    context |= {
        "question": template,
        "title": title,
        "reason": request.POST.get("reason", ""),
        "errors": refused.fields if refused else {},
    }
    shown = template if is_partial(request) else "tasks_app/question.html"
    return render(request, shown, context, status=422 if refused else 200)


def posted(request: HttpRequest) -> QueryDict | None:
    """Return what a form sent; None when the page is only looked at."""
    return request.POST if request.method == "POST" else None


def fill_in(
    request: HttpRequest, form: TellingForm, template: str, context: dict[str, Any], do: Callable[[Actor], HttpResponse]
) -> HttpResponse:
    """Show a form; do what it asks for once it is valid, or show it again with what was refused."""
    if form.is_valid():
        try:
            return do(actor_for(request))
        except InvalidInput as refused:
            form.tell(refused)
    context |= {"form": form}
    return render(request, f"tasks_app/{template}.html", context, status=422 if form.is_bound else 200)


def done(request: HttpRequest, message: str, url: str) -> HttpResponse:
    """Go on to a page that says what was done."""
    messages.success(request, message)
    return go_to(request, url)


def without_empty_fields(request: HttpRequest) -> str:
    """Return the address of the page without the empty fields that a form sends."""
    query = request.GET.copy()
    for name in [name for name, value in request.GET.items() if not value]:
        del query[name]
    return f"{request.path}?{query.urlencode()}" if query else request.path


def problem(request: HttpRequest, error: Exception) -> HttpResponse:
    """Render the page, or the content of a dialog, that says what went wrong and what to do."""
    if isinstance(translated(error), StoreUnavailable):
        return away(request, error)
    status, title = 403, "Permission denied"
    match error:
        case PermissionDenied() if not actions_of(user_of(request)):
            title, text = "You have no role yet", f"No role of yours allows you to see this. {_whom_to_ask()}"
        case PermissionDenied():
            text = f"Your role does not allow this. {_whom_to_ask()}"
        case Forbidden():
            text = f"{error} Nothing was changed."
        case InvalidInput():
            status, title, text = 400, "Invalid request", "Nothing was changed."
        case JobUnfinished():
            status, title, text = 409, "The job is not finished", f"{error} Nothing was changed."
        case _:
            status, title = 503, "The store is busy"
            text = "Other operations are using these tasks. Nothing was changed. Try again in a moment."
    fields: Mapping[str, Any] = error.fields if isinstance(error, InvalidInput) else {}
    template = "tasks_app/_problem.html" if is_partial(request) else "tasks_app/problem.html"
    context: dict[str, Any] = {"title": title, "text": text, "fields": fields}
    if status == 503:
        context["again"] = sent_again(request, kept_in(request))
    response = render(request, template, context, status=status)
    if status == 503:
        response["Retry-After"] = RETRY_AFTER_S
    return response


def _whom_to_ask() -> str:
    names = administrators(FEW_NAMES)
    return f"An administrator can give you one that does: {', '.join(names)}." if names else "Ask an administrator."


def away(request: HttpRequest, error: Exception) -> HttpResponse:
    """Render the page, or the content of a dialog, for an outage of the database, without using it.

    A page that only reads retries by itself. A change does not: only the person knows whether to repeat it.
    """
    retries = request.method in ("GET", "HEAD")
    if isinstance(error, CommitUnknown):
        title, text = "The outcome is unknown", "Check the tasks before you try again."
    else:
        title, reason = "The database is not responding", reason_of(error)
        why = "" if reason == "the database can't be reached" else f"{reason[0].upper()}{reason[1:]}. "
        if is_damaged(error):
            title, retries = "The database is damaged", False
            text = "An operator has to stop the server, and to repair the database or restore a backup."
        elif retries:
            text = f"{why}This page appears as soon as it is back."
        elif isinstance(error, StoreUnavailable):
            text = f"{why}Nothing was changed. Try again in a moment."
        else:
            text = f"{why}Your change may or may not have been made. Check before you try again."
    context = {"title": title, "text": text, "retries": retries, "retry_after_s": RETRY_AFTER_S}
    context["again"] = sent_again(request, kept_in(request))
    template = "tasks_app/_away.html" if is_partial(request) else "tasks_app/away.html"
    response = render(request, template, context, status=503)
    response["Retry-After"] = RETRY_AFTER_S
    if retries and not is_partial(request):
        response["Refresh"] = RETRY_AFTER_S
    patch_cache_control(response, no_store=True)
    return response
