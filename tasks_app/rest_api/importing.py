"""Tasks out of a file."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from rest_framework.request import Request

from .. import importing
from ..files import MEDIA_TYPES, Format
from ..models import Task
from ..policy import Action
from ..wire.tasks import Add
from . import bodies
from .answers import ImportAnswer
from .asked import UpdateRequest
from .description import NAME, endpoint, query
from .on_the_loop import LoopView
from .queries import query_of
from .rendering import ENCODER

NOBODY = 0  # Whose the tasks are: whoever claims them.
ASKED = [query("group", NAME, "Where all of them go, whatever the lines say.")]


class ImportTasks(LoopView):
    """Add the tasks of a file in NDJSON: all of them in one commit, or none.

    A line is an add of `/update`; what only the server sets is ignored, so that what `/export` wrote can be sent
    as it is. `errors` names the first wrong lines and their fields.
    """

    needs = Action.WORK

    @endpoint("import", answer=ImportAnswer, body=Add, body_kind=MEDIA_TYPES[Format.NDJSON], parameters=ASKED)
    async def post(self, request: Request) -> bytes:
        group = query_of(request, "group").get("group", "")
        # Beside the loop: ten thousand lines take a while.
        adds = await sync_to_async(importing.read, thread_sensitive=False)(bodies.body_of(request), group)
        for name in {add.group for add in adds}:
            self.must_reach(name)
        asked = UpdateRequest(clientid=NOBODY, adds=adds)
        tasks = await Task.objects.adecide(asked.operation(self.scope(), self.key_of(asked)))
        return ENCODER.encode(ImportAnswer(imported=len(tasks), ids=tuple(task.id for task in tasks)))
