"""From the parts of a request to a typed value, or an answer that names every wrong field."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, UnreadablePostError
from msgspec import Struct, inspect, structs

from taskstore.endpoints import Endpoint, plain
from taskstore.errors import InvalidInput, LimitExceeded, refuse
from taskstore.types import sentences
from taskstore.types.batches import BatchRequest, NewBatch, PackedPlan
from taskstore.types.bulk import AgreedTasks
from taskstore.types.requests import Asked, AskedOperation, ClaimRequest, UpdateRequest
from taskstore.types.scalars import INT64_MIN, whole
from taskstore.types.sentences import Written, text
from taskstore.types.tasks import NOBODY, Change, NewTask

from ..core.operations import EVERY_GROUP, BatchStep, Commit, GroupScope, ResendKey
from ..core.validation import refuse_wrong
from ..managers import limits
from ..offload.threads import beside_the_loop, by_the_helper
from ..reading import importing
from ..wire.requests import ImportRequest, batch_of, claim_of, import_of, update_of
from ..wire.strict_json import NOTHING, decode, is_heavy, is_light, refuse_many, value_of

AT_ONCE = 250
BYTES_AT_ONCE = 2**20
KEY_LENGTH = 255
SWITCH = {"0": False, "no": False, "false": False, "1": True, "yes": True, "true": True}

Item = TypeVar("Item", NewTask, Change)


async def asked_in(row: Endpoint[..., Any, Any], request: HttpRequest, path: Mapping[str, str]) -> Any:
    """Return the request that came with the path, the query and the body. Raises InvalidInput and LimitExceeded."""
    given = given_in(row, request, path) if path or row.in_query or row.method == "GET" else NOTHING
    if not row.in_body:
        return value_of({}, row.kind, given)
    body = body_of(request)
    if is_light(body):
        return decode(body, row.kind, given)
    asked = body, row.kind, given, has_key(request)
    if is_heavy(body):
        return whole_of(await by_the_helper(decoded, *asked))
    return whole_of(await beside_the_loop(lambda: [*decoded(*asked)]))


def has_key(request: HttpRequest) -> bool:
    return "HTTP_IDEMPOTENCY_KEY" in request.META


# ---- The path and the query


def given_in(row: Endpoint[..., Any, Any], request: HttpRequest, path: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the path and the query, by the fields of the request."""
    if path:
        refuse_broken_path(request, next(iter(path)))
    given = {name: parsed(text, row.fields[name].type) for name, text in path.items()}
    if row.in_query or (row.needs and not row.is_local):
        given |= query_in(row, request)
    return given


def refuse_broken_path(request: HttpRequest, field: str) -> None:
    """Servers replace what is no UTF-8 in a path, and one would read another group than the one that was meant."""
    raw = request.scope.get("raw_path", b"") if isinstance(request, ASGIRequest) else b""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidInput({field: [sentences.PERCENT_ENCODED]}) from None


def query_in(row: Endpoint[..., Any, Any], request: HttpRequest) -> dict[str, Any]:
    """The parameters of the query. Raises InvalidInput when one is unknown, no UTF-8, or there twice and may not be."""
    try:
        pairs = parse_qsl(request.META["QUERY_STRING"], keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput({"query": [sentences.PERCENT_ENCODED]}) from None
    if unknown := {
        name: [sentences.unknown("parameter", row.in_query)] for name, _ in pairs if name not in row.in_query
    }:
        raise InvalidInput(unknown)
    types = {name: row.fields[name].type for name in row.in_query}
    lists = {name for name, type_ in types.items() if isinstance(plain(type_), inspect.VarTupleType)}
    counted = Counter(name for name, _ in pairs if name not in lists)
    if repeated := [name for name, times in counted.items() if times > 1]:
        raise InvalidInput({"query": [f"must give each parameter only once: {', '.join(repeated)}"]})
    single = {name: parsed(text, types[name]) for name, text in pairs if name not in lists}
    return single | {name: [text for each, text in pairs if each == name] for name in lists}


def parsed(text: str, type_: inspect.Type) -> Any:
    """Return the value that a text in a URL stands for, if it can stand for one of this type."""
    match plain(type_):
        case inspect.IntType():
            number = whole(text, INT64_MIN)
            return Written(text) if number is None else number
        case inspect.BoolType():
            return SWITCH.get(text.lower(), Written(text))
        case inspect.ListType(item_type=item):
            return [parsed(part, item) for part in text.split(",")]
    return text


# ---- The body


def body_of(request: HttpRequest) -> bytes:
    """The body as it was sent, also without Content-Length."""
    meta = request.META
    encoding = meta.get("HTTP_CONTENT_ENCODING", "identity")
    if encoding.lower() != "identity":
        raise InvalidInput({"Content-Encoding": ["must be absent or identity: the server does not decompress bodies"]})
    most = settings.TASKSTORE_MAX_REQUEST_BYTES
    length = meta.get("CONTENT_LENGTH") or "0"
    announced = whole(length)
    if announced is None:  # No number, or one of more digits than any length has.
        announced = most + 1 if length.isdigit() else 0
    try:
        # What is announced is looked at first: what is never sent must not be waited for.
        body: bytes = request.read(most + 1) if announced <= most else b""
    except UnreadablePostError:
        raise InvalidInput({"body": ["must be complete: the connection broke before its end"]}) from None
    if max(announced, len(body)) > most:
        raise LimitExceeded({"body": [f"must be at most {most} bytes"]})
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeUpdate:
    """A large request as the commit that it asks for, whose values have been looked at."""

    clientid: int
    key: str
    digest: str  # Empty: nobody asked for it.
    commit: Commit

    def operation(self, scope: GroupScope, key: ResendKey | None) -> Commit:
        batch = self.commit.batch
        if key and isinstance(batch, NewBatch):  # By which the same batch is found when the request is sent again.
            batch = replace(batch, mark=key.key)
        return structs.replace(self.commit, scope=scope, key=key, batch=batch)


def whole_of(parts: Sequence[Any]) -> Any:
    """Put together again what `decoded` or `tasks_of_file` yielded."""
    first, *pieces = parts
    if not isinstance(first, LargeUpdate):
        return first
    lists: dict[type, list[Any]] = {NewTask: [], Change: []}
    for piece in pieces:
        lists[type(piece[0])] += piece
    adds, updates = tuple(lists[NewTask]), tuple(lists[Change])
    return replace(first, commit=structs.replace(first.commit, adds=adds, updates=updates))


def decoded(body: bytes, kind: type[Asked], given: Mapping[str, Any] = NOTHING, has_key: bool = False) -> Iterator[Any]:
    """The request that a large body holds, an update in parts; to be done where nobody waits.

    Raises InvalidInput that names every wrong field, and LimitExceeded.
    """
    refuse_many(body, limits().values)
    asked = decode(body, kind, given)
    if isinstance(asked, UpdateRequest):
        yield from _parts(asked, update_of(asked, EVERY_GROUP, key=None), has_key)
        return
    if isinstance(asked, BatchRequest):
        yield from _parts(asked, batch_of(asked, EVERY_GROUP, key=None), has_key)
        return
    if isinstance(asked, ClaimRequest):
        # To take a million groups out of the pipe and to look at each of them would stop the event loop for seconds.
        refuse_wrong(claim_of(asked, EVERY_GROUP, key=None), limits())
    yield asked


def tasks_of_file(body: bytes, group: str, has_key: bool) -> Iterator[Any]:
    """The same of lines of tasks, as `importing.read` reads them."""
    asked = ImportRequest(clientid=NOBODY, adds=importing.read(body, group))
    yield from _parts(asked, import_of(asked, EVERY_GROUP, key=None), has_key)


def _parts(asked: AskedOperation, commit: Commit, has_key: bool) -> Iterator[Any]:
    refuse_wrong(commit, limits())
    yield LargeUpdate(
        clientid=asked.clientid,
        key=asked.key,
        digest=digest_of(asked) if has_key or asked.key else "",
        commit=structs.replace(commit, adds=(), updates=(), batch=_packed(commit.batch)),
    )
    yield from _pieces(commit.adds)
    yield from _pieces(commit.updates)


def _packed(batch: NewBatch | BatchStep | None) -> NewBatch | BatchStep | None:
    """Return the batch with plans as text: a hundred thousand tasks would stop the event loop for long."""
    if not isinstance(batch, NewBatch):
        return batch
    return replace(batch, plan=PackedPlan(batch.plan))


def _pieces(items: Iterable[Item]) -> Iterator[list[Item]]:
    piece: list[Item] = []
    size = 0
    for item in items:
        piece.append(item)
        size += len(item.data or b"")
        if len(piece) == AT_ONCE or size > BYTES_AT_ONCE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


# ---- Idempotency keys


@runtime_checkable
class HasDigest(Protocol):
    """A request whose digest was made where it was decoded."""

    @property
    def clientid(self) -> int: ...

    @property
    def key(self) -> str: ...

    @property
    def digest(self) -> str: ...


WithKey = AskedOperation | HasDigest | AgreedTasks


def resend_key(header: str, asked: WithKey, holder: str) -> ResendKey | None:
    """The idempotency key that header or body give; None without one."""
    key = header or asked.key
    if not key:
        return None
    if asked.key and header and asked.key != header:
        raise InvalidInput({"key": ["must equal the header Idempotency-Key, or be absent"]})
    refuse(text("key", key, KEY_LENGTH))
    # Asked in this order: whether something has a digest takes longer to find out than to make it.
    return ResendKey(f"{holder}/{key}", digest_of(asked) if isinstance(asked, Struct) else asked.digest)


def digest_of(asked: Struct) -> str:
    """Of the request as a value: how it was written, and the key itself, do not count.

    Nor does the order in which its type names the fields: that may be another one in the next version, which a request
    that is sent again may meet.
    """
    if getattr(asked, "key", ""):
        asked = structs.replace(asked, key="")
    try:
        value = msgspec.json.encode(asked, order="sorted")
    except UnicodeEncodeError:  # Text with a lone surrogate: what looks at the fields later refuses it by name.
        value = ascii(asked).encode()
    return hashlib.sha256(type(asked).__name__.encode() + value).hexdigest()
