"""Stop claims in a group for a while, and let them go on (contract.md section 4)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from .. import pauses
from ..policy import Action
from . import bodies
from .answers import PauseAnswer
from .asked import ReasonRequest
from .base import View
from .description import NAME, endpoint, path
from .queries import refuse_broken_path

IN_PATH = path("name", NAME, "With any character in it; `/` as it is or as %2F.")


class PauseOrResume(View):
    needs = Action.OPERATE

    def reason_in(self, request: Request, name: str) -> str:
        """The reason that the body gives, once it is clear that the token may change the group."""
        refuse_broken_path(request)
        self.must_change(name)
        return bodies.read(request, ReasonRequest).reason


class Pause(PauseOrResume):
    """Claims find nothing in the group from now on; commits go on. A paused group stays paused as it is."""

    @endpoint("pause", answer=PauseAnswer, body=ReasonRequest, parameters=[IN_PATH])
    def post(self, request: Request, name: str) -> Response:
        reason = self.reason_in(request, name)
        return Response(PauseAnswer.of(pauses.pause(name, by=self.by(), reason=reason)))


class Resume(PauseOrResume):
    """Claims find again what is in the group, those that wait at once."""

    @endpoint("resume", answer=PauseAnswer, body=ReasonRequest, parameters=[IN_PATH])
    def post(self, request: Request, name: str) -> Response:
        reason = self.reason_in(request, name)
        pauses.resume(name, by=self.by(), reason=reason)
        return Response(PauseAnswer(group=name))
