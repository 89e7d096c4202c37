"""Sessions that end at the sign-out, after some inactivity, and some time after the sign-in.

They are in cookies: in a table, they would compete with the writer on SQLite. Only early ends are in a table
(tasks_app.access.sessions), which is queried every second or two.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import signed_cookies
from django.http import HttpRequest
from django.http.cookie import parse_cookie
from django.utils.decorators import sync_and_async_middleware

BEGAN, SEEN = "began", "seen"  # Seconds since the Epoch.
ID, GENERATION = "id", "generation"  # See tasks_app.access.sessions.
RENEWED_EVERY_S = 60  # Not every page sends a new cookie.


class SessionStore(signed_cookies.SessionStore):
    """A session that ends `SESSION_COOKIE_AGE` after its last write, as Django's, or `SESSION_LONGEST_S` after sign-in.

    A sign-out ends it on every node, so that copies of its cookie become invalid.
    """

    def load(self) -> dict[str, Any]:
        kept = super().load()
        if time.time() - kept.get(BEGAN, 0) < settings.SESSION_LONGEST_S and not _was_ended(kept):
            return kept
        self.create()
        return {}

    async def aload(self) -> dict[str, Any]:
        return await sync_to_async(self.load)()

    def save(self, must_create: bool = False) -> None:
        from tasks_app.access.sessions import generation_of

        now_s = time.time()
        self.setdefault(BEGAN, now_s)
        self[SEEN] = now_s
        if SESSION_KEY in self and ID not in self:
            self[ID] = secrets.token_hex(16)
            self[GENERATION] = generation_of(self[SESSION_KEY])
        super().save(must_create)

    def flush(self) -> None:
        """End the session, at a sign-out or after a change of the password."""
        from tasks_app.access import sessions

        if ID in self:
            sessions.end(self[ID], until_ms=int((self[BEGAN] + settings.SESSION_LONGEST_S) * 1_000))
        super().flush()

    def cycle_key(self) -> None:
        """Restart the session's lifetime, at a sign-in or a change of the password."""
        self.pop(BEGAN, None)
        super().cycle_key()

    def renew(self) -> None:
        """Prolong the session of a signed-in person."""
        if SESSION_KEY in self and time.time() - self.get(SEEN, 0) > RENEWED_EVERY_S:
            self.modified = True


def is_signed_in(cookies: str) -> bool:
    """Return whether a request with these cookies may come from a signed-in person.

    It needs a valid session that has not expired, and the CSRF cookie, without which Django refuses a form. Does not
    query the database, so a session that was ended early counts until this process has answered one of its requests.
    """
    held = parse_cookie(cookies)
    if settings.SESSION_COOKIE_NAME not in held or settings.CSRF_COOKIE_NAME not in held:
        return False
    # Imported late: servers import this module before the models.
    from tasks_app.access.sessions import is_known_to_be_over

    kept = signed_cookies.SessionStore(held[settings.SESSION_COOKIE_NAME]).load()
    if SESSION_KEY not in kept or ID not in kept or is_known_to_be_over(kept[ID], kept[GENERATION]):
        return False
    return bool(time.time() - kept.get(BEGAN, 0) < settings.SESSION_LONGEST_S)


def _was_ended(kept: dict[str, Any]) -> bool:
    # Imported late: Django imports this module before the models.
    from tasks_app.access.sessions import is_over

    if SESSION_KEY not in kept:
        return False
    # A session without an id can't be ended early, so it is refused.
    return ID not in kept or is_over(kept[ID], kept[SESSION_KEY], kept[GENERATION])


@sync_and_async_middleware
def renewal(get_response: Any) -> Callable[[HttpRequest], Any]:
    """Return a middleware that prolongs the sessions of people who open pages."""

    def answer(request: HttpRequest) -> Any:
        if may_renew(request):
            _renew(request)
        return get_response(request)

    async def answer_on_the_loop(request: HttpRequest) -> Any:
        if may_renew(request):
            # In a thread, as it may query the database.
            await sync_to_async(_renew)(request)
        return await get_response(request)

    return answer_on_the_loop if iscoroutinefunction(get_response) else answer


def _renew(request: HttpRequest) -> None:
    """Renew the session, unless the database is away: the page may do without, as those of the documentation."""
    # Imported late: Django imports this module before the models.
    from tasks_app.database.outage import translated

    try:
        request.session.renew()  # type: ignore[attr-defined]  # It is a SessionStore.
    except Exception as error:
        if translated(error) is None:
            raise


def may_renew(request: HttpRequest) -> bool:
    """Return whether the request is for a page, with a session. Polling by open pages does not count as activity."""
    is_page = request.method != "HEAD" and "text/html" in request.headers.get("Accept", "")
    return settings.SESSION_COOKIE_NAME in request.COOKIES and is_page and "HX-Request" not in request.headers
