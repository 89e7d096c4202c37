"""Doing something to many tasks, once it was seen how many (contract.md section 4)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from .. import bulk
from ..models import BulkOperation
from ..policy import Action
from . import bodies
from .base import View
from .bulk_answers import Links, OperationAnswer, PreviewAnswer
from .bulk_asked import BulkPreviewRequest, BulkRequest
from .description import FAILURES, KEY_REUSED, endpoint
from .on_the_loop import key_in

BEGUN = 202


class Preview(View):
    """How many tasks would be meant, and which. Nothing is changed."""

    needs = Action.OPERATE

    @endpoint("bulk_preview", answer=PreviewAnswer, body=BulkPreviewRequest)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkPreviewRequest)
        for group in asked.groups:
            self.must_reach(group)
        seen = bulk.preview(asked.selection(self.scope()))
        return Response(PreviewAnswer.of(bulk.Verb(asked.verb), seen))


class Bulk(View):
    """Do it to the tasks of a preview, in the background.

    Refused when their number has changed by more than 10 and 1 %. A small operation may have ended when this answers:
    look at its `state`.
    """

    needs = Action.OPERATE

    @endpoint("bulk", answer=OperationAnswer, body=BulkRequest, failures=FAILURES | KEY_REUSED, status=BEGUN)
    def post(self, request: Request) -> Response:
        asked = bodies.read(request, BulkRequest)
        for group in asked.groups:
            self.must_reach(group)
        key = key_in(request, asked, f"bulk of token {self.token().pk}")
        return begun(bulk.start(asked.asked(self.scope(), self.by(), key)))


def begun(operation: BulkOperation) -> Response:
    return Response(OperationAnswer.of(operation), status=BEGUN, headers={"Location": Links.of(operation).operation})
