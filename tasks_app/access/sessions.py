"""Sessions that ended before their cookies expire: one by a sign-out, all sessions of a user at once.

A session is a signed cookie, and a copy of it outlives the sign-out in the browser. So a session has an id, and the
generation of its user at the sign-in; each server checks both here.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from django.contrib.auth.models import User
from django.db import router, transaction

from ..models import EndedSession, SessionGeneration

FIRST_GENERATION = 0  # Of a user without a row.
# With the 3 seconds of a websocket, a session that another server has ended is over within five seconds.
TRUSTED_S = 1.5
KEPT = 10_000  # Verdicts.

_verdicts: dict[tuple[str, int], tuple[bool, float]] = {}  # By session and generation: the verdict, until when.
_over: set[tuple[str, int]] = set()  # No session begins again, so these need no second look.
_changes = 0  # So many times something has ended in this process: what was read before is not believed.
_watchers: set[Callable[[], None]] = set()


def end(session_id: str, until_ms: int) -> None:
    """End one session on every server. `until_ms`: when its cookie expires."""
    EndedSession.objects.get_or_create(id=session_id, defaults={"until_ms": until_ms})
    look_again()


def end_all_of(user: User) -> None:
    """End all sessions of the user on every server."""
    SessionGeneration.objects.update_or_create(user=user, defaults={"number": _new_generation()})
    look_again()


def end_all() -> None:
    """End the sessions of all users: a restored backup knows nothing of sign-outs since it was made."""
    SessionGeneration.objects.all().delete()
    SessionGeneration.objects.bulk_create(
        SessionGeneration(user=user, number=_new_generation()) for user in User.objects.only("pk")
    )
    EndedSession.objects.all().delete()
    look_again()


def generation_of(user_pk: int) -> int:
    """The generation that a new session of the user belongs to."""
    number = SessionGeneration.objects.filter(pk=user_pk).values_list("number", flat=True).first()
    return FIRST_GENERATION if number is None else number


def is_over(session_id: str, user_pk: int, generation: int) -> bool:
    """Whether the session was ended. It may take `TRUSTED_S` to learn what another server has ended."""
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
    """Whether this process has seen that the session was ended. Does not query the database."""
    return (session_id, generation) in _over


def look_again() -> None:
    """Forget what is known of sessions and rights, and let open websockets of this process check theirs now."""
    _forget()
    transaction.on_commit(_tell_watchers)


def watch(look: Callable[[], None]) -> Callable[[], None]:
    """Call `look`, in any thread, when sessions end in this process. Returns what stops that."""
    _watchers.add(look)
    return lambda: _watchers.discard(look)


def _forget() -> None:
    global _changes
    _changes += 1
    _verdicts.clear()


def _tell_watchers() -> None:
    _forget()  # What others have read before the commit.
    for look in list(_watchers):
        look()


def _new_generation() -> int:
    return 1 + secrets.randbelow(2**62)
