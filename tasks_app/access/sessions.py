"""End sessions before their cookies expire: one by a sign-out, or all sessions of a user.

A session is a signed cookie, and a copy of it would outlive the sign-out. So a session has an id and the generation of
its user at the sign-in, and each server checks both here.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from django.conf import settings
from django.db import router, transaction

from ..database import atomic
from ..models import EndedSession, SessionGeneration
from .people import Person

FIRST_GENERATION = 0  # Of a user without a row.
# With the 3 seconds of a websocket, a session that another server has ended is over within five seconds.
TRUSTED_S = 1.5
KEPT = 10_000  # Verdicts.

_verdicts: dict[tuple[str, int], tuple[bool, float]] = {}  # By session and generation: the verdict and its expiry.
_over: set[tuple[str, int]] = set()  # Ended sessions, which never start again.
_changes = 0  # Counts the ends in this process: a verdict read before one of them is not cached.
_watchers: set[Callable[[], None]] = set()


def can_be_ended() -> bool:
    """Return whether the sessions of the project ask here. Those of another engine end by their own rules."""
    return settings.SESSION_ENGINE == "taskstore_project.sessions"


def end(session_id: str, until_ms: int) -> None:
    """End one session on every server. `until_ms` is the expiry of its cookie."""
    with atomic():
        EndedSession.objects.get_or_create(id=session_id, defaults={"until_ms": until_ms})
    look_again()


def end_all_of(user: Person) -> None:
    """End all sessions of the user on every server."""
    with atomic():
        SessionGeneration.objects.update_or_create(user=user, defaults={"number": _new_generation()})
    look_again()


def end_all() -> None:
    """End the sessions of all users: a restored backup misses the sign-outs since it was made."""
    SessionGeneration.objects.all().delete()
    SessionGeneration.objects.bulk_create(
        SessionGeneration(user=user, number=_new_generation()) for user in Person._default_manager.only("pk")
    )
    EndedSession.objects.all().delete()
    look_again()


def generation_of(user_pk: str) -> int:
    """Return the generation of a new session of the user."""
    of_user = SessionGeneration.objects.filter(pk=Person._meta.pk.to_python(user_pk))
    number = of_user.values_list("number", flat=True).first()
    return FIRST_GENERATION if number is None else number


def is_over(session_id: str, user_pk: str, generation: int) -> bool:
    """Return whether the session was ended. An end by another server may take `TRUSTED_S` to show."""
    if is_known_to_be_over(session_id, generation):
        return True
    verdict, until_s = _verdicts.get((session_id, generation), (False, 0.0))
    now_s = time.monotonic()
    if now_s > until_s:
        changes = _changes
        ended = EndedSession.objects.using(router.db_for_write(EndedSession)).filter(pk=session_id)
        verdict = ended.exists() or generation_of(user_pk) != generation
        if verdict:
            if len(_over) >= KEPT:
                _over.clear()
            _over.add((session_id, generation))
        if len(_verdicts) >= KEPT:
            _verdicts.clear()
        if changes == _changes:
            _verdicts[session_id, generation] = (verdict, now_s + TRUSTED_S)
    return verdict


def is_known_to_be_over(session_id: str, generation: int) -> bool:
    """Return whether this process knows that the session was ended. Does not query the database."""
    return (session_id, generation) in _over


def look_again() -> None:
    """Forget all verdicts, and let open websockets of this process check their rights now."""

    def notify_watchers() -> None:
        _forget()  # Verdicts that were read before the commit.
        for look in list(_watchers):
            look()

    _forget()
    transaction.on_commit(notify_watchers, using=router.db_for_write(EndedSession))


def watch(look: Callable[[], None]) -> Callable[[], None]:
    """Call `look`, in any thread, when sessions end in this process. Returns a function that stops it."""
    _watchers.add(look)
    return lambda: _watchers.discard(look)


def _forget() -> None:
    global _changes
    _changes += 1
    _verdicts.clear()


def _new_generation() -> int:
    return 1 + secrets.randbelow(2**62)
