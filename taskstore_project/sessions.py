"""Sessions that end: some time after the last page that was asked for, and some time after the sign-in.

In the cookie, not in a table: on SQLite sessions would compete with the writer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import signed_cookies
from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware

BEGAN, SEEN = "began", "seen"  # Seconds since the Epoch.
RENEWED_EVERY_S = 60  # Not with each page: an answer that comes after the sign-out would sign in again.


class SessionStore(signed_cookies.SessionStore):
    """Ends `SESSION_COOKIE_AGE` after it was last written, as Django's, and `SESSION_LONGEST_S` after the sign-in."""

    def load(self) -> dict[str, Any]:
        kept = super().load()
        if time.time() - kept.get(BEGAN, 0) < settings.SESSION_LONGEST_S:
            return kept
        self.create()
        return {}

    def save(self, must_create: bool = False) -> None:
        now_s = time.time()
        self.setdefault(BEGAN, now_s)
        self[SEEN] = now_s
        super().save(must_create)

    def cycle_key(self) -> None:
        """At a sign-in, and when a password was changed: somebody has shown who they are."""
        self.pop(BEGAN, None)
        super().cycle_key()

    def renew(self) -> None:
        """Somebody is still there."""
        if SESSION_KEY in self and time.time() - self.get(SEEN, 0) > RENEWED_EVERY_S:
            self.modified = True


@sync_and_async_middleware
def renewal(get_response: Any) -> Callable[[HttpRequest], Any]:
    """The middleware that keeps the session of somebody who asks for pages."""

    def answer(request: HttpRequest) -> Any:
        renew_session_of(request)
        return get_response(request)

    async def answer_on_the_loop(request: HttpRequest) -> Any:
        renew_session_of(request)
        return await get_response(request)

    return answer_on_the_loop if iscoroutinefunction(get_response) else answer


def renew_session_of(request: HttpRequest) -> None:
    if settings.SESSION_COOKIE_NAME in request.COOKIES and is_asked_by_a_person(request):
        request.session.renew()  # type: ignore[attr-defined]  # It is a store of ours.


def is_asked_by_a_person(request: HttpRequest) -> bool:
    """Whether it is a page: an open one goes on asking for parts of it for as long as it is open."""
    is_page = request.method != "HEAD" and "text/html" in request.headers.get("Accept", "")
    return is_page and "HX-Request" not in request.headers
