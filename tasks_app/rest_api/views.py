"""The endpoints: read the request, call one verb, shape the reply (contract.md sections 3 to 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.http import StreamingHttpResponse
from rest_framework.exceptions import AuthenticationFailed, NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from .. import history
from ..counts import group_stats
from ..errors import LimitExceeded
from ..managers import limits
from ..models import Task
from ..operations import GroupScope, Operation
from ..policy import Action
from ..streaming import streamed
from ..waiting_tokens import waiting_tokens
from ..wire.tasks import TaskAnswer
from . import bodies
from .answers import HistoryAnswer, Outcome, StatsAnswer
from .asked import ClaimRequest, TasksRequest, UpdateRequest
from .authentication import NO_TOKEN
from .base import View
from .description import (
    FAILURES,
    FLAG,
    ID,
    IDS,
    LIMIT,
    NAME,
    NAMES,
    NOT_THERE,
    TASKS,
    TASKS_OR_NULL,
    TEXTS,
    endpoint,
    path,
    query,
)
from .on_the_loop import LoopView
from .queries import integer, integers, labels_in, limit_in, query_of, refuse_broken_path, switch
from .rendering import ENCODER, JSONRenderer
from .stream import listing

IN_PATH = path("name", NAME, "All that follows is the name; `/` as it is or as %2F.")
LISTED = [
    query("limit", LIMIT, "How many at most; 0: all."),
    query("owned", FLAG, "Also what is not available."),
    query("label", TEXTS, "NAME:VALUE, or NAME for any value: those that bear it. Several times: that bear all."),
]
REPEATED = ("label",)


class Groups(View):
    """The names of the groups that hold a task, sorted."""

    needs = Action.SEE

    @endpoint("groups", answer=NAMES)
    def get(self, request: Request) -> Response:
        query_of(request)
        return Response(Task.objects.groups(self.scope()))


class Stats(View):
    """Every group that holds a task in numbers, sorted by name."""

    needs = Action.SEE

    @endpoint("stats", answer=StatsAnswer)
    def get(self, request: Request) -> Response:
        query_of(request)
        return Response(StatsAnswer.of(group_stats(self.scope()), Task.objects.now_ms()))


class Listing(View):
    needs = Action.SEE_PAYLOADS

    def tasks_of(self, name: str, query: Mapping[str, str]) -> StreamingHttpResponse:
        limit, owned = limit_in(query), switch("owned", query.get("owned", "no"))
        self.must_reach(name)
        tasks = Task.objects.group(name, owned=owned)
        for label in labels_in(self.request):
            tasks = tasks.bearing(*label)
        pieces = listing(tasks, limit)
        return streamed(self.request._request, pieces, JSONRenderer.media_type)


class Group(Listing):
    """The tasks of a group, the oldest available time first."""

    @endpoint("group", answer=TASKS, parameters=[IN_PATH, *LISTED])
    def get(self, request: Request, name: str) -> StreamingHttpResponse:
        refuse_broken_path(request)
        return self.tasks_of(name, query_of(request, "limit", "owned", "label", repeated=REPEATED))


class GroupByQuery(Listing):
    """The same, for a name that a path can't carry. Without one: the names, as the original's client asks for them."""

    @endpoint("group_by_query", answer={"anyOf": [TASKS, NAMES]}, parameters=[query("name", NAME), *LISTED])
    def get(self, request: Request) -> StreamingHttpResponse | Response:
        query = query_of(request, "name", "limit", "owned", "label", repeated=REPEATED)
        if "name" in query:
            return self.tasks_of(query["name"], query)
        return Response(Task.objects.groups(self.scope()))


class OneTask(View):
    """The task with this id."""

    needs = Action.SEE_PAYLOADS

    @endpoint("task", answer=TaskAnswer, parameters=[path("id", ID)], failures=FAILURES | NOT_THERE)
    def get(self, request: Request, id: str) -> Response:
        task_id, scope = integer("id", id), self.scope()
        [task] = Task.objects.find([task_id], scope)
        if task is None:
            told = history.epitaph_of(task_id, scope)
            raise NotFound(told or f"There is no task {task_id}{history.doubt_about(task_id)}.")
        return Response(TaskAnswer.of(task))


class TasksByPath(View):
    """The tasks of these ids in the order asked, null for one that does not exist."""

    needs = Action.SEE_PAYLOADS

    @endpoint("tasks", answer=TASKS_OR_NULL, parameters=[path("ids", IDS)])
    def get(self, request: Request, ids: str) -> Response:
        return found(integers("ids", ids), self.scope())


class TasksByBody(View):
    """The same for more ids than fit into an address."""

    needs = Action.SEE_PAYLOADS

    @endpoint("tasks_by_body", answer=TASKS_OR_NULL, body=TasksRequest)
    def post(self, request: Request) -> Response:
        return found(bodies.read(request, TasksRequest).ids, self.scope())


class Update(LoopView):
    """Add, replace and delete tasks: everything, or nothing with the reasons in `error`."""

    needs = Action.WORK

    @endpoint("update", answer=Outcome, body=UpdateRequest)
    async def post(self, request: Request) -> bytes:
        asked = bodies.read(request, UpdateRequest)
        for group in {add.group for add in asked.adds if add.group}:
            self.must_reach(group)
        return await outcome_of(asked.operation(self.scope(), self.key_of(asked)))


class ClaimTasks(LoopView):
    """Take available tasks: they are replaced by successors that are leased to the client."""

    needs = Action.WORK

    @endpoint("claim", answer=Outcome, body=ClaimRequest)
    async def post(self, request: Request) -> bytes:
        asked = bodies.read(request, ClaimRequest)
        for group in asked.wanted:
            self.must_reach(group)
        operation = asked.operation(self.scope(), self.key_of(asked))
        if not asked.wait:
            return await outcome_of(operation)
        async with waiting_tokens.while_valid(self.token(), AuthenticationFailed(NO_TOKEN)):
            return await outcome_of(operation)


class History(View):
    """What became of an id that was ever given out."""

    needs = Action.SEE

    @endpoint("history", answer=HistoryAnswer, parameters=[path("id", ID)], failures=FAILURES | NOT_THERE)
    def get(self, request: Request, id: str) -> Response:
        task_id = integer("id", id)
        chain = history.chain_of(task_id, self.scope())
        if chain is None:
            raise NotFound(f"No id {task_id} is known{history.doubt_about(task_id)}.")
        return Response(HistoryAnswer.of(task_id, chain))


def found(ids: Sequence[int], scope: GroupScope) -> Response:
    most = limits().changes
    if len(ids) > most:
        raise LimitExceeded({"ids": [f"at most {most} at once, not {len(ids)}"]})
    return Response([task and TaskAnswer.of(task) for task in Task.objects.find(ids, scope)])


async def outcome_of(operation: Operation) -> bytes:
    # Records, and the bytes at once: models and a Response that DRF renders cost as much again.
    tasks = await Task.objects.adecide(operation)
    return ENCODER.encode(Outcome(tasks=tuple(map(TaskAnswer.of, tasks))))
