"""The numbers for those who watch over the server with Prometheus."""

from __future__ import annotations

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from .. import metrics
from ..policy import Action
from .authentication import MachineOrToken
from .base import View
from .description import FAILURES, endpoint

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
