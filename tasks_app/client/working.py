"""The calls of workers: claim, commit, and what is made of commits."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..operations import Change, NewTask, Order
from .answers import Heard, Imported, Task
from .calls import Call, as_json, encoded, new_key
from .wire import add_on_the_wire, commit_on_the_wire, tasks_of

NDJSON_LINE_END = b"\n"


@dataclass(frozen=True, slots=True)
class Working:
    """`id`: in whose name they are."""

    id: int

    def claim(
        self,
        groups: str | Iterable[str],
        *,
        duration_ms: int = 60_000,
        limit: int = 1,
        wait_ms: int = 0,
        order: Order | str = Order.RANDOM,
        depends: Iterable[int] = (),
    ) -> Call[list[Task]]:
        """Take up to `limit` available tasks: nobody else gets them for so long. Empty: there is none.

        With several groups: of any of them, higher priority first. With `wait_ms` it waits for so long, however
        long that is, until there is one. Raises CommitRefused when a task of `depends` is gone.
        """
        body = {
            "clientid": self.id,
            **({"group": groups} if isinstance(groups, str) else {"groups": list(groups)}),
            "duration": duration_ms,
            "limit": limit,
            "order": order,
            "depends": list(depends),
        }
        return Call(
            method="POST",
            path="/claim",
            body=body,
            read=as_json(tasks_of),
            key=new_key(),
            may_happen_twice=True,
            wait_ms=max(0, wait_ms),
        )

    def commit(
        self,
        *,
        adds: Iterable[NewTask] = (),
        updates: Iterable[Change] = (),
        deletes: Iterable[int] = (),
        depends: Iterable[int] = (),
        client_id: int | None = None,
    ) -> Call[list[Task]]:
        """All of this or nothing. Returns the new tasks: adds, then updates.

        Raises CommitRefused, whose `refusal` says which ids are gone or another's. `client_id`: in whose name, if
        not in that of this process.
        """
        owner = self.id if client_id is None else client_id
        body = commit_on_the_wire(owner, adds, updates, deletes, depends)
        return Call(method="POST", path="/update", body=body, read=as_json(tasks_of), key=new_key())

    def add(
        self,
        group: str,
        data: bytes | str = b"",
        *,
        data_type: str = "",
        timespec_ms: int = 0,
        error: str = "",
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
    ) -> Call[Task]:
        """Add a task. `timespec_ms`: 0: now; negative: that long from now; positive: that very time."""
        new = NewTask(
            group=group,
            data=data.encode() if isinstance(data, str) else data,
            data_type=data_type,
            timespec_ms=timespec_ms,
            error=error,
            labels=labels or {},
            priority=priority,
        )
        return self._one(adds=[new])

    def renew(self, task: Task, duration_ms: int) -> Call[Task]:
        """Hold the task for so long from now. Raises CommitRefused when it is another's by now."""
        change = Change(id=task.id, timespec_ms=-max(0, duration_ms), keep_data=True, keep_error=True)
        return self._one(updates=[change])

    def release(self, task: Task, at_ms: int = 0, error: str = "") -> Call[Task]:
        """Give the task back as it is: to be claimed at once, or from a time on. Raises CommitRefused."""
        stays = error == task.error  # Then the data need not be sent again.
        change = Change(
            id=task.id,
            data=b"" if stays else task.data,
            data_type="" if stays else task.data_type,
            timespec_ms=at_ms,
            error=error,
            keep_data=stays,
            keep_error=stays,
            release=True,
        )
        return self._one(updates=[change])

    def move(self, task: Task, group: str, data: bytes | str | None = None, error: str = "") -> Call[Task]:
        """Put the task into another group, with its labels, priority and trail, and with other data if given.

        Raises CommitRefused.
        """
        new = NewTask(
            id=task.id,
            group=group,
            data=task.data if data is None else data.encode() if isinstance(data, str) else data,
            data_type=task.data_type if data is None else "",
            error=error,
            labels=task.labels,
            priority=task.priority,
        )
        return self._one(adds=[new], deletes=[task.id])

    def delete(self, *tasks: Task | int) -> Call[None]:
        """Delete the tasks, or those of these ids: all or none. Raises CommitRefused."""
        ids = [task.id if isinstance(task, Task) else task for task in tasks]
        body = commit_on_the_wire(self.id, (), (), ids, ())
        return Call(method="POST", path="/update", body=body, read=as_json(_nothing), key=new_key())

    def import_tasks(self, lines: bytes | str | Iterable[NewTask], group: str = "") -> Call[Imported]:
        """Add all tasks, or none: those of a file in NDJSON, as `export_tasks` writes it, or new ones.

        `group`: where all of them go, whatever the lines say.
        """
        query = {"group": group} if group else {}
        return Call(
            method="POST",
            path="/import",
            query=query,
            body=_as_lines(lines),
            read=as_json(Imported.of),
            key=new_key(),
        )

    def heartbeat(
        self,
        name: str = "",
        *,
        host: str | None = None,
        pid: int | None = None,
        groups: Iterable[str] = (),
        version: str = "",
        info: Mapping[str, Any] | None = None,
    ) -> Call[Heard]:
        """Say that this worker is alive and what it is. Say it every few seconds: after 30 it counts as late."""
        body = {
            "name": name,
            "host": socket.gethostname() if host is None else host,
            "pid": os.getpid() if pid is None else pid,
            "groups": list(groups),
            "version": version,
            "info": dict(info or {}),
        }
        return Call(method="PUT", path=f"/clients/{self.id}", body=body, read=as_json(Heard.of))

    def _one(
        self, adds: Iterable[NewTask] = (), updates: Iterable[Change] = (), deletes: Iterable[int] = ()
    ) -> Call[Task]:
        body = commit_on_the_wire(self.id, adds, updates, deletes, ())
        return Call(method="POST", path="/update", body=body, read=as_json(_only), key=new_key())


def _only(outcome: Mapping[str, Any]) -> Task:
    [task] = tasks_of(outcome)
    return task


def _nothing(outcome: Mapping[str, Any]) -> None:
    tasks_of(outcome)


def _as_lines(lines: bytes | str | Iterable[NewTask]) -> bytes:
    if isinstance(lines, bytes):
        return lines
    if isinstance(lines, str):
        return lines.encode()
    return NDJSON_LINE_END.join(encoded(add_on_the_wire(line)) for line in lines)
