"""Workers that say that they are alive (contract.md section 4)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from .. import clients
from ..policy import Action
from ..validation import refuse_owner
from . import bodies
from .answers import ClientAnswer
from .asked import ClientRequest
from .base import View
from .description import ID, REFERENCE, endpoint, path
from .queries import integer, query_of

CLIENTS = {"type": "array", "items": {"$ref": REFERENCE.format(name=ClientAnswer.__name__)}}


class Heartbeat(View):
    """A worker says that it is alive, and what it is. What it said before is forgotten."""

    needs = Action.WORK

    @endpoint("heartbeat", answer=ClientAnswer, body=ClientRequest, parameters=[path("clientid", ID)])
    def put(self, request: Request, clientid: str) -> Response:
        number, said = integer("clientid", clientid), bodies.read(request, ClientRequest)
        refuse_owner(self.scope(), number)
        for group in said.groups:
            self.must_reach(group)
        return Response(ClientAnswer.of(clients.hear(said.client(number))))


class Clients(View):
    """The workers that were heard within a day, the last heard first."""

    needs = Action.SEE

    @endpoint("clients", answer=CLIENTS)
    def get(self, request: Request) -> Response:
        query_of(request)
        done, found = clients.done_per_minute(), clients.seen(self.scope())
        return Response([ClientAnswer.of(seen, done.get(seen.client.id, 0.0)) for seen in found])
