"""Finding tasks by what they are, with the words of the console's search box."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from ..listing import PAGE, Place
from ..models import Task
from ..policy import Action
from ..search import grammar
from ..search.finding import find
from ..wire.tasks import TaskAnswer
from .answers import SearchAnswer
from .base import View
from .description import endpoint, query
from .queries import page_size_in, query_of

MOST = 200

ASKED = [
    query("q", {"type": "string", "maxLength": grammar.LONGEST}, "Terms; a task is found when it meets every one."),
    query("after", {"type": "string"}, "Where the page before ended."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE}, "How many at most."),
]


class Search(View):
    """Tasks by what they are: `group:mail state:failed error:"timed out" -owner:17 data.user:42 age:>1h`.

    Within one group the longest available come first, else the newest. After a second the answer is what was found
    by then: `complete` is false, and `after` goes on from there.
    """

    needs = Action.SEE_PAYLOADS

    @endpoint("search", answer=SearchAnswer, parameters=ASKED)
    def get(self, request: Request) -> Response:
        asked = query_of(request, "q", "after", "limit")
        terms, scope = grammar.parse(asked.get("q", "")), self.scope()
        after = Place.read(asked["after"], "after") if "after" in asked else None
        found = find(terms, scope=scope, after=after, limit=page_size_in(asked, MOST))
        tasks = [task for task in Task.objects.find(found.ids, scope) if task is not None]
        return Response(
            SearchAnswer(
                tasks=tuple(map(TaskAnswer.of, tasks)),
                after=str(found.after) if found.after else None,
                complete=not found.is_cut_short,
                looked_at=found.looked_at,
                at=found.at_ms,
            )
        )
