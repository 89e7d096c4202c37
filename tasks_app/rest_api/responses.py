"""What is answered, as types (contract.md sections 3 to 5)."""

from __future__ import annotations

import json
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from taskstore.types.tasks import Ending, Refusal

from ..models import AuditEntry, EndedTask, PausedGroup, Task
from ..reading.audit import words_of
from ..reading.clients import Seen
from ..reading.counts import Stats
from ..reading.history import Chain
from ..wire.scalars import Ids, Int64
from ..wire.tasks import TaskAnswer


class SearchAnswer(Struct, frozen=True, kw_only=True):
    """Tasks that meet every term of a search."""

    tasks: tuple[TaskAnswer, ...]
    after: Annotated[str | None, Meta(description="Send it as `after` to go on; null: there are no more.")]
    complete: Annotated[bool, Meta(description="false: the time limit came before the page was full; go on.")]
    looked_at: Annotated[int, Meta(description="How many tasks were looked at, at least.")]
    at: Annotated[int, Meta(description="The time of the search; milliseconds since the Epoch.")]


class Refused(Struct, frozen=True, kw_only=True):
    """Why nothing was changed: every reason, not the first."""

    changes: Annotated[Ids, Meta(description="Not there to be updated.")]
    deletes: Annotated[Ids, Meta(description="Not there to be deleted.")]
    depends: Annotated[Ids, Meta(description="Not there.")]
    owned: Annotated[Ids, Meta(description="Not yet available, and another client's.")]
    bugs: Annotated[tuple[str, ...], Meta(description="What makes no sense.")]

    @classmethod
    def of(cls, refusal: Refusal) -> Refused:
        return cls(
            changes=refusal.changes,
            deletes=refusal.deletes,
            depends=refusal.depends,
            owned=refusal.owned,
            bugs=refusal.bugs,
        )


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of an update or a claim: the new tasks, or why nothing was changed."""

    tasks: tuple[TaskAnswer, ...] = ()
    error: Refused | None = None


class ImportAnswer(Struct, frozen=True, kw_only=True):
    """What an import has added."""

    imported: Annotated[int, Meta(description="How many tasks.")]
    ids: Annotated[Ids, Meta(description="Of the new tasks, in the order of the lines.")]


class Problems(Struct, frozen=True, kw_only=True):
    """The request is not what is written here: what would be right, by the path of the field."""

    detail: str
    errors: dict[str, list[str]]


class Failure(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    detail: str
    code: str | UnsetType = UNSET


class Step(Struct, frozen=True, kw_only=True):
    """A task under one of its ids, and what became of that."""

    id: Int64
    group: str
    timespec: int
    ownerid: Int64
    error: str
    priority: int
    claims: int
    made: Annotated[int, Meta(description="When this id was made.")]
    made_by_commit: Int64
    ended: Annotated[End | None, Meta(description="null: it is still there.")]

    @classmethod
    def of(cls, task: Task | EndedTask) -> Step:
        return cls(
            id=task.id,
            group=task.group,
            timespec=task.available_at_ms,
            ownerid=task.owner,
            error=task.error,
            priority=task.priority,
            claims=task.claims,
            made=task.made_at_ms,
            made_by_commit=task.made_by_commit,
            ended=End.of(task) if isinstance(task, EndedTask) else None,
        )


class End(Struct, frozen=True, kw_only=True):
    """What became of an id that is no longer there."""

    at: int
    commit: Annotated[Int64, Meta(description="The commit that ended it.")]
    clientid: Annotated[Int64, Meta(description="Whose commit or claim it was.")]
    how: Ending
    successor: Annotated[
        Int64 | None, Meta(description="null: it ended without one. A step that follows was brought back by an undo.")
    ]
    operator: Annotated[str, Meta(description="Empty: a worker did it.")]
    reason: str

    @classmethod
    def of(cls, ended: EndedTask) -> End:
        return cls(
            at=ended.ended_at_ms,
            commit=ended.ended_by_commit,
            clientid=ended.ended_by,
            how=Ending(ended.ending),
            successor=ended.successor,
            operator=ended.operator,
            reason=ended.reason,
        )


class HistoryAnswer(Struct, frozen=True, kw_only=True):
    """A task under the ids that it had, the oldest first; those whose history was reduced or pruned are left out."""

    id: Annotated[Int64, Meta(description="The id that was asked for.")]
    origin: Int64
    created: Annotated[int, Meta(description="When the first task of the chain was added.")]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, task_id: int, chain: Chain) -> HistoryAnswer:
        entries: list[Task | EndedTask] = [*chain.ended]
        if chain.living:
            entries.append(chain.living)
        return cls(
            id=task_id,
            origin=chain.origin,
            created=entries[0].created_at_ms,
            steps=tuple(map(Step.of, entries)),
        )


class GroupStats(Struct, frozen=True, kw_only=True):
    """A group in numbers."""

    group: str
    ready: Annotated[int, Meta(description="Available, and not claimed since.")]
    claimed: Annotated[int, Meta(description="Leased now.")]
    expired: Annotated[int, Meta(description="The lease ran out, and nobody has claimed it since.")]
    scheduled: Annotated[int, Meta(description="Not yet available, and not leased.")]
    failed: Annotated[int, Meta(description="With an error; counted beside the others, not instead.")]
    oldest_ready: Annotated[
        int | None, Meta(description="For how long the oldest ready task has been ready, in ms; null: there is none.")
    ]
    in_per_minute: Annotated[float, Meta(description="Tasks that entered the group within the last minute.")]
    out_per_minute: Annotated[float, Meta(description="Tasks that left it. Claims, renewals, edits: neither.")]
    paused: Annotated[bool, Meta(description="Claims find nothing in it for now.")]
    finished: Annotated[
        int | UnsetType,
        Meta(description="Jobs and commands that have ended: they are not ready. Absent where none are."),
    ] = UNSET

    @classmethod
    def of(cls, group: str, stats: Stats) -> GroupStats:
        return cls(
            group=group,
            ready=stats.counts.ready,
            claimed=stats.counts.claimed,
            expired=stats.counts.expired,
            scheduled=stats.counts.scheduled,
            failed=stats.counts.failed,
            oldest_ready=stats.oldest_ready_ms,
            in_per_minute=round(stats.in_per_minute, 1),
            out_per_minute=round(stats.out_per_minute, 1),
            paused=stats.is_paused,
            finished=stats.counts.finished or UNSET,
        )


class StatsAnswer(Struct, frozen=True, kw_only=True):
    """Every group that holds a task, sorted by name."""

    at: Annotated[int, Meta(description="The time of the numbers; milliseconds since the Epoch.")]
    groups: tuple[GroupStats, ...]


class PauseAnswer(Struct, frozen=True, kw_only=True):
    """Whether claims find what is in a group."""

    group: str
    paused: Annotated[Pause | None, Meta(description="null: it is not paused.")] = None

    @classmethod
    def of(cls, paused: PausedGroup) -> PauseAnswer:
        return cls(group=paused.group, paused=Pause(by=paused.by, at=paused.at_ms, reason=paused.reason))


class Pause(Struct, frozen=True, kw_only=True):
    """Who paused a group, when and why."""

    by: Annotated[str, Meta(description="A user, or a token.")]
    at: Annotated[int, Meta(description="Milliseconds since the Epoch.")]
    reason: str


class ClientAnswer(Struct, frozen=True, kw_only=True):
    """What a worker said of itself with its last heartbeat."""

    clientid: Int64
    name: str
    host: str
    pid: int | None
    groups: Annotated[list[str], Meta(description="Those that the token may touch.")]
    version: str
    info: dict[str, Any]
    seen: Annotated[int, Meta(description="When, in milliseconds since the Epoch.")]
    age: Annotated[int, Meta(description="How long ago by the server's clock, in milliseconds.")]
    done_per_minute: Annotated[
        float | UnsetType,
        Meta(
            description="Tasks that it was done with, over the last ten full minutes, in every group. Done: it ended "
            "its lease by an update that did not give the task back. Only in the list."
        ),
    ] = UNSET

    @classmethod
    def of(cls, seen: Seen, done_per_minute: float | UnsetType = UNSET) -> ClientAnswer:
        client = seen.client
        return cls(
            clientid=client.id,
            name=client.name,
            host=client.host,
            pid=client.pid,
            groups=seen.groups,
            version=client.version,
            info=json.loads(client.info),
            seen=client.seen_at_ms,
            age=seen.age_ms,
            done_per_minute=done_per_minute,
        )


class Health(Struct, frozen=True, kw_only=True):
    """The server process lives."""

    status: str = "ok"
    instance: Annotated[str, Meta(description="Another one after each start, and in each process.")]


class AuditEntryAnswer(Struct, frozen=True, kw_only=True):
    """A change that a person or an operating token made."""

    id: Int64
    at: Annotated[int, Meta(description="Milliseconds since the Epoch.")]
    by: Annotated[
        str, Meta(description="A user's name, or `token:` or `node:` and that of one; `unknown:` and what was typed.")
    ]
    action: str
    group: Annotated[str, Meta(description="Empty: several groups, or none.")]
    selection: Annotated[str, Meta(description="What was meant, in words.")]
    reason: str
    done: Annotated[int, Meta(description="How many were changed.")]
    skipped: Annotated[int, Meta(description="How many were left alone; `details` says why.")]
    duration: Annotated[int, Meta(description="In milliseconds.")]
    details: dict[str, Any]

    @classmethod
    def of(cls, entry: AuditEntry) -> AuditEntryAnswer:
        return cls(**words_of(entry))


class AuditAnswer(Struct, frozen=True, kw_only=True):
    """Entries of the audit, the newest first."""

    entries: tuple[AuditEntryAnswer, ...]
    after: Annotated[str | None, Meta(description="Send it as `after` to go on; null: there are no more.")]
