"""Pause and resume groups; register and list workers."""

from __future__ import annotations

from taskstore import endpoints
from taskstore.types.groups import ClientStatus, GroupPause, Pause
from taskstore.types.requests import ClientRequest, Nothing, ReasonByGroup

from ..commands import sharing
from ..control import pauses
from ..core.validation import refuse_owner
from ..models import Client
from ..reading.clients import done_per_minute, seen
from .base import Who, serves


@serves(endpoints.PAUSE)
def pause(asked: ReasonByGroup, who: Who) -> GroupPause:
    who.must_reach(asked.name)
    paused = pauses.pause(asked.name, who.actor.because(asked.reason))
    return GroupPause(group=asked.name, paused=Pause(by=paused.by, at_ms=paused.at_ms, reason=paused.reason))


@serves(endpoints.RESUME)
def resume(asked: ReasonByGroup, who: Who) -> GroupPause:
    who.must_reach(asked.name)
    pauses.resume(asked.name, who.actor.because(asked.reason))
    return GroupPause(group=asked.name)


@serves(endpoints.HEARTBEAT)
def heartbeat(asked: ClientRequest, who: Who) -> ClientStatus:
    refuse_owner(who.scope, asked.clientid)
    who.must_reach(*asked.groups)
    client = Client(
        id=asked.clientid,
        name=asked.name,
        host=asked.host,
        pid=asked.pid,
        groups=list(asked.groups),
        version=asked.version,
        info=asked.info_as_text,
        token=who.token.pk,
    )
    return sharing.hear(client)


@serves(endpoints.CLIENTS)
def clients(asked: Nothing, who: Who) -> list[ClientStatus]:
    done = done_per_minute()
    return [each.as_answer(done.get(each.client.id, 0.0)) for each in seen(who.scope)]
