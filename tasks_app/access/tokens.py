"""Create, check and revoke the tokens of programs. Waiting claims end with their token."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial

from asgiref.sync import sync_to_async
from django.db import Error, connections
from django.db.models import QuerySet
from django.utils import timezone

from taskstore.errors import InvalidInput, StoreBusy
from taskstore.types.scalars import INT64_MAX, INT64_MIN
from taskstore.types.sentences import group_name

from .. import database
from ..core.actors import PROGRAM, Actor
from ..database import atomic
from ..models import Token
from . import audit
from .policy import ANYTHING, THIS_MACHINE, holder_of
from .rights import alive, refresh

NAME_LENGTH = 100
MOST_CLIENTS = 1_000
CLIENT = re.compile(r"-?[0-9]{1,19}")  # `int` alone would accept "1_000" and the digits of other scripts.
CLIENTS = f"must be at most {MOST_CLIENTS} client numbers, each a 64-bit integer"
PREFIX = "ts_"  # Scanners for leaked secrets recognize it.
LAST_USED_EVERY = timedelta(minutes=1)  # A write for each request would cost more than the request.
NODE_TOKEN_LIFE = timedelta(minutes=30)
NODE_TOKEN_FORGOTTEN_AFTER = timedelta(days=1)
TRUSTED_S = 5.0  # A revoked token stops working within this time.

# The token of every client on a server that was started with --no-auth.
ANYBODY = Token(name="anybody", scope=ANYTHING)

_trusted: dict[str, tuple[Token, float]] = {}


def create(
    name: str,
    scope: str,  # One of Scope.
    groups: Sequence[str] = (),
    expires_at: datetime | None = None,
    clients: Sequence[int] = (),  # The client ids that it may use; empty: all.
    actor: Actor = PROGRAM,
) -> tuple[Token, str]:
    """Create a token. Returns it with its secret, which is not stored in plain text.

    Raises InvalidInput that names every wrong field.
    """
    if wrong := dict(_problems(name, groups, expires_at, clients, is_of_node=actor.name.startswith(audit.NODE))):
        raise InvalidInput({field: [text] for field, text in wrong.items()})
    secret = PREFIX + secrets.token_urlsafe(32)
    with atomic():
        token = Token.objects.create(
            name=name,
            hash=_hash(secret),
            scope=scope,
            groups=list(groups),
            clients=list(clients),
            expires_at=expires_at,
        )
        refresh([holder_of(token)])
        audit.record(actor, "create token", selection=f"token {name}", done=1)
    return token, secret


def create_for_node(node: str, scope: str) -> tuple[Token, str]:
    """Create a server's token for programs on its machine, to be prolonged by `renew`. Deletes those of lost nodes."""
    now = timezone.now()
    of_nodes().filter(expires_at__lt=now - NODE_TOKEN_FORGOTTEN_AFTER).delete()
    return create(
        f"{THIS_MACHINE} ({node})", scope, expires_at=now + NODE_TOKEN_LIFE, actor=Actor(f"{audit.NODE}{node}")
    )


def renew(token: Token) -> bool:
    """Prolong the token of a node. Returns False when it was revoked or deleted."""
    alive = Token.objects.filter(pk=token.pk, revoked_at=None)
    with atomic():
        return bool(alive.update(expires_at=timezone.now() + NODE_TOKEN_LIFE))


def of_nodes() -> QuerySet[Token]:
    """Return the tokens of servers for programs on their machines."""
    return Token.objects.filter(name__startswith=THIS_MACHINE)


def valid(secret: str) -> Token | None:
    """Return the token with this secret; None when it does not exist, has expired or was revoked."""
    now = timezone.now()
    token = alive().filter(hash=_hash(secret)).first()
    if token and (token.last_used_at is None or now - token.last_used_at > LAST_USED_EVERY):
        # Does not wait for a synchronous standby, which may be away, as requests wait for this.
        with suppress(StoreBusy), database.atomic(), database.bookkeeping():
            # A transaction that has locked the token's row does not hold up its requests.
            unlocked = Token.objects.filter(pk=token.pk).select_for_update(skip_locked=True)
            Token.objects.filter(pk__in=unlocked.values("pk")).update(last_used_at=now)
    return token


def is_known(secret: str) -> bool:
    """Return whether `recently_valid` can answer without the database."""
    return secret in _trusted and time.monotonic() <= _trusted[secret][1]


def trusted(secret: str) -> Token | None:
    """Return the token if `recently_valid` needs no query for it; None if it does, or if the token has expired.

    Returns the same object until the next query.
    """
    token, until_s = _trusted.get(secret, (None, 0.0))
    return None if token is None or time.monotonic() > until_s or _has_expired(token) else token


def recently_valid(secret: str) -> Token | None:
    """Return the same as `valid`, but a revocation may take a few seconds to show."""
    token, until_s = _trusted.get(secret, (None, 0.0))
    if token is None or time.monotonic() > until_s:
        token = valid(secret)
        _trusted.pop(secret, None)
        if token:
            _trusted[secret] = (token, time.monotonic() + TRUSTED_S)
    return None if token is None or _has_expired(token) else token


def _has_expired(token: Token) -> bool:
    return token.expires_at is not None and token.expires_at <= timezone.now()


@atomic()
def revoke(token: Token, actor: Actor = PROGRAM) -> bool:
    """Revoke a token. Returns False when it was revoked already."""
    is_revoked = bool(Token.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()))
    if is_revoked:
        refresh([holder_of(token)])
        audit.record(actor, "revoke token", selection=f"token {token.name}", done=1)
    return is_revoked


def state_of(token: Token) -> str:
    """Return the state of a token: "valid", "expired" or "revoked"."""
    if token.revoked_at:
        return "revoked"
    return "expired" if token.expires_at and token.expires_at <= timezone.now() else "valid"


def client_ids(words: Sequence[str]) -> list[int]:
    """Parse client ids. Raises InvalidInput about `clients`."""
    if not all(map(CLIENT.fullmatch, words)):
        raise InvalidInput({"clients": [CLIENTS]})
    return [int(word) for word in words]


def _problems(
    name: str, groups: Sequence[str], expires_at: datetime | None, clients: Sequence[int], *, is_of_node: bool
) -> Iterator[tuple[str, str]]:
    if not (name.strip() and name.isprintable() and len(name) <= NAME_LENGTH):
        yield "name", f"must have 1 to {NAME_LENGTH} printable characters"
    elif name.startswith(THIS_MACHINE) and not is_of_node:
        yield "name", f'must not begin with "{THIS_MACHINE}", as the names of the tokens of servers do'
    elif name.isdecimal():
        yield "name", "must not consist of digits only, which would look like an id"
    for pattern in groups:
        for _, text in group_name("groups", pattern):
            yield "groups", f"must be group names or prefixes followed by a star; {pattern!r}: {text}"
    if len(clients) > MOST_CLIENTS or not all(INT64_MIN <= client <= INT64_MAX for client in clients):
        yield "clients", CLIENTS
    if expires_at is not None and expires_at <= timezone.now():
        yield "expires_at", "must be in the future"


def _hash(secret: str) -> str:
    # Plain SHA-256 is enough: 256 random bits can't be guessed, unlike a password.
    return hashlib.sha256(secret.encode()).hexdigest()


LOOK_EVERY_S = 4.0  # As for new requests, a revoked token stops working within five seconds.


class WaitingTokens:
    """The tokens of waiting requests on this process's event loop, which are checked together."""

    def __init__(self) -> None:
        self._refusals: defaultdict[int, set[Callable[[], None]]] = defaultdict(set)
        self._look: asyncio.Task[None] | None = None  # While somebody waits.

    @asynccontextmanager
    async def while_valid(self, token: Token, refusal: Exception) -> AsyncIterator[None]:
        """Run a wait, and raise the refusal once the token is no longer valid; a claimed task is given back then."""
        try:
            async with asyncio.timeout(None) as wait:
                self.watch(token, refuse := partial(wait.reschedule, 0))  # A time in the past ends the wait.
                try:
                    yield
                finally:
                    self.forget(token, refuse)
        except TimeoutError:
            if not wait.expired():
                raise
            raise refusal from None

    def watch(self, token: Token, refuse: Callable[[], None]) -> None:
        """Call `refuse` once the token is no longer valid, until `forget`."""
        if token.pk:  # The token of --no-auth can't be revoked.
            self._refusals[token.pk].add(refuse)
            if self._look is None or self._look.done():
                self._look = asyncio.get_running_loop().create_task(self._end_invalid())

    def forget(self, token: Token, refuse: Callable[[], None]) -> None:
        refusals = self._refusals.get(token.pk, set())
        refusals.discard(refuse)
        if not refusals:
            self._refusals.pop(token.pk, None)
        if not self._refusals and self._look:
            self._look.cancel()
            self._look = None

    async def _end_invalid(self) -> None:
        """End the waits of invalid tokens, while there are waits."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            asked = list(self._refusals)
            with suppress(Error):  # Without a database, nothing can be claimed either.
                valid = await sync_to_async(_valid, thread_sensitive=False)(asked)
                # Only of those that were looked up: others have begun to wait meanwhile.
                for refuse in [each for pk in asked if pk not in valid for each in self._refusals.get(pk, ())]:
                    refuse()


def _valid(pks: Collection[int]) -> set[int]:
    try:
        return set(alive().filter(pk__in=pks).values_list("pk", flat=True))
    finally:
        connections.close_all()  # The thread may never be used again.


waiting_tokens = WaitingTokens()
