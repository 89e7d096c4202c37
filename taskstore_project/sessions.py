"""Sessions that end: at the sign-out, some time after the last page that was asked for, and after the sign-in.

In the cookie, not in a table: on SQLite sessions would compete with the writer. Only those that end early are in one
(tasks_app.access.sessions), and what it says of a session is asked for once a second or two.
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
RENEWED_EVERY_S = 60  # A cookie is not written again with each page.


class SessionStore(signed_cookies.SessionStore):
    """Ends `SESSION_COOKIE_AGE` after it was last written, as Django's, and `SESSION_LONGEST_S` after the sign-in.

    A sign-out ends it on every server, so that a copy of its cookie is worth nothing.
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
            self[GENERATION] = generation_of(int(self[SESSION_KEY]))
        super().save(must_create)

    def flush(self) -> None:
        """At a sign-out, and when the password is another than at the sign-in."""
        from tasks_app.access import sessions

        if ID in self:
            sessions.end(self[ID], until_ms=int((self[BEGAN] + settings.SESSION_LONGEST_S) * 1_000))
        super().flush()

    def cycle_key(self) -> None:
        """At a sign-in, and when a password was changed: somebody has shown who they are."""
        self.pop(BEGAN, None)
        super().cycle_key()

    def renew(self) -> None:
        """Somebody is still there."""
        if SESSION_KEY in self and time.time() - self.get(SEEN, 0) > RENEWED_EVERY_S:
            self.modified = True


def is_signed_in(cookies: str) -> bool:
    """Whether a request with these cookies may be one of someone who is signed in.

    It has to have a session that this server signed and that has not expired, and the cookie against forged forms:
    without that Django refuses the form. Does not query the database, so a session that was ended early counts until
    this process has answered one request of it.
    """
    held = parse_cookie(cookies)
    if settings.SESSION_COOKIE_NAME not in held or settings.CSRF_COOKIE_NAME not in held:
        return False
    # Late: servers know this module before there are models.
    from tasks_app.access.sessions import is_known_to_be_over

    kept = signed_cookies.SessionStore(held[settings.SESSION_COOKIE_NAME]).load()
    if SESSION_KEY not in kept or ID not in kept or is_known_to_be_over(kept[ID], kept[GENERATION]):
        return False
    return bool(time.time() - kept.get(BEGAN, 0) < settings.SESSION_LONGEST_S)


def _was_ended(kept: dict[str, Any]) -> bool:
    # Late: Django reads this module before it has models.
    from tasks_app.access.sessions import is_over

    if SESSION_KEY not in kept:
        return False
    # One without an id could not be ended.
    return ID not in kept or is_over(kept[ID], int(kept[SESSION_KEY]), kept[GENERATION])


@sync_and_async_middleware
def renewal(get_response: Any) -> Callable[[HttpRequest], Any]:
    """The middleware that keeps the session of somebody who asks for pages."""

    def answer(request: HttpRequest) -> Any:
        if may_renew(request):
            request.session.renew()  # type: ignore[attr-defined]  # It is a store of ours.
        return get_response(request)

    async def answer_on_the_loop(request: HttpRequest) -> Any:
        if may_renew(request):
            # In a thread, as it may ask the database.
            await sync_to_async(request.session.renew)()  # type: ignore[attr-defined]
        return await get_response(request)

    return answer_on_the_loop if iscoroutinefunction(get_response) else answer


def may_renew(request: HttpRequest) -> bool:
    """Whether it is a page with a session: an open one goes on asking for parts of it for as long as it is open."""
    is_page = request.method != "HEAD" and "text/html" in request.headers.get("Accept", "")
    return settings.SESSION_COOKIE_NAME in request.COOKIES and is_page and "HX-Request" not in request.headers
