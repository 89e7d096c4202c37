"""What those who watch over the server ask. They have no token."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from ..instance import INSTANCE
from ..models import Task
from .answers import Health
from .base import OpenView
from .description import FAILURES, endpoint


class Healthz(OpenView):
    """The process lives. It does not ask the database, whose failure a restart of this process would not mend."""

    @endpoint("healthz", answer=Health, failures={})
    def get(self, request: Request) -> Response:
        return Response(Health(instance=INSTANCE))


class Readyz(OpenView):
    """The process can work: the store answers."""

    @endpoint("readyz", answer=Health, failures={503: FAILURES[503]})
    def get(self, request: Request) -> Response:
        Task.objects.find([0])
        return Response(Health(instance=INSTANCE))
