"""The endpoints of the REST API, a row for each.

The server makes its URLs, its checks of rights and its OpenAPI description from these rows, and both Python clients
make their calls from them. A new endpoint is a row here and a view in `tasks_app/rest_api` that serves it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from .types.bulk import (
    BulkPreviewRequest,
    BulkRequest,
    ItemOutcome,
    ItemsPage,
    Operation,
    OperationsPage,
    OperationState,
    Preview,
)
from .types.command_record import LONGEST_PROJECT, OF_LISTS, CommandStatus
from .types.commands import (
    ChangedCommands,
    CommandLine,
    CommandProjects,
    CommandWhole,
    IdsRequest,
    ImportedCommands,
    ListPage,
    ListWhole,
    ProjectStatus,
    ReopenRequest,
    ResultPage,
    RetryRequest,
    SubmitRequest,
    SubmittedCommands,
)
from .types.groups import ClientStatus, GroupPause, Stats
from .types.history import AUDIT_LENGTH, AuditPage, History
from .types.job_record import JobStatus
from .types.jobs import Job, JobRequest, JobsPage, RequeueRequest
from .types.progress import Progress
from .types.requests import (
    Add,
    Asked,
    ClaimRequest,
    ClientRequest,
    ProgressRequest,
    ReasonRequest,
    TasksRequest,
    UpdateRequest,
)
from .types.scalars import GROUP_LENGTH, Action
from .types.schedules import SCHEDULE_NAME_LENGTH, Schedule, ScheduleRequest
from .types.search import SEARCH_LENGTH, SearchPage
from .types.server import Health
from .types.tasks import Imported, Outcome, Task

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


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the path or of the query. `schema`: its value, in JSON Schema."""

    name: str
    schema: Mapping[str, Any]
    description: str = ""
    has_slashes: bool = False  # In a path: the value may hold `/`, written as is or as %2F.

    @property
    def may_repeat(self) -> bool:
        return self.schema.get("type") == "array"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[T_co]):
    """A method on a path.

    `path` has its parameters in braces; the others of `parameters` belong to the query. `needs`: what the token must
    allow; None if no token is needed. `answer`: the type of the answer, `bytes` for a file; `or_answer`: another type
    that it may have. `body`: the type of the body, of each line if it is NDJSON; None if the request has
    none. `failures`: what each status means if the request fails. `media`: the media types of the answer, the default
    first.
    """

    name: str
    method: str = "GET"
    path: str
    needs: Action | None
    description: str
    parameters: tuple[Parameter, ...] = ()
    status: int = 200
    answer: type[T_co]
    or_answer: Any = None
    failures: Mapping[int, str] = field(default_factory=lambda: FAILURES)
    media: tuple[str, ...] = (JSON,)
    body: type[Asked] | None = None
    body_media: str = JSON
    is_local: bool = False  # Programs on the server's own machine need no token.

    @property
    def path_parameters(self) -> Sequence[Parameter]:
        names = re.findall(r"{(\w+)}", self.path)
        return [each for each in self.parameters if each.name in names]

    @property
    def query_parameters(self) -> Sequence[Parameter]:
        names = re.findall(r"{(\w+)}", self.path)
        return [each for each in self.parameters if each.name not in names]

    def parameter(self, name: str) -> Parameter:
        """Return the parameter of this name. Raises ValueError when there is none."""
        [found] = [each for each in self.parameters if each.name == name]
        return found

    def path_with(self, values: Mapping[str, str | int]) -> str:
        """Return the path with these values for its parameters, percent-encoded. Raises KeyError for other names."""
        if not values:
            return self.path
        safe = {each.name: "/" if each.has_slashes else "" for each in self.path_parameters}
        return self.path.format(**{name: quote(str(value), safe=safe[name]) for name, value in values.items()})


NOT_FOUND = {404: "Not found. For an id that existed, `detail` says how it ended."}
KEY_REUSED = {409: "The idempotency key was used before with another request."}
NOT_HELD = {409: "The task is not leased to this client. `detail` says who holds it."}
UNFINISHED = {409: "The job has not finished. `detail` contains its status."}

TEXT = {"type": "string"}
ID = {"type": "integer", "format": "int64"}
GROUP = {"type": "string", "maxLength": GROUP_LENGTH}
AUDIT_TEXT = {"type": "string", "maxLength": AUDIT_LENGTH}
AUDIT_TIME = "now-1h or 2026-01-31T12:00 (UTC)."
FORMAT = {"type": "string", "enum": ["csv", "ndjson"]}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def _limit(most: int) -> Parameter:
    """Return the parameter for the size of a page."""
    schema = {"type": "integer", "minimum": 1, "maximum": most, "default": 50}
    return Parameter("limit", schema, "The maximum number of entries to return.")


IN_PATH = Parameter("id", ID)
GROUP_IN_PATH = Parameter(
    "name",
    GROUP,
    "The name of the group. It can contain any characters; send `/` as is or as %2F.",
    has_slashes=True,
)
SEARCH_TERMS = {"type": "string", "maxLength": SEARCH_LENGTH}
AFTER = Parameter("after", TEXT, "The `after` of the previous page.")
AFTER_ID = Parameter("after", ID, "The `after` of the previous page.")
LIMIT = _limit(200)

# ---- Groups

GROUPS = Endpoint(
    name="groups",
    path="/groups",
    needs=Action.SEE,
    description="The names of the non-empty groups, sorted.",
    answer=list[str],
)
STATS = Endpoint(
    name="stats",
    path="/stats",
    needs=Action.SEE,
    description="Counts and rates of every non-empty group, sorted by name.",
    answer=Stats,
)
LISTED = (
    Parameter(
        "limit",
        {"type": "integer", "format": "int64", "minimum": 0, "default": 0},
        "How many tasks to return at most; 0 for all.",
    ),
    Parameter(
        "owned",
        {"type": "string", "enum": ["0", "1", "no", "yes", "false", "true"], "default": "no"},
        "Whether to include tasks that are not available.",
    ),
    Parameter(
        "label",
        {"type": "array", "items": TEXT},
        "NAME:VALUE, or NAME for any value: return only tasks with this label, or, if repeated, with all of these "
        "labels.",
    ),
)
GROUP_TASKS = Endpoint(
    name="group",
    path="/group/{name}",
    needs=Action.SEE_PAYLOADS,
    description="The tasks of a group, sorted by the time from which they are available.",
    parameters=(GROUP_IN_PATH, *LISTED),
    answer=list[Task],
)
GROUP_BY_QUERY = Endpoint(
    name="group_by_query",
    path="/group",
    needs=Action.SEE_PAYLOADS,
    description="The tasks of a group, as `/group/{name}` lists them, for any name. Without `name` it lists the "
    "names of the groups, as clients of the original Task Store expect.",
    parameters=(Parameter("name", GROUP), *LISTED),
    answer=list[Task],
    or_answer=list[str],
)
PAUSE = Endpoint(
    name="pause",
    method="POST",
    path="/groups/{name}/pause",
    needs=Action.OPERATE,
    description="Pause a group: it hands out no tasks, but commits continue. Pausing a paused group changes nothing.",
    parameters=(GROUP_IN_PATH,),
    body=ReasonRequest,
    answer=GroupPause,
)
RESUME = Endpoint(
    name="resume",
    method="POST",
    path="/groups/{name}/resume",
    needs=Action.OPERATE,
    description="Resume a paused group. Waiting claims receive its tasks immediately.",
    parameters=(GROUP_IN_PATH,),
    body=ReasonRequest,
    answer=GroupPause,
)

# ---- Tasks

TASK = Endpoint(
    name="task",
    path="/task/{id}",
    needs=Action.SEE_PAYLOADS,
    description="The task with this id.",
    parameters=(IN_PATH,),
    answer=Task,
    failures=FAILURES | NOT_FOUND,
)
TASKS = Endpoint(
    name="tasks",
    path="/tasks/{ids}",
    needs=Action.SEE_PAYLOADS,
    description="The tasks with these ids, in the order of the request. A task that does not exist is null.",
    parameters=(
        Parameter(
            "ids", {"type": "string", "pattern": "^-?[0-9]{1,19}(,-?[0-9]{1,19})*$"}, "Ids, separated by commas."
        ),
    ),
    answer=list[Task | None],
)
TASKS_BY_BODY = Endpoint(
    name="tasks_by_body",
    method="POST",
    path="/tasks",
    needs=Action.SEE_PAYLOADS,
    description="The tasks with these ids, as `GET /tasks/{ids}` returns them, for more ids than fit into a URL.",
    body=TasksRequest,
    answer=list[Task | None],
)
HISTORY = Endpoint(
    name="history",
    path="/history/{id}",
    needs=Action.SEE,
    description="The history of an id, whether its task still exists or not.",
    parameters=(IN_PATH,),
    answer=History,
    failures=FAILURES | NOT_FOUND,
)
SEARCH = Endpoint(
    name="search",
    path="/search",
    needs=Action.SEE_PAYLOADS,
    description='Search for tasks: `group:mail state:failed error:"timed out" -owner:17 data.user:42 age:>1h`.\n\n'
    "Within one group, the tasks that have been available longest come first; otherwise, the newest tasks come first. "
    "A search stops after one second: `complete` is then false, and `after` continues it.",
    parameters=(
        Parameter("q", SEARCH_TERMS, "Search terms. A task must match all of them."),
        AFTER,
        LIMIT,
    ),
    answer=SearchPage,
)
EXPORT = Endpoint(
    name="export",
    path="/export",
    needs=Action.SEE_PAYLOADS,
    description="All tasks that match a search, as a file: NDJSON with a task per line, which `/import` reads, or "
    "CSV.\n\n"
    "The export has no time limit. It omits tasks added in the meantime. A task that is replaced during the export "
    "may appear twice, with the same `origin`, or not at all. If the export fails, the response ends without its "
    "last HTTP chunk, which clients report as an error.",
    parameters=(
        Parameter("q", SEARCH_TERMS, "As for `/search`; without it, every task."),
        Parameter("format", FORMAT | {"default": "ndjson"}),
    ),
    answer=bytes,
    media=(NDJSON, CSV),
)

# ---- What workers do

UPDATE = Endpoint(
    name="update",
    method="POST",
    path="/update",
    needs=Action.WORK,
    description="Add, replace and delete tasks: all changes are made, or none, and `error` gives the reasons.",
    body=UpdateRequest,
    answer=Outcome,
)
CLAIM = Endpoint(
    name="claim",
    method="POST",
    path="/claim",
    needs=Action.WORK,
    description="Claim available tasks. Each is replaced by a successor that is leased to the client.",
    body=ClaimRequest,
    answer=Outcome,
)
IMPORT = Endpoint(
    name="import",
    method="POST",
    path="/import",
    needs=Action.WORK,
    description="Add the tasks of an NDJSON file: all of them in one commit, or none.\n\n"
    "Each line is an add as for `/update`. Fields that only the server sets are ignored, so a file from `/export` can "
    "be sent unchanged. `errors` names the first wrong lines and their fields.",
    parameters=(Parameter("group", GROUP, "Add all tasks to this group, regardless of the group in each line."),),
    body=Add,
    answer=Imported,
    body_media=NDJSON,
)
HEARTBEAT = Endpoint(
    name="heartbeat",
    method="PUT",
    path="/clients/{clientid}",
    needs=Action.WORK,
    description="Send a heartbeat: report that a worker is alive, and describe it. It replaces the previous report.",
    parameters=(Parameter("clientid", ID),),
    body=ClientRequest,
    answer=ClientStatus,
)
PROGRESS = Endpoint(
    name="progress",
    method="PUT",
    path="/progress/{id}",
    needs=Action.WORK,
    description="Report the progress of a leased task. Only the client that holds the task can.\n\n"
    "`id` can be any id of its chain. The store keeps the last report of each second; a crash may lose it. A report "
    "does not create a successor. The task, job or command shows it as `progress` until the lease ends.",
    parameters=(IN_PATH,),
    body=ProgressRequest,
    answer=Progress,
    failures=FAILURES | NOT_FOUND | NOT_HELD,
)
CLIENTS = Endpoint(
    name="clients",
    path="/clients",
    needs=Action.SEE,
    description="The workers that sent a heartbeat within the last day, most recent first.",
    answer=list[ClientStatus],
)

# ---- Jobs

JOB_IN_PATH = Parameter("id", ID, "The first id of its task.")

JOBS = Endpoint(
    name="jobs",
    path="/jobs",
    needs=Action.SEE_PAYLOADS,
    description="Jobs, sorted by due or end time, latest first.",
    parameters=(
        Parameter("queue", TEXT, "Only jobs of this queue."),
        Parameter("status", _one_of(*JobStatus), "Only jobs with this status."),
        Parameter("function", TEXT, "Only jobs of this function: its full dotted path."),
        Parameter("after", TEXT, "The `after` of the previous page, or the `place` of a job."),
        LIMIT,
    ),
    answer=JobsPage,
)
ENQUEUE = Endpoint(
    name="enqueue",
    method="POST",
    path="/jobs",
    needs=Action.WORK,
    description="Add a job.",
    body=JobRequest,
    answer=Job,
    failures=FAILURES | KEY_REUSED,
)
JOB = Endpoint(
    name="job",
    path="/jobs/{id}",
    needs=Action.SEE_PAYLOADS,
    description="The job with this id. Finished jobs can be found until retention removes them.",
    parameters=(JOB_IN_PATH,),
    answer=Job,
    failures=FAILURES | NOT_FOUND,
)
DELETE_JOB = Endpoint(
    name="delete_job",
    method="DELETE",
    path="/jobs/{id}",
    needs=Action.WORK,
    description="Delete a finished job. Returns the deleted job.",
    parameters=(JOB_IN_PATH,),
    answer=Job,
    failures=FAILURES | NOT_FOUND | UNFINISHED,
)
REQUEUE_JOB = Endpoint(
    name="requeue_job",
    method="POST",
    path="/jobs/{id}/requeue",
    needs=Action.OPERATE,
    description="Run a finished job again, with the same or with other arguments. The job keeps its id.",
    parameters=(JOB_IN_PATH,),
    body=RequeueRequest,
    answer=Job,
    failures=FAILURES | NOT_FOUND | UNFINISHED,
)

# ---- Shell commands

PROJECT = Parameter("project", {"type": "string", "maxLength": LONGEST_PROJECT}, "The project's name, without `/`.")
LIST = Parameter("task", ID, "The id of the list's task, or the first id that it had.")
PAGED = (Parameter("after", TEXT, "The `after` of the previous page, or the `place` of an entry."), LIMIT)

COMMAND_PROJECTS = Endpoint(
    name="command_projects",
    path="/commands",
    needs=Action.SEE,
    description="The projects with commands in groups that the token may access, with their counts.",
    answer=CommandProjects,
)
COMMAND_STATUS = Endpoint(
    name="command_status",
    path="/commands/{project}",
    needs=Action.SEE,
    description="The progress of a project: counts, running lists, a forecast and statistics.",
    parameters=(PROJECT,),
    answer=ProjectStatus,
)
SUBMIT_COMMANDS = Endpoint(
    name="submit_commands",
    method="POST",
    path="/commands/{project}",
    needs=Action.COMMANDS,
    description="Submit commands to a project.",
    parameters=(PROJECT,),
    body=SubmitRequest,
    answer=SubmittedCommands,
    failures=FAILURES | KEY_REUSED,
    status=201,
)
COMMAND_LISTS = Endpoint(
    name="command_lists",
    path="/commands/{project}/lists",
    needs=Action.SEE,
    description="The lists of a project: running lists first, then newest first.",
    parameters=(PROJECT, Parameter("status", _one_of(*sorted(OF_LISTS)), "Only lists with this status."), *PAGED),
    answer=ListPage,
)
COMMAND_LIST = Endpoint(
    name="command_list",
    path="/commands/{project}/lists/{task}",
    needs=Action.SEE_PAYLOADS,
    description="A list with its commands, while it is open, running or closed.",
    parameters=(PROJECT, LIST),
    answer=ListWhole,
    failures=FAILURES | NOT_FOUND,
)
REOPEN_COMMAND_LIST = Endpoint(
    name="reopen_command_list",
    method="POST",
    path="/commands/{project}/lists/{task}/reopen",
    needs=Action.COMMANDS,
    description="Reopen a list immediately when its worker is known to be dead. If the worker is alive after all, it "
    "can no longer close the list.",
    parameters=(PROJECT, LIST),
    body=ReopenRequest,
    answer=ChangedCommands,
    failures=FAILURES | NOT_FOUND,
)
COMMAND_RESULTS = Endpoint(
    name="command_results",
    path="/commands/{project}/results",
    needs=Action.SEE_PAYLOADS,
    description="Commands that have ended or, with `status`, those with that status, newest first.",
    parameters=(
        PROJECT,
        Parameter("status", _one_of(*sorted(set(CommandStatus) - OF_LISTS)), "Only commands with this status."),
        Parameter("text", TEXT, "Only commands with this text in the id, the line, the worker or the outputs."),
        *PAGED,
    ),
    answer=ResultPage,
)
COMMAND = Endpoint(
    name="command",
    path="/commands/{project}/command/{id}",
    needs=Action.SEE_PAYLOADS,
    description="A command, its current status and its previous runs. The id may omit the number of failures.",
    parameters=(PROJECT, Parameter("id", TEXT, "The command's id.")),
    answer=CommandWhole,
    failures=FAILURES | NOT_FOUND,
)
RETRY_COMMANDS = Endpoint(
    name="retry_commands",
    method="POST",
    path="/commands/{project}/retry",
    needs=Action.COMMANDS,
    description="Run finished commands again, as new commands without failures.",
    parameters=(PROJECT,),
    body=RetryRequest,
    answer=ChangedCommands,
)
STASH_COMMANDS = Endpoint(
    name="stash_commands",
    method="POST",
    path="/commands/{project}/stash",
    needs=Action.COMMANDS,
    description="Stash new commands and open lists: workers do not run them until they are unstashed.",
    parameters=(PROJECT,),
    body=IdsRequest,
    answer=ChangedCommands,
)
UNSTASH_COMMANDS = Endpoint(
    name="unstash_commands",
    method="POST",
    path="/commands/{project}/unstash",
    needs=Action.COMMANDS,
    description="Unstash commands and lists, so that workers run them.",
    parameters=(PROJECT,),
    body=IdsRequest,
    answer=ChangedCommands,
)
ARCHIVE_COMMANDS = Endpoint(
    name="archive_commands",
    method="POST",
    path="/commands/{project}/archive",
    needs=Action.COMMANDS,
    description="Move completed commands to the archive.",
    parameters=(PROJECT,),
    body=IdsRequest,
    answer=ChangedCommands,
)
EXPORT_COMMANDS = Endpoint(
    name="export_commands",
    path="/commands/{project}/export",
    needs=Action.SEE_PAYLOADS,
    description="A snapshot of a project: one line of JSON for each command and each list, in the format of the "
    "import.",
    parameters=(PROJECT,),
    answer=bytes,
    media=(NDJSON,),
)
IMPORT_COMMANDS = Endpoint(
    name="import_commands",
    method="POST",
    path="/commands/{project}/import",
    needs=Action.COMMANDS,
    description="Add commands and lists from an export: all of them in one commit, or none.\n\n"
    "Commands that a previous import added stay unchanged, so you can send the same lines again. The import fails "
    "if a different command has the same id. Lists that were running become open.",
    parameters=(PROJECT,),
    body=CommandLine,
    answer=ImportedCommands,
    body_media=NDJSON,
)

# ---- Schedules

SCHEDULE_IN_PATH = Parameter("name", {"type": "string", "maxLength": SCHEDULE_NAME_LENGTH}, "The schedule's name.")

SCHEDULES = Endpoint(
    name="schedules",
    path="/schedules",
    needs=Action.SEE_PAYLOADS,
    description="The schedules that add to groups that the token may access, sorted by name.",
    answer=list[Schedule],
)
SCHEDULE = Endpoint(
    name="schedule",
    path="/schedules/{name}",
    needs=Action.SEE_PAYLOADS,
    description="The schedule with this name. If the token can't access its group, it counts as not found.",
    parameters=(SCHEDULE_IN_PATH,),
    answer=Schedule,
    failures=FAILURES | NOT_FOUND,
)
PUT_SCHEDULE = Endpoint(
    name="put_schedule",
    method="PUT",
    path="/schedules/{name}",
    needs=Action.OPERATE,
    description="Create a schedule, or change the one with this name. A paused schedule stays paused.",
    parameters=(SCHEDULE_IN_PATH,),
    body=ScheduleRequest,
    answer=Schedule,
)
DELETE_SCHEDULE = Endpoint(
    name="delete_schedule",
    method="DELETE",
    path="/schedules/{name}",
    needs=Action.OPERATE,
    description="Delete a schedule. Tasks and jobs that it has added are kept. Returns the deleted schedule.",
    parameters=(SCHEDULE_IN_PATH,),
    answer=Schedule,
    failures=FAILURES | NOT_FOUND,
)
PAUSE_SCHEDULE = Endpoint(
    name="pause_schedule",
    method="POST",
    path="/schedules/{name}/pause",
    needs=Action.OPERATE,
    description="Pause a schedule: it adds nothing until it is resumed. Pausing a paused schedule changes nothing.",
    parameters=(SCHEDULE_IN_PATH,),
    body=ReasonRequest,
    answer=Schedule,
    failures=FAILURES | NOT_FOUND,
)
RESUME_SCHEDULE = Endpoint(
    name="resume_schedule",
    method="POST",
    path="/schedules/{name}/resume",
    needs=Action.OPERATE,
    description="Resume a schedule from now on. Due times during the pause do not count as missed.",
    parameters=(SCHEDULE_IN_PATH,),
    body=ReasonRequest,
    answer=Schedule,
    failures=FAILURES | NOT_FOUND,
)
RUN_SCHEDULE = Endpoint(
    name="run_schedule",
    method="POST",
    path="/schedules/{name}/run",
    needs=Action.OPERATE,
    description="Add the schedule's task or job now, even while the schedule is paused. Its due times stay the same. "
    "Returns the new task.",
    parameters=(SCHEDULE_IN_PATH,),
    body=ReasonRequest,
    answer=Task,
    failures=FAILURES | NOT_FOUND,
)

# ---- What operators do

AUDIT = Endpoint(
    name="audit",
    path="/audit",
    needs=Action.OPERATE,
    description="Changes that people and tokens with the scope `operate` made, newest first.\n\n"
    "A token restricted to groups sees only changes to individual groups that it allows, not changes to several "
    "groups or to none.",
    parameters=(
        Parameter("by", AUDIT_TEXT, "A user's name, or `token:` and the name of a token."),
        Parameter("action", AUDIT_TEXT, "requeue, move, purge, edit, pause, create token, ..."),
        Parameter("group", {"type": "string", "maxLength": GROUP_LENGTH + 1}, "A name, or a prefix followed by *."),
        Parameter("since", TEXT, f"Only changes at or after this time: {AUDIT_TIME}"),
        Parameter("until", TEXT, f"Only changes before this time: {AUDIT_TIME}"),
        Parameter("reason", AUDIT_TEXT, "Part of the reason, ignoring case."),
        Parameter("after", TEXT, "The `after` of the previous page. Ignored with `format`."),
        _limit(1_000),
        Parameter("format", FORMAT, "Return all entries as a file instead of a page of JSON."),
    ),
    answer=AuditPage,
    media=(JSON, CSV, NDJSON),
)
BULK_PREVIEW = Endpoint(
    name="bulk_preview",
    method="POST",
    path="/bulk/preview",
    needs=Action.OPERATE,
    description="Count and sample the tasks that a bulk operation would change. Nothing is changed.",
    body=BulkPreviewRequest,
    answer=Preview,
)
BULK = Endpoint(
    name="bulk",
    method="POST",
    path="/bulk",
    needs=Action.OPERATE,
    description="Start a bulk operation on the tasks of a preview. It runs in the background.\n\n"
    "The request fails if their number has changed by more than 10 tasks and by more than 1 %. A small operation may "
    "already have ended when the response arrives: see its `state`.",
    body=BulkRequest,
    answer=Operation,
    failures=FAILURES | KEY_REUSED,
    status=202,
)
OPERATIONS = Endpoint(
    name="operations",
    path="/operations",
    needs=Action.OPERATE,
    description="Bulk operations, newest first. A token restricted to some groups sees only its own.",
    parameters=(
        Parameter(
            "state",
            _one_of(*OperationState),
            "Only operations in this state.",
        ),
        AFTER_ID,
        LIMIT,
    ),
    answer=OperationsPage,
)
OPERATION = Endpoint(
    name="operation",
    path="/operations/{id}",
    needs=Action.OPERATE,
    description="A bulk operation: what was requested, its progress, and whether it can be undone.",
    parameters=(IN_PATH,),
    answer=Operation,
    failures=FAILURES | NOT_FOUND,
)
OPERATION_ITEMS = Endpoint(
    name="operation_items",
    path="/operations/{id}/items",
    needs=Action.OPERATE,
    description="The outcome for each task of a bulk operation, and why a task was skipped or failed.",
    parameters=(
        IN_PATH,
        Parameter("outcome", _one_of(*ItemOutcome), "Only tasks with this outcome."),
        AFTER_ID,
        LIMIT,
    ),
    answer=ItemsPage,
    failures=FAILURES | NOT_FOUND,
)
CANCEL_OPERATION = Endpoint(
    name="cancel_operation",
    method="POST",
    path="/operations/{id}/cancel",
    needs=Action.OPERATE,
    description="Cancel a bulk operation. It first finishes the tasks that it is changing. A finished operation is not "
    "affected.",
    parameters=(IN_PATH,),
    answer=Operation,
    failures=FAILURES | NOT_FOUND,
)
UNDO_OPERATION = Endpoint(
    name="undo_operation",
    method="POST",
    path="/operations/{id}/undo",
    needs=Action.OPERATE,
    description="Undo a bulk operation, except for tasks that have changed since. The undo is itself an operation.",
    parameters=(IN_PATH,),
    body=ReasonRequest,
    answer=Operation,
    failures=FAILURES | NOT_FOUND,
    status=202,
)

# ---- The server

HEALTHZ = Endpoint(
    name="healthz",
    path="/healthz",
    needs=None,
    description="The server process is alive. The check does not query the database, because a restart of this "
    "process would not repair it.",
    answer=Health,
    failures={},
)
READYZ = Endpoint(
    name="readyz",
    path="/readyz",
    needs=None,
    description="The server process is ready: it can read and write the store, and it is not about to stop. "
    "Otherwise the response says why.",
    answer=Health,
    failures={503: FAILURES[503]},
)
METRICS = Endpoint(
    name="metrics",
    path="/metrics",
    needs=Action.SEE,
    description="Metrics of the server and of each group, for Prometheus: in its text format, or as OpenMetrics.\n\n"
    "A program on the server's own machine needs no token unless the server has a public URL. The token must have "
    "access to all groups.",
    answer=bytes,
    failures=TOKEN_FAILURES,
    media=("text/plain", "application/openmetrics-text"),
    is_local=True,
)
SCHEMA = Endpoint(
    name="schema",
    path="/schema",
    needs=None,
    description="The OpenAPI description of this API.",
    answer=Tree,
    failures={},
)

ENDPOINTS: tuple[Endpoint[Any], ...] = tuple(each for each in list(globals().values()) if isinstance(each, Endpoint))
