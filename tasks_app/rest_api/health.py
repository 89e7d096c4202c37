"""Liveness, readiness and metrics."""

from __future__ import annotations

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore.errors import StoreUnavailable
from taskstore.types.server import Health

from ..access.policy import Action
from ..models import Task
from ..reading import metrics
from ..writer.peers import INSTANCE
from ..writer.readiness import readiness
from .async_views import LoopView
from .authentication import MachineOrToken
from .base import OpenView, View
from .errors import ENCODER
from .schema import FAILURES, endpoint


class Healthz(OpenView, LoopView):
    """The process lives. It does not ask the database, whose failure a restart of this process would not mend."""

    @endpoint("healthz", answer=Health, failures={})
    async def get(self, request: Request) -> bytes:
        return ENCODER.encode(Health(instance=INSTANCE))


class Readyz(OpenView):
    """The process can work: the store can be read and written, and nobody has told the server to end.

    The answer says why not.
    """

    @endpoint("readyz", answer=Health, failures={503: FAILURES[503]})
    def get(self, request: Request) -> Response:
        if readiness.is_withdrawn:
            raise StoreUnavailable("this server is about to end: ask another one")
        Task.objects.find([0])
        Task.objects.check_writable()
        return Response(Health(instance=INSTANCE))


TEXT = {"type": "string"}
KINDS = [kind.partition(";")[0] for kind in metrics.MEDIA_TYPES]
REFUSALS = {status: FAILURES[status] for status in (401, 403, 429, 503)}


class Metrics(View):
    """What the server has done, and what there is in each group, for Prometheus: as its text, or as OpenMetrics.

    A program on the same machine needs no token, unless the server has a public URL. A token for some groups only
    does not do.
    """

    needs = Action.SEE
    authentication_classes = (MachineOrToken,)

    # Told by hand, as it is one of two ways in. The library says that it wants words, and takes what OpenAPI has.
    @extend_schema(auth=[{"token": []}, {}])  # type: ignore[list-item]
    @endpoint("metrics", answer=TEXT, kinds=KINDS, failures=REFUSALS)
    def get(self, request: Request) -> HttpResponse:
        if not self.scope().is_everything:
            raise PermissionDenied("This token may not see every group.")
        text, media_type = metrics.page(request.META.get("HTTP_ACCEPT", ""))
        return HttpResponse(text, content_type=media_type)
