"""The endpoints of the REST API, a row for each.

The server makes its URLs, its checks of rights and its OpenAPI description from these rows and from the types of their
requests; both Python clients make their methods from them, and the command line its commands. A new endpoint is a row
here, a type of request in `types`, and a function in `tasks_app/rest_api` that serves it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Any, Generic, ParamSpec, TypeVar, cast
from urllib.parse import quote

from msgspec import inspect

from .types import bulk, commands
from .types.batches import Batch, BatchesRequest, BatchMade, BatchPage, BatchRequest
from .types.groups import ClientStatus, GroupPause, Stats
from .types.history import AuditFileRequest, AuditPage, ExportRequest, Health, History, SearchPage, SearchRequest
from .types.jobs import Job, JobRequest, JobsPage, JobsRequest, RequeueRequest
from .types.limits import GroupLimit, LimitsByGroup, LimitsRequest, ReasonByLimits
from .types.progress import Progress
from .types.requests import (
    Add,
    Asked,
    ById,
    CancelledRequest,
    CancelRequest,
    ClaimRequest,
    ClientRequest,
    GroupByQuery,
    GroupRequest,
    ImportFile,
    Nothing,
    ProgressRequest,
    ReasonByGroup,
    ReasonById,
    StatsRequest,
    TasksRequest,
    UpdateRequest,
)
from .types.scalars import ONE_PART, Action, prepare
from .types.schedules import ReasonBySchedule, Schedule, ScheduleByName, ScheduleRequest
from .types.tasks import Cancelled, Imported, Outcome, Task

P = ParamSpec("P")
AskedT = TypeVar("AskedT", bound=Asked, covariant=True)
T_co = TypeVar("T_co", covariant=True)

Tree = dict[str, Any]

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"


TOKEN_FAILURES = {
    401: "The token is missing or invalid.",
    403: "The token does not allow this, or not in this group.",
    429: "Too many requests, or too many wrong tokens. Try again after `Retry-After` seconds.",
    503: "The server cannot process the request now. Try again after `Retry-After` seconds. With the code "
    "`commit_unknown` the change may have been made: check before you repeat it.",
}
FAILURES = TOKEN_FAILURES | {
    400: "The request is invalid. `errors` names every wrong field.",
    413: "The request exceeds a limit of the server, which `errors` names.",
}


class Repeat(Enum):
    """What happens when a request is sent again because no response came."""

    SAFE = auto()  # Nothing more than once.
    BY_KEY = auto()  # The same, for a request with the same idempotency key.
    NEVER = auto()  # It might be carried out twice: clients do not send it again.


ENDPOINTS: list[Endpoint[..., Any, Any]] = []  # All rows of this file, in their order.


@dataclass(frozen=True, eq=False)
class Endpoint(Generic[P, AskedT, T_co]):
    """A row: the method and the path that `place` names.

    `asks`: the type of the request. Its fields that `path` has in braces are in the path; the others are parameters of
    the query of a GET or DELETE, or of a request whose body is lines, and members of the body of any other. `needs`:
    what the token must allow; None if no token is needed. `answer`: the type of the answer, `bytes` for a file;
    `or_answer`: another type that it may have. `lines`: the type of each line of the body, if it is NDJSON.
    `failures` and `also`: what each status means if the request fails; `missing`: what a 404 says, with fields of the
    request. `media`: the media types of the answer, the default first.
    """

    name: str
    place: str
    asks: Callable[P, AskedT]
    answer: type[T_co]
    needs: Action | None
    _: KW_ONLY
    says: str
    status: int = 200
    or_answer: Any = None
    failures: Mapping[int, str] = field(default_factory=lambda: FAILURES)
    also: Mapping[int, str] = field(default_factory=dict)
    media: tuple[str, ...] = (JSON,)
    lines: type | None = None
    repeat: Repeat = Repeat.SAFE
    is_local: bool = False  # Programs on the server's own machine need no token.
    missing: str = ""

    def __post_init__(self) -> None:
        ENDPOINTS.append(self)

    @property
    def every_failure(self) -> Mapping[int, str]:
        """What each status means if the request fails."""
        unseen = {404: "It does not exist, or the token may not access it."} if self.missing else {}
        return {**self.failures, **self.also, **unseen}

    @cached_property
    def method(self) -> str:
        return self.place.split()[0]

    @cached_property
    def path(self) -> str:
        return self.place.split()[1]

    @property
    def kind(self) -> type[AskedT]:
        """The type of the request."""
        return cast("type[AskedT]", self.asks)

    @cached_property
    def fields(self) -> Mapping[str, inspect.Field]:
        """The fields of the request, by name."""
        return {each.name: each for each in inspect.type_info(self.kind).fields}  # type: ignore[attr-defined]

    @cached_property
    def in_path(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def in_query(self) -> tuple[str, ...]:
        has_body = self.method in ("POST", "PUT") and not self.lines
        return () if has_body else tuple(name for name in self.fields if name not in self.in_path)

    @cached_property
    def in_body(self) -> tuple[str, ...]:
        return tuple(name for name in self.fields if name not in self.in_path + self.in_query)

    def has_slashes(self, name: str) -> bool:
        """Whether the value of this field of the path may hold `/`, written as is or as %2F."""
        return name == "name" and plain(self.fields[name].type).pattern != ONE_PART

    def path_of(self, asked: Any) -> str:
        """Return the path for this request, percent-encoded."""
        if not self.in_path:
            return self.path
        return self.path.format(
            **{
                name: quote(written(getattr(asked, name)), safe="/" if self.has_slashes(name) else "")
                for name in self.in_path
            }
        )


def plain(type_: inspect.Type) -> Any:
    """Return a type without its description and without None."""
    match type_:
        case inspect.Metadata():
            return plain(type_.type)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return plain(inner)
    return type_


def written(value: Any) -> str:
    """Return a value as it is written in a path."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


NOT_FOUND = {404: "Not found. For an id that existed, `detail` says how it ended."}
NO_BATCH = "Batch {id} does not exist."
NO_LIMITS = "The group {name} has no limits."
NO_SCHEDULE = "Schedule {name} does not exist."
KEY_REUSED = {409: "The idempotency key was used before with another request."}
NOT_HELD = {409: "The task is not leased to this client. `detail` says who holds it."}
UNFINISHED = {409: "The job has not finished. `detail` contains its status."}

# fmt: off

# ---- Groups
GROUPS = Endpoint("groups", "GET /groups", Nothing, list[str], Action.SEE,
    says="The names of the non-empty groups, sorted.")
STATS = Endpoint("stats", "GET /stats", StatsRequest, Stats, Action.SEE,
    says="Counts and rates of the non-empty groups, sorted by name.")
GROUP_TASKS = Endpoint("group", "GET /group/{name}", GroupRequest, list[Task], Action.SEE_PAYLOADS,
    says="The tasks of a group, sorted by the time from which they are available.")
GROUP_BY_QUERY = Endpoint("group_by_query", "GET /group", GroupByQuery, list[Task], Action.SEE_PAYLOADS,
    says="The tasks of a group, as `/group/{name}` lists them, for any name. Without `name` it lists the names of the "
         "groups, as clients of the original Task Store expect.",
    or_answer=list[str])
PAUSE = Endpoint("pause", "POST /groups/{name}/pause", ReasonByGroup, GroupPause, Action.OPERATE,
    says="Pause a group: it hands out no tasks, but commits continue. Pausing a paused group changes nothing.")
RESUME = Endpoint("resume", "POST /groups/{name}/resume", ReasonByGroup, GroupPause, Action.OPERATE,
    says="Resume a paused group. Waiting claims receive its tasks immediately.")
LIMITS = Endpoint("limits", "GET /limits", Nothing, list[GroupLimit], Action.SEE,
    says="The limits of groups that the token may access, sorted by name.")
GROUP_LIMITS = Endpoint("group_limits", "GET /groups/{name}/limits", LimitsByGroup, GroupLimit, Action.SEE,
    says="The limit of a group and how much of it is used. If several apply, the one with the most specific name "
         "counts.",
    missing=NO_LIMITS)
PUT_LIMITS = Endpoint("set_limits", "PUT /groups/{name}/limits", LimitsRequest, GroupLimit, Action.OPERATE,
    says="Limit how many tasks of a group, or of each group with a prefix, are leased at the same time or claimed "
         "within a period. Claims skip tasks that a limit forbids. Replaces the limit with this name.")
DELETE_LIMITS = Endpoint("remove_limits", "DELETE /groups/{name}/limits", ReasonByLimits, GroupLimit, Action.OPERATE,
    says="Remove the limit with this name. Returns the removed limit.",
    missing=NO_LIMITS)

# ---- Tasks
TASK = Endpoint("task", "GET /task/{id}", ById, Task, Action.SEE_PAYLOADS, also=NOT_FOUND,
    says="The task with this id.")
TASKS = Endpoint("tasks", "GET /tasks/{ids}", TasksRequest, list[Task | None], Action.SEE_PAYLOADS,
    says="The tasks with these ids, in the order of the request. A task that does not exist is null.")
TASKS_BY_BODY = Endpoint("tasks_by_body", "POST /tasks", TasksRequest, list[Task | None], Action.SEE_PAYLOADS,
    says="The tasks with these ids, as `GET /tasks/{ids}` returns them, for more ids than fit into a URL.")
HISTORY = Endpoint("history", "GET /history/{id}", ById, History, Action.SEE, also=NOT_FOUND,
    says="The history of an id, whether its task still exists or not.")
SEARCH = Endpoint("search", "GET /search", SearchRequest, SearchPage, Action.SEE_PAYLOADS,
    says='Search for tasks: `group:mail state:failed error:"timed out" -owner:17 data.user:42 age:>1h`.\n\n'
         "Within one group, the tasks that have been available longest come first; otherwise, the newest tasks come "
         "first. A search stops after one second: `complete` is then false, and `after` continues it.")
EXPORT = Endpoint("export", "GET /export", ExportRequest, bytes, Action.SEE_PAYLOADS, media=(NDJSON, CSV),
    says="All tasks that match a search, as a file: NDJSON with a task per line, which `/import` reads, or CSV.\n\n"
         "The export has no time limit. It omits tasks added in the meantime. A task that is replaced during the "
         "export may appear twice, with the same `origin`, or not at all. If the export fails, the response ends "
         "without its last HTTP chunk, which clients report as an error.")

# ---- What workers do
UPDATE = Endpoint("update", "POST /update", UpdateRequest, Outcome, Action.WORK, repeat=Repeat.BY_KEY,
    says="Add, replace and delete tasks: all changes are made, or none, and `error` gives the reasons.")
CLAIM = Endpoint("claim", "POST /claim", ClaimRequest, Outcome, Action.WORK, repeat=Repeat.BY_KEY,
    says="Claim available tasks. Each is replaced by a successor that is leased to the client.")
IMPORT = Endpoint("import", "POST /import", ImportFile, Imported, Action.WORK, lines=Add, repeat=Repeat.BY_KEY,
    says="Add the tasks of an NDJSON file: all of them in one commit, or none.\n\n"
         "Each line is an add as for `/update`. Fields that only the server sets are ignored, so a file from `/export` "
         "can be sent unchanged. `errors` names the first wrong lines and their fields.")
CANCEL = Endpoint("cancel", "POST /cancel", CancelRequest, Cancelled, Action.WORK, repeat=Repeat.SAFE,
    says="Cancel tasks: all of them, or none.\n\n"
         "Jobs and commands are kept as cancelled, others are deleted. `ids` in the response are those that were "
         "cancelled; the others had ended already. To cancel a leased task takes the scope `operate`: its worker ends "
         "what it runs within 2 s, and what it commits is refused.")
CANCELLED = Endpoint("cancelled", "GET /cancelled", CancelledRequest, Cancelled, Action.SEE,
    says="The leased tasks of a client that were cancelled within the last minute or, with `after`, since the previous "
         "response. A worker that asks again and again with `wait` learns of each within a second.")
HEARTBEAT = Endpoint("heartbeat", "PUT /clients/{clientid}", ClientRequest, ClientStatus, Action.WORK,
    says="Send a heartbeat: report that a worker is alive, and describe it. It replaces the previous report.")
PROGRESS = Endpoint("progress", "PUT /progress/{id}", ProgressRequest, Progress, Action.WORK,
    says="Report the progress of a leased task. Only the client that holds the task can.\n\n"
         "`id` can be any id of its chain. The store keeps the last report of each second; a crash may lose it. A "
         "report does not create a successor. The task, job or command shows it as `progress` until the lease ends.",
    also=NOT_FOUND | NOT_HELD)
CLIENTS = Endpoint("clients", "GET /clients", Nothing, list[ClientStatus], Action.SEE,
    says="The workers that sent a heartbeat within the last day, most recent first.")

# ---- Batches
BATCHES = Endpoint("batches", "GET /batches", BatchesRequest, BatchPage, Action.SEE,
    says="Batches whose groups the token may access, newest first.")
CREATE_BATCH = Endpoint("create_batch", "POST /batches", BatchRequest, BatchMade, Action.WORK,
    says="Create a batch with its first tasks. When all of its tasks have succeeded, the tasks of `then` are added "
         "once; when the first has failed, was cancelled or purged, those of `on_failure`.\n\n"
         "While the batch is open, any commit may add tasks to it with `batch`.",
    also=KEY_REUSED, or_answer=Outcome, repeat=Repeat.BY_KEY)
BATCH = Endpoint("batch", "GET /batches/{id}", ById, Batch, Action.SEE, missing=NO_BATCH,
    says="A batch, and how many of its tasks are open, have failed and have succeeded.")
RELEASE_BATCH = Endpoint("release_batch", "POST /batches/{id}/release", ReasonById, Batch, Action.WORK,
    says="Let a batch close that was created with `hold`, or that has a `problem`. If the rights with which it was "
         "planned are lost, it goes on with those of an operator's token.", missing=NO_BATCH)
COMPLETE_BATCH = Endpoint("complete_batch", "POST /batches/{id}/complete", ReasonById, Batch, Action.OPERATE,
    says="Count the tasks of an open batch that have failed as succeeded, also those that fail later: it closes, and "
         "adds the tasks of `then`, when no others are open. A closed batch stays as it is.", missing=NO_BATCH)
DELETE_BATCH = Endpoint("delete_batch", "DELETE /batches/{id}", ReasonById, bulk.Operation, Action.OPERATE,
    says="Delete a batch: it takes no more tasks and adds none, and a bulk operation purges its tasks. The undo of the "
         "operation opens the batch again.", missing=NO_BATCH)

# ---- Jobs
JOBS = Endpoint("jobs", "GET /jobs", JobsRequest, JobsPage, Action.SEE_PAYLOADS,
    says="Jobs, sorted by due or end time, latest first.")
ENQUEUE = Endpoint("enqueue", "POST /jobs", JobRequest, Job, Action.WORK, also=KEY_REUSED, repeat=Repeat.BY_KEY,
    says="Add a job.")
JOB = Endpoint("job", "GET /jobs/{id}", ById, Job, Action.SEE_PAYLOADS, also=NOT_FOUND,
    says="The job with this id. Finished jobs can be found until retention removes them.")
DELETE_JOB = Endpoint("delete_job", "DELETE /jobs/{id}", ById, Job, Action.WORK, also=NOT_FOUND | UNFINISHED,
    says="Delete a finished job. Returns the deleted job.")
REQUEUE_JOB = Endpoint("requeue_job", "POST /jobs/{id}/requeue", RequeueRequest, Job, Action.OPERATE,
    says="Run a finished job again, with the same or with other arguments. The job keeps its id.",
    also=NOT_FOUND | UNFINISHED, repeat=Repeat.NEVER)

# ---- Shell commands
COMMAND_PROJECTS = Endpoint("command_projects", "GET /commands", Nothing, commands.CommandProjects, Action.SEE,
    says="The projects with commands in groups that the token may access, with their counts.")
COMMAND_STATUS = Endpoint("command_status", "GET /commands/{project}", commands.ProjectRequest, commands.ProjectStatus,
    Action.SEE,
    says="The progress of a project: counts, running lists, a forecast and statistics.")
SUBMIT_COMMANDS = Endpoint("submit_commands", "POST /commands/{project}", commands.SubmitRequest,
    commands.SubmittedCommands, Action.COMMANDS,
    says="Submit commands to a project.",
    also=KEY_REUSED, status=201, repeat=Repeat.BY_KEY)
COMMAND_LISTS = Endpoint("command_lists", "GET /commands/{project}/lists", commands.ListsRequest, commands.ListPage,
    Action.SEE,
    says="The lists of a project: running lists first, then newest first.")
COMMAND_LIST = Endpoint("command_list", "GET /commands/{project}/lists/{task}", commands.ListRequest,
    commands.ListWhole, Action.SEE_PAYLOADS,
    says="A list with its commands, while it is open, running or closed.",
    also=NOT_FOUND)
REOPEN_COMMAND_LIST = Endpoint("reopen_command_list", "POST /commands/{project}/lists/{task}/reopen",
    commands.ReopenRequest, commands.ChangedCommands, Action.COMMANDS,
    says="Reopen a list immediately when its worker is known to be dead. If the worker is alive after all, it can no "
         "longer close the list.",
    also=NOT_FOUND, repeat=Repeat.NEVER)
COMMAND_RESULTS = Endpoint("command_results", "GET /commands/{project}/results", commands.ResultsRequest,
    commands.ResultPage, Action.SEE_PAYLOADS,
    says="Commands that have ended or, with `status`, those with that status, newest first.")
COMMAND = Endpoint("command", "GET /commands/{project}/command/{id}", commands.CommandRequest, commands.CommandWhole,
    Action.SEE_PAYLOADS,
    says="A command, its current status and its previous runs. The id may omit the number of failures.",
    also=NOT_FOUND)
RETRY_COMMANDS = Endpoint("retry_commands", "POST /commands/{project}/retry", commands.RetryRequest,
    commands.ChangedCommands, Action.COMMANDS,
    says="Run finished commands again, as new commands without failures.",
    repeat=Repeat.NEVER)
CANCEL_COMMANDS = Endpoint("cancel_commands", "POST /commands/{project}/cancel", commands.CancelCommandsRequest,
    commands.ChangedCommands, Action.COMMANDS,
    says="Cancel commands that have not ended. A running one is ended by its worker within 2 s; the other commands of "
         "its list go on.")
STASH_COMMANDS = Endpoint("stash_commands", "POST /commands/{project}/stash", commands.IdsRequest,
    commands.ChangedCommands, Action.COMMANDS,
    says="Stash new commands and open lists: workers do not run them until they are unstashed.",
    repeat=Repeat.NEVER)
UNSTASH_COMMANDS = Endpoint("unstash_commands", "POST /commands/{project}/unstash", commands.IdsRequest,
    commands.ChangedCommands, Action.COMMANDS,
    says="Unstash commands and lists, so that workers run them.",
    repeat=Repeat.NEVER)
ARCHIVE_COMMANDS = Endpoint("archive_commands", "POST /commands/{project}/archive", commands.IdsRequest,
    commands.ChangedCommands, Action.COMMANDS,
    says="Move completed commands to the archive.",
    repeat=Repeat.NEVER)

# ---- Schedules
SCHEDULES = Endpoint("schedules", "GET /schedules", Nothing, list[Schedule], Action.SEE_PAYLOADS,
    says="The schedules that add to groups that the token may access, sorted by name.")
SCHEDULE = Endpoint("schedule", "GET /schedules/{name}", ScheduleByName, Schedule, Action.SEE_PAYLOADS,
    says="The schedule with this name. If the token can't access its group, it counts as not found.",
    missing=NO_SCHEDULE)
PUT_SCHEDULE = Endpoint("put_schedule", "PUT /schedules/{name}", ScheduleRequest, Schedule, Action.OPERATE,
    says="Create a schedule, or change the one with this name. A paused schedule stays paused.")
DELETE_SCHEDULE = Endpoint("delete_schedule", "DELETE /schedules/{name}", ScheduleByName, Schedule, Action.OPERATE,
    says="Delete a schedule. Tasks and jobs that it has added are kept. Returns the deleted schedule.",
    missing=NO_SCHEDULE)
PAUSE_SCHEDULE = Endpoint("pause_schedule", "POST /schedules/{name}/pause", ReasonBySchedule, Schedule, Action.OPERATE,
    says="Pause a schedule: it adds nothing until it is resumed. Pausing a paused schedule changes nothing.",
    missing=NO_SCHEDULE)
RESUME_SCHEDULE = Endpoint("resume_schedule", "POST /schedules/{name}/resume", ReasonBySchedule, Schedule,
    Action.OPERATE,
    says="Resume a schedule from now on. Due times during the pause do not count as missed.",
    missing=NO_SCHEDULE)
RUN_SCHEDULE = Endpoint("run_schedule", "POST /schedules/{name}/run", ReasonBySchedule, Task, Action.OPERATE,
    says="Add the schedule's task or job now, even while the schedule is paused. Its due times stay the same. Returns "
         "the new task.",
    missing=NO_SCHEDULE, repeat=Repeat.NEVER)

# ---- What operators do
AUDIT = Endpoint("audit", "GET /audit", AuditFileRequest, AuditPage, Action.OPERATE, media=(JSON, CSV, NDJSON),
    says="Changes that people and tokens with the scope `operate` made, newest first.\n\n"
         "A token restricted to groups sees only changes to individual groups that it allows, not changes to several "
         "groups or to none.")
BULK_PREVIEW: Endpoint[..., Any, bulk.Preview] = Endpoint("bulk_preview", "POST /bulk/preview",
    bulk.BulkPreviewRequest, bulk.Preview, Action.OPERATE,
    says="Count and sample the tasks that a bulk operation would change. Nothing is changed.")
BULK: Endpoint[..., Any, bulk.Operation] = Endpoint("bulk", "POST /bulk", bulk.BulkRequest, bulk.Operation,
    Action.OPERATE,
    says="Start a bulk operation on the tasks of a preview. It runs in the background.\n\n"
         "The request fails if their number has changed by more than 10 tasks and by more than 1 %. A small operation "
         "may already have ended when the response arrives: see its `state`.",
    also=KEY_REUSED, status=202, repeat=Repeat.BY_KEY)
OPERATIONS = Endpoint("operations", "GET /operations", bulk.OperationsRequest, bulk.OperationsPage, Action.OPERATE,
    says="Bulk operations, newest first. A token restricted to some groups sees only its own.")
OPERATION = Endpoint("operation", "GET /operations/{id}", ById, bulk.Operation, Action.OPERATE, also=NOT_FOUND,
    says="A bulk operation: what was requested, its progress, and whether it can be undone.")
OPERATION_ITEMS = Endpoint("operation_items", "GET /operations/{id}/items", bulk.ItemsRequest, bulk.ItemsPage,
    Action.OPERATE,
    says="The outcome for each task of a bulk operation, and why a task was skipped or failed.",
    also=NOT_FOUND)
CANCEL_OPERATION = Endpoint("cancel_operation", "POST /operations/{id}/cancel", ById, bulk.Operation, Action.OPERATE,
    says="Cancel a bulk operation. It first finishes the tasks that it is changing. A finished operation is not "
         "affected.",
    also=NOT_FOUND)
UNDO_OPERATION = Endpoint("undo_operation", "POST /operations/{id}/undo", ReasonById, bulk.Operation, Action.OPERATE,
    says="Undo a bulk operation, except for tasks that have changed since. The undo is itself an operation.",
    also=NOT_FOUND, status=202, repeat=Repeat.NEVER)

# ---- The server
HEALTHZ = Endpoint("healthz", "GET /healthz", Nothing, Health, None, failures={},
    says="The server process is alive. The check does not query the database, because a restart of this process would "
         "not repair it.")
READYZ = Endpoint("readyz", "GET /readyz", Nothing, Health, None, failures={503: FAILURES[503]},
    says="The server process is ready: it can read and write the store, and it is not about to stop. Otherwise the "
         "response says why.")
METRICS = Endpoint("metrics", "GET /metrics", Nothing, bytes, Action.SEE,
    says="Metrics of the server and of each group, for Prometheus: in its text format, or as OpenMetrics.\n\n"
         "A program on the server's own machine needs no token unless the server has a public URL. The token must have "
         "access to all groups.",
    failures=TOKEN_FAILURES, media=("text/plain", "application/openmetrics-text"), is_local=True)
SCHEMA = Endpoint("schema", "GET /schema", Nothing, Tree, None, failures={},
    says="The OpenAPI description of this API.")

# fmt: on
for _row in ENDPOINTS:
    prepare(_row.kind, _row.answer, *filter(None, [_row.or_answer, _row.lines]))
