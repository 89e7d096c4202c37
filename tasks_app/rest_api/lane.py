"""The express lane: `POST /claim` and `/update` from the bytes of a connection to the writer, and back.

It answers only what it understands completely: a request head that it has learnt, a token that is trusted now, a small
body that is valid. Everything else takes the long way, through the server's parser and the views, and that decides
what is right: a head is learnt only after it went there. No bytes reach both.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec
from django.conf import settings
from msgspec.structs import replace
from rest_framework.exceptions import AuthenticationFailed

from taskstore.errors import InvalidInput, TaskStoreError
from taskstore.types.requests import ClaimRequest, UpdateRequest
from taskstore.types.scalars import Int64

from ..access import tokens
from ..access.policy import Action, may, scope_of
from ..access.request_limits import BY_ADDRESS, BY_TOKEN
from ..access.tokens import waiting_tokens
from ..core.meters import meters
from ..core.operations import Claim, Commit, GroupScope, Operation, TaskRecord
from ..core.validation import validate
from ..managers import limits
from ..models import Task, Token
from ..wire import strict_json
from ..wire.requests import claim_of, update_of
from ..wire.strict_json import LIGHT_BYTES, value_of
from ..writer.waiting_claims import Asked
from ..writer.writer import running
from .answers import encoded, is_long, outcome_of
from .authentication import NO_TOKEN
from .base import View
from .bodies import resend_key
from .hot_path import HEADERS, Answer, ClaimView, UpdateView, failure_of

MOST_KNOWN = 4_096  # Heads, tokens, and bodies of claims of all tokens. When there are more, all are forgotten.
LONGEST_KNOWN = 1_024  # Bytes of a head, or of the body of a claim.

# What may differ from request to request is cut out of a head before it is looked up. The length and the key are read;
# of the others none matters to a claim or an update while rates are not limited by address. A line that is not exactly
# like this stays in the head, which is then one that nobody has learnt.
VARYING = re.compile(
    rb"""\r\n(?=[bcdfitx])(?:
        content-length:[ ]?([1-9][0-9]{0,4})
      | idempotency-key:[ ]?([!-~](?:[ -~]{0,300}[!-~])?)
      | (?:baggage|date|forwarded|trace(?:parent|state)
        | x-(?:amzn-trace-id|b3-(?:trace|span|parentspan)id|cloud-trace-context|(?:correlation|request)-id
          | forwarded-(?:for|port)|real-ip)):[ -~]*
    )(?=\r\n|\Z)""",
    re.IGNORECASE | re.VERBOSE,
)
# What may be learnt, without what is cut out: no line goes on in the next one, no value has odd bytes.
PLAIN = re.compile(rb"POST (/claim|/update) HTTP/1\.1((?:\r\n[A-Za-z0-9-]+: ?[!-~](?:[ -~]*[!-~])?)+)")
NOT_PLAIN = {
    *(b"content-length", b"transfer-encoding", b"content-encoding", b"te", b"trailer", b"expect", b"upgrade"),
    *(b"cookie", b"idempotency-key", b"proxy-connection", b"daphne-root-path"),
}


class Connection(Protocol):
    """The interface of a connection that the lane needs."""

    @property
    def has_gone(self) -> bool:
        """Whether its client can receive nothing any more."""

    def when_gone(self, do: Callable[[], None]) -> None:
        """Call this if its client goes before the answer is sent."""

    def answer(self, answer: Answer) -> None:
        """Send it in one piece, and take the next request."""

    async def answer_in_pieces(self, answer: Answer) -> None:
        """The same as its pieces come, and as the client takes them."""


class Head(NamedTuple):
    """A head that the long way has read before."""

    view: type[View]
    secret: str


class Request(NamedTuple):
    """A request whose head is known."""

    head: Head
    length: int  # Of its body.
    key: str  # That the head gives, or empty.


class Body(NamedTuple):
    """What the body of a request asks for, and the operation that comes of it for a token, without its key."""

    asked: ClaimRequest | UpdateRequest
    operation: Operation


@dataclass(slots=True)
class Grant:
    """The rights of a token, until it is looked up again."""

    token: Token
    scope: GroupScope
    claims: dict[bytes, Body]  # By their bytes.

    @property
    def holder(self) -> str:
        """Under whose name idempotency keys are kept."""
        return f"token {self.token.pk}"


class Deletes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An update that only deletes tasks."""

    clientid: Int64
    deletes: tuple[Int64, ...]


DELETES = msgspec.json.Decoder(Deletes)


class Lane:
    """One for a server process. Its methods are called on the server's loop."""

    def __init__(self, most_known: int = MOST_KNOWN) -> None:
        self.most_known = most_known  # 0: all requests go the long way.
        self.taken = 0  # Requests, so far.
        self._using = Task.objects.writing_alias
        self.forget()

    def forget(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self._forget_grants()

    def _forget_grants(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._claims = 0

    def learn(self, raw: bytes) -> None:
        """Keep the head of a request that the long way has answered, unless something about it is unusual."""
        plain = PLAIN.fullmatch(rest := b"".join(VARYING.split(raw)[::3]))
        if not plain or len(raw) > LONGEST_KNOWN:
            return
        lines = [line.partition(b":") for line in plain[2].split(b"\r\n")[1:]]
        values = [(name.lower(), value.strip()) for name, _, value in lines]
        names = [name for name, _ in values]
        ends = any(name == b"connection" and value.lower() != b"keep-alive" for name, value in values)
        if ends or names.count(b"authorization") != 1 or not NOT_PLAIN.isdisjoint(names):
            return
        scheme, _, secret = dict(values)[b"authorization"].decode().partition(" ")
        if scheme.lower() != "bearer" or self._grant(secret.strip()) is None:
            return
        if len(self._heads) >= self.most_known:
            self._heads.clear()
        if self.most_known:
            self._heads[rest] = Head(ClaimView if plain[1] == b"/claim" else UpdateView, secret.strip())

    def find(self, raw: bytes) -> Request | None:
        """Look a head up. None: the long way has to read it."""
        parts = VARYING.split(raw)
        head = self._heads.get(b"".join(parts[::3]))
        if head is None:
            return None
        lengths, keys = list(filter(None, parts[1::3])), list(filter(None, parts[2::3]))
        if len(lengths) != 1 or len(keys) > 1:
            return None
        length = int(lengths[0])
        if length > min(LIGHT_BYTES, settings.TASKSTORE_MAX_REQUEST_BYTES):
            return None
        return Request(head, length, keys[0].decode() if keys else "")

    def ask(self, request: Request, body: bytes, connection: Connection) -> bool:
        """Hand what the request asks for to the writer, which answers. False: it has to go the long way."""
        writer = running(self._using)
        if writer is None or not writer.is_on_this_loop:
            return False
        if settings.TASKSTORE_NO_AUTH or BY_TOKEN.rate or BY_ADDRESS.rate:
            return False
        grant = self._grant(request.head.secret)
        if grant is None or (operation := self._operation(grant, request, body)) is None:
            return False
        self.taken += 1
        writer.take(AskedOnLane(operation, connection, request.head.view, grant.token))
        return True

    def _grant(self, secret: str) -> Grant | None:
        """What the token allows; None: nothing here, or nobody knows without a look into the database."""
        token = tokens.trusted(secret)
        if token is None:
            return None
        grant = self._grants.get(secret)
        if grant is not None and grant.token is token:
            return grant
        if not may(token, Action.WORK):  # What both endpoints need.
            return None
        if len(self._grants) >= self.most_known:
            self._forget_grants()
        scope = scope_of(token)
        claims = grant.claims if grant is not None and grant.scope == scope else {}
        grant = self._grants[secret] = Grant(token, scope, claims)
        return grant

    def _operation(self, grant: Grant, request: Request, body: bytes) -> Operation | None:
        is_claim = request.head.view is ClaimView
        read = grant.claims.get(body) if is_claim else _deletes(grant, body)
        if read is None:
            read = _as_the_views_read(grant, body, is_claim=is_claim)
            if read is None:
                return None
            if is_claim and len(body) <= LONGEST_KNOWN and not read.asked.key:  # A key makes each another one.
                if self._claims >= self.most_known:
                    self._forget_grants()
                self._claims += 1
                grant.claims[body] = read
        if not (request.key or read.asked.key):
            return read.operation
        try:
            return replace(read.operation, key=resend_key(request.key, read.asked, grant.holder))
        except InvalidInput:
            return None


def _deletes(grant: Grant, body: bytes) -> Body | None:
    """The body of an update that only deletes tasks, in the words that most clients use; None for any other."""
    # msgspec would take the last of duplicate keys; with four quotes there are two keys, each once, or too few.
    if body.count(b'"') != 4 or grant.scope.owners is not None:
        return None
    try:
        found = DELETES.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if len(found.deletes) > limits().changes:
        return None
    asked = UpdateRequest(clientid=found.clientid, deletes=found.deletes)
    return Body(asked, Commit(owner=found.clientid, deletes=found.deletes, scope=grant.scope, is_told=True))


def _as_the_views_read(grant: Grant, body: bytes, *, is_claim: bool) -> Body | None:
    """What the body asks for; None when something is wrong with it: the long way says what."""
    asked: ClaimRequest | UpdateRequest
    operation: Operation
    try:
        if is_claim:
            asked = claim = value_of(strict_json.read(body), ClaimRequest)
            if not all(map(grant.scope.allows, claim.wanted)):
                return None
            operation = claim_of(claim, grant.scope, None)
        else:
            asked = update = value_of(strict_json.read(body), UpdateRequest)
            operation = update_of(update, grant.scope, None)
        validate(operation, limits())
    except TaskStoreError:
        return None
    return Body(asked, operation)


log = logging.getLogger(__name__)
NOTHING = encoded([])
_under_way: set[asyncio.Task[None]] = set()  # Held, or they could go amid their work.


@dataclass(slots=True, eq=False)
class AskedOnLane(Asked):
    """An operation of the lane: what came of it goes to its connection, without a future."""

    connection: Connection
    view: type[View]
    token: Token
    _prepared: tuple[list[TaskRecord], bytes] | None = field(default=None, init=False)
    _ended: Callable[[], None] | None = field(default=None, init=False)  # While it waits.
    _is_refused: bool = field(default=False, init=False)

    @property
    def is_needless(self) -> bool:
        # A commit is done nevertheless: its client may have sent it and closed.
        return isinstance(self.operation, Claim) and self.has_lost_client

    @property
    def has_lost_client(self) -> bool:
        return self._is_refused or self.connection.has_gone

    def wait(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self.connection.when_gone(self._end_wait)
        waiting_tokens.watch(self.token, self._refuse)

    def _refuse(self) -> None:
        self.fail(AuthenticationFailed(NO_TOKEN))
        self._is_refused = True  # What it is just taking is for others.

    def _end_wait(self) -> None:
        ended, self._ended = self._ended, None
        if ended:
            ended()
            waiting_tokens.forget(self.token, self._refuse)

    def prepare(self, tasks: list[TaskRecord]) -> None:
        if not is_long(tasks):
            self._prepared = tasks, encoded(tasks)

    def succeed(self, tasks: list[TaskRecord]) -> None:
        # Nothing may be raised into the writer, which has others to answer.
        try:
            self._end_wait()  # Before a long answer is encoded: a refusal meanwhile would be a second one.
            if self._prepared is not None and self._prepared[0] is tasks:
                self._answer(self._prepared[1])
            elif not tasks:
                self._answer(NOTHING)
            elif not is_long(tasks):
                self._answer(encoded(tasks))
            else:
                task = asyncio.get_running_loop().create_task(self._answer_long(tasks))
                _under_way.add(task)
                task.add_done_callback(_under_way.discard)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        if self._is_refused:
            return
        self._end_wait()
        try:
            if isinstance(error, TaskStoreError):
                meters.note_refusal(error)
            self.connection.answer(failure_of(self.view, error))
        except Exception:
            log.exception("can't answer a request")

    async def _answer_long(self, tasks: Sequence[TaskRecord]) -> None:
        try:
            body = await outcome_of(tasks)
            if isinstance(body, bytes):
                self._answer(body)
                return
        except Exception as error:
            self.fail(error)
            return
        await self.connection.answer_in_pieces(Answer(200, HEADERS, body))

    def _answer(self, body: bytes) -> None:
        self.connection.answer(Answer(200, HEADERS, body))
