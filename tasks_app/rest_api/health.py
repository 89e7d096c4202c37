"""Liveness, readiness and metrics."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.errors import StoreDamaged, StoreUnavailable
from taskstore.types.server import Health

from ..database.outage import DAMAGED, outage
from ..models import Task
from ..reading import metrics
from ..writer.peers import INSTANCE
from ..writer.readiness import readiness
from .authentication import MachineOrToken
from .base import LoopView, OpenView, View, serves
from .errors import ENCODER


class Healthz(OpenView, LoopView):
    @serves(endpoints.HEALTHZ)
    async def get(self, request: Request) -> bytes:
        return ENCODER.encode(Health(instance=INSTANCE))


class Readyz(OpenView):
    @serves(endpoints.READYZ)
    def get(self, request: Request) -> Response:
        if readiness.is_withdrawn:
            raise StoreUnavailable("this server is stopping: use another one")
        if outage.is_damaged:
            raise StoreDamaged(f"{DAMAGED}: an operator has to repair it, or to restore a backup")
        Task.objects.find([0])
        Task.objects.check_writable()
        return Response(Health(instance=INSTANCE))


class Metrics(View):
    authentication_classes = (MachineOrToken,)

    @serves(endpoints.METRICS)
    def get(self, request: Request) -> HttpResponse:
        if not self.scope().is_everything:
            raise PermissionDenied("This token has no access to some of the groups.")
        text, media_type = metrics.page(request.META.get("HTTP_ACCEPT", ""))
        return HttpResponse(text, content_type=media_type)
