"""Pause and resume groups; register and list workers."""

from __future__ import annotations

from msgspec import UNSET
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.types.groups import GroupPause
from taskstore.types.groups import Pause as Paused
from taskstore.types.requests import ClientRequest, ReasonRequest

from ..commands import sharing
from ..control import pauses
from ..core.actors import Actor
from ..core.validation import refuse_owner
from ..models import Client
from ..reading import clients
from . import bodies
from .base import View, serves
from .search import integer, query_of, refuse_broken_path


class PauseOrResume(View):
    def who_asks(self, request: Request, name: str) -> Actor:
        """Return who asks, with the reason that the body gives."""
        refuse_broken_path(request)
        self.must_reach(name)
        return self.actor.because(bodies.read(request, ReasonRequest).reason)


class Pause(PauseOrResume):
    @serves(endpoints.PAUSE)
    def post(self, request: Request, name: str) -> Response:
        paused = pauses.pause(name, self.who_asks(request, name))
        told = Paused(by=paused.by, at_ms=paused.at_ms, reason=paused.reason)
        return Response(GroupPause(group=name, paused=told))


class Resume(PauseOrResume):
    @serves(endpoints.RESUME)
    def post(self, request: Request, name: str) -> Response:
        pauses.resume(name, self.who_asks(request, name))
        return Response(GroupPause(group=name))


class Heartbeat(View):
    @serves(endpoints.HEARTBEAT)
    def put(self, request: Request, clientid: str) -> Response:
        number, said = integer("clientid", clientid), bodies.read(request, ClientRequest)
        refuse_owner(self.scope(), number)
        for group in said.groups:
            self.must_reach(group)
        client = Client(
            id=number,
            name=said.name,
            host=said.host,
            pid=None if said.pid is UNSET else said.pid,
            groups=list(said.groups),
            version=said.version,
            info=said.info_as_text,
            token=self.token().pk,
        )
        return Response(sharing.hear(client))


class Clients(View):
    @serves(endpoints.CLIENTS)
    def get(self, request: Request) -> Response:
        query_of(request, endpoints.CLIENTS)
        done, found = clients.done_per_minute(), clients.seen(self.scope())
        return Response([seen.as_answer(done.get(seen.client.id, 0.0)) for seen in found])
