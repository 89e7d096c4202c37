"""Update: one all-or-nothing change."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction
from django.db.models import QuerySet
from grpc import StatusCode

from .. import audit
from ..errors import InvalidInput
from ..masstasker.masstasker_pb2 import UpdateRequest, UpdateResponse
from ..models import Task, Token
from ..operations import NOBODY, Ending, Operator, Update
from ..policy import Action, scope_of
from . import older
from .authentication import must_reach
from .reading import id_in, new_tasks_in
from .refs import Refs, in_time, refuse_repeated
from .statuses import CallRefused
from .threads import beside_the_loop

MOST_MATCHED = 100_000  # What one transaction deletes without being named; BulkSet goes in chunks.
IDS_IN_AUDIT = 500


async def update(request: UpdateRequest, token: Token) -> UpdateResponse:
    """Raises InvalidInput, CallRefused, or what the verbs raise."""
    refs = Refs.read("deleted", request.deleted)
    refuse_repeated("deleted", request.deleted)
    asked = Update(
        adds=new_tasks_in(request.created),
        deletes=refs.ids,
        depends=tuple(map(id_in, request.predicates)),
        scope=scope_of(token),
    )
    must_reach(token, Action.WORK, {add.group for add in asked.adds})
    if refs.groups or refs.selectors:
        must_reach(token, Action.OPERATE, refs.groups)
        ids = await beside_the_loop(_operate, request, asked, refs, audit.name_of(token))
    else:
        ids = [task.id for task in await Task.objects.adecide(asked)]
    return UpdateResponse(created_ids=ids)


def _operate(request: UpdateRequest, asked: Update, refs: Refs, by: str) -> list[int]:
    """Do what is asked also to the tasks that the refs describe. Returns the ids of the new ones."""
    _refuse_doubtful(request)
    with transaction.atomic():
        matched = _locked(refs, asked)
        tasks = Task.objects.perform(_with(asked, matched, by))
        if matched:
            _record(refs, matched, by)
    return [task.id for task in tasks]


def _refuse_doubtful(request: UpdateRequest) -> None:
    """Raise InvalidInput when the only ref may as well be plain ids, as older clients send them: of tasks in work."""
    ids = older.plain_ids(request)
    held = Task.objects.get_queryset().claimed(Task.objects.now_ms()).filter(id__in=ids, owner=NOBODY)
    if ids and held.count() == len(ids):
        text = f"a second ref, to show that the ids {ids} of an older definition are not meant: all of them are leased"
        raise InvalidInput({"deleted": [text]})


def _locked(refs: Refs, asked: Update) -> frozenset[int]:
    """The ids of all tasks that the refs describe, so that nobody else changes one of them before the commit.

    Raises CallRefused when they are too many, or can't be found in time.
    """
    described = refs.described(asked.scope).values_list("id", flat=True)
    while True:
        seen = _seen(described)
        # In id order, as all commits lock: two that share tasks would deadlock otherwise.
        locked = frozenset(described.order_by("id").select_for_update())
        if seen <= locked:
            return locked
        # Somebody claimed one in between: it is there under another id.


def _seen(described: QuerySet[Task, int]) -> frozenset[int]:
    with in_time(described.db):
        seen = frozenset(described[: MOST_MATCHED + 1])
    if len(seen) > MOST_MATCHED:
        text = f"more than {MOST_MATCHED} tasks match: delete them in parts"
        raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text)
    return seen


def _with(asked: Update, matched: frozenset[int], by: str) -> Update:
    """With the tasks that were described; without any it is nobody's operation."""
    if not matched:
        return asked
    # Each once, however many refs reach it. Those that were named keep their place.
    described = sorted(matched.difference(asked.deletes))
    return replace(
        asked,
        deletes=(*asked.deletes, *described),
        matched=matched,
        operator=Operator(name=by, ending=Ending.PURGED),
    )


def _record(refs: Refs, matched: frozenset[int], by: str) -> None:
    audit.record(
        actor=by,
        action="purge",
        group=refs.only_group,
        selection=refs.in_words,
        done=len(matched),
        details={"ids": sorted(matched)[:IDS_IN_AUDIT]},
    )
