"""Liveness, readiness, metrics, and the description of the API."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.exceptions import PermissionDenied

from taskstore import endpoints
from taskstore.errors import StoreDamaged, StoreUnavailable
from taskstore.types.history import Health
from taskstore.types.requests import Nothing

from ..database.outage import DAMAGED, outage
from ..models import Task
from ..reading.metrics import page
from ..writer.peers import INSTANCE, readiness
from .base import Who, serves
from .schema import Tree, description


@serves(endpoints.HEALTHZ)
async def healthz(asked: Nothing, who: Who) -> Health:
    return Health(instance=INSTANCE)


@serves(endpoints.READYZ)
def readyz(asked: Nothing, who: Who) -> Health:
    if readiness.is_withdrawn:
        raise StoreUnavailable("this server is stopping: use another one")
    if outage.is_damaged:
        raise StoreDamaged(f"{DAMAGED}: an operator has to repair it, or to restore a backup")
    Task.objects.find([0])
    Task.objects.check_writable()
    return Health(instance=INSTANCE)


@serves(endpoints.METRICS)
def metrics(asked: Nothing, who: Who) -> HttpResponse:
    if not who.scope.is_everything:
        raise PermissionDenied("This token has no access to some of the groups.")
    text, media_type = page(who.request.META.get("HTTP_ACCEPT", ""))
    return HttpResponse(text, content_type=media_type)


@serves(endpoints.SCHEMA)
def schema(asked: Nothing, who: Who) -> Tree:
    return description()
