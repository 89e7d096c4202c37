"""What those who watch over the server ask. They have no token."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from ..errors import StoreUnavailable
from ..instance import INSTANCE
from ..models import Task
from ..readiness import readiness
from .answers import Health
from .base import OpenView
from .description import FAILURES, endpoint


class Healthz(OpenView):
    """The process lives. It does not ask the database, whose failure a restart of this process would not mend."""

    @endpoint("healthz", answer=Health, failures={})
    def get(self, request: Request) -> Response:
        return Response(Health(instance=INSTANCE))


class Readyz(OpenView):
    """The process can work, and will go on to: the store answers, and nobody has told it to end."""

    @endpoint("readyz", answer=Health, failures={503: FAILURES[503]})
    def get(self, request: Request) -> Response:
        if readiness.is_withdrawn:
            raise StoreUnavailable("this server is about to end: ask another one")
        Task.objects.find([0])
        return Response(Health(instance=INSTANCE))
