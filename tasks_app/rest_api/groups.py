"""Pause and resume groups; register and list workers."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from taskstore.types.clients import Heard
from taskstore.types.groups import GroupPause
from taskstore.types.groups import Pause as Paused

from ..access.policy import Action
from ..core.actors import Actor
from ..core.validation import refuse_owner
from ..operating import pauses
from ..reading import clients
from . import bodies
from .base import View
from .requests import ClientRequest, ReasonRequest
from .schema import ID, NAME, REFERENCE, endpoint, path
from .search import integer, query_of, refuse_broken_path

IN_PATH = path("name", NAME, "With any character in it; `/` as it is or as %2F.")


class PauseOrResume(View):
    needs = Action.OPERATE

    def who_asks(self, request: Request, name: str) -> Actor:
        """Return who asks, with the reason that the body gives."""
        refuse_broken_path(request)
        self.must_reach(name)
        return self.actor.because(bodies.read(request, ReasonRequest).reason)


class Pause(PauseOrResume):
    """Claims find nothing in the group from now on; commits go on. A paused group stays paused as it is."""

    @endpoint("pause", answer=GroupPause, body=ReasonRequest, parameters=[IN_PATH])
    def post(self, request: Request, name: str) -> Response:
        paused = pauses.pause(name, self.who_asks(request, name))
        told = Paused(by=paused.by, at_ms=paused.at_ms, reason=paused.reason)
        return Response(GroupPause(group=name, paused=told))


class Resume(PauseOrResume):
    """Claims find again what is in the group, those that wait at once."""

    @endpoint("resume", answer=GroupPause, body=ReasonRequest, parameters=[IN_PATH])
    def post(self, request: Request, name: str) -> Response:
        pauses.resume(name, self.who_asks(request, name))
        return Response(GroupPause(group=name))


CLIENTS = {"type": "array", "items": {"$ref": REFERENCE.format(name=Heard.__name__)}}


class Heartbeat(View):
    """A worker says that it is alive, and what it is. What it said before is forgotten."""

    needs = Action.WORK

    @endpoint("heartbeat", answer=Heard, body=ClientRequest, parameters=[path("clientid", ID)])
    def put(self, request: Request, clientid: str) -> Response:
        number, said = integer("clientid", clientid), bodies.read(request, ClientRequest)
        refuse_owner(self.scope(), number)
        for group in said.groups:
            self.must_reach(group)
        return Response(clients.hear(said.client(number)).as_answer())


class Clients(View):
    """The workers that were heard within a day, the last heard first."""

    needs = Action.SEE

    @endpoint("clients", answer=CLIENTS)
    def get(self, request: Request) -> Response:
        query_of(request)
        done, found = clients.done_per_minute(), clients.seen(self.scope())
        return Response([seen.as_answer(done.get(seen.client.id, 0.0)) for seen in found])
