"""From the bytes of a request to a typed value, or an answer that names every wrong field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from django.conf import settings
from django.http import UnreadablePostError
from rest_framework.request import Request

from taskstore.errors import InvalidInput, LimitExceeded
from taskstore.types.requests import AskedOperation, ClaimRequest, UpdateRequest
from taskstore.types.scalars import whole
from taskstore.types.tasks import NOBODY, Change, NewTask

from ..core.operations import EVERY_GROUP, Commit, GroupScope, ResendKey
from ..core.validation import refuse_wrong
from ..managers import limits
from ..offload.helper_process import helper
from ..reading import importing
from ..wire import strict_json
from ..wire.requests import ImportRequest, claim_of, import_of, update_of
from ..wire.strict_json import AskedT, decoded, is_light, value_of
from .base import digest_of

AT_ONCE = 250
BYTES_AT_ONCE = 2**20

Item = TypeVar("Item", NewTask, Change)


def read(request: Request, asked: type[AskedT]) -> AskedT:
    """The body as a value of this type, whatever Content-Type it announces.

    Raises InvalidInput that names every wrong field, LimitExceeded when the body is too long.
    """
    body = body_of(request)
    if is_light(body):
        return value_of(strict_json.read(body), asked)
    value: AskedT
    [value] = helper.run(decoded, body, asked)
    return value


def body_of(request: Request) -> bytes:
    """The body as it was sent. Without Content-Length it is empty to DRF, which is why it is read here."""
    meta = request._request.META  # Not through DRF's request: that takes a microsecond each time.
    encoding = meta.get("HTTP_CONTENT_ENCODING", "identity")
    if encoding.lower() != "identity":
        raise InvalidInput({"Content-Encoding": ["must be absent or identity: the server does not decompress bodies"]})
    most = settings.TASKSTORE_MAX_REQUEST_BYTES
    length = meta.get("CONTENT_LENGTH") or "0"
    announced = whole(length) or 0
    try:
        # What is announced is looked at first: what is never sent must not be waited for.
        body: bytes = request._request.read(most + 1) if announced <= most else b""
    except UnreadablePostError:
        raise InvalidInput({"body": ["must be complete: the connection broke before its end"]}) from None
    if max(announced, len(body)) > most:
        raise LimitExceeded({"body": [f"must be at most {most} bytes"]})
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeUpdate:
    """An UpdateRequest as the operation that it asks for, whose values have been looked at."""

    clientid: int
    key: str
    digest: str  # Empty: nobody asked for it.
    groups: frozenset[str]  # That the adds name.
    commit: Commit

    @classmethod
    def of(cls, parts: Sequence[Any]) -> LargeUpdate:
        """Put together again what `update` or `tasks_of_file` yielded."""
        whole, *pieces = parts
        lists: dict[type, list[Any]] = {NewTask: [], Change: []}
        for piece in pieces:
            lists[type(piece[0])] += piece
        commit = replace(whole.commit, adds=tuple(lists[NewTask]), updates=tuple(lists[Change]))
        update: LargeUpdate = replace(whole, commit=commit)
        return update

    def operation(self, scope: GroupScope, key: ResendKey | None) -> Commit:
        return replace(self.commit, scope=scope, key=key)


def update(body: bytes, has_key: bool) -> Iterator[Any]:
    """An UpdateRequest in parts. Raises InvalidInput that names every wrong field, and LimitExceeded."""
    [asked] = decoded(body, UpdateRequest)
    yield from _parts(asked, asked.groups, update_of(asked, EVERY_GROUP, key=None), has_key)


def claim(body: bytes) -> Iterator[ClaimRequest]:
    """A ClaimRequest. Raises InvalidInput that names every wrong field, and LimitExceeded.

    What a claim may not ask for is refused here: to take a million groups out of the pipe and to look at each of
    them would stop the event loop for seconds.
    """
    [asked] = decoded(body, ClaimRequest)
    refuse_wrong(claim_of(asked, EVERY_GROUP, key=None), limits())
    yield asked


def tasks_of_file(body: bytes, group: str, has_key: bool) -> Iterator[Any]:
    """The same of lines of tasks, as `importing.read` reads them."""
    asked = ImportRequest(clientid=NOBODY, adds=importing.read(body, group))
    yield from _parts(asked, asked.groups, import_of(asked, EVERY_GROUP, key=None), has_key)


def _parts(asked: AskedOperation, groups: frozenset[str], commit: Commit, has_key: bool) -> Iterator[Any]:
    refuse_wrong(commit, limits())
    yield LargeUpdate(
        clientid=asked.clientid,
        key=asked.key,
        digest=digest_of(asked) if has_key or asked.key else "",
        groups=groups,
        commit=replace(commit, adds=(), updates=()),
    )
    yield from _pieces(commit.adds)
    yield from _pieces(commit.updates)


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
