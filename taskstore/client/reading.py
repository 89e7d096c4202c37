"""Read-only calls, and the parser of a streamed list of tasks."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from .. import endpoints
from ..types.groups import ClientStatus, Stats
from ..types.history import AuditPage, History
from ..types.requests import TasksRequest
from ..types.search import SearchPage
from ..types.server import Health
from ..types.tasks import Task
from .calls import Call, given, verb
from .errors import UnexpectedAnswer

SEPARATORS = "[,] \n\r\t"


class Reading:
    @verb
    def task(self, id: int) -> Call[Task | None]:
        """Return the task with this id, or None if it does not exist. `history` shows how an id ended."""
        return Call.of(endpoints.TASK, path={"id": id}, may_be_missing=True)

    @verb
    def tasks(self, ids: Iterable[int]) -> Call[list[Task | None]]:
        """Return the tasks with these ids in the same order, with None for each id that does not exist."""
        return Call.of(endpoints.TASKS_BY_BODY, body=TasksRequest(ids=tuple(ids)))

    @verb
    def groups(self) -> Call[list[str]]:
        """Return the sorted names of the groups that contain at least one task."""
        return Call.of(endpoints.GROUPS)

    @verb
    def stats(self) -> Call[Stats]:
        """Return the counts and rates of every group that contains a task."""
        return Call.of(endpoints.STATS)

    @verb
    def history(self, id: int) -> Call[History | None]:
        """Return the history of a task by any id it ever had, or None if the id is unknown or its history expired."""
        return Call.of(endpoints.HISTORY, path={"id": id}, may_be_missing=True)

    @verb
    def search(self, query: str = "", *, after: str | None = None, limit: int = 50) -> Call[SearchPage]:
        """Return a page of the tasks that match every term, such as `group:mail state:failed error:"timed out"`.

        `after`: the `after` of the previous page. `limit`: the size of a page.
        """
        asked = {"q": query, "limit": limit, **given(after=after)}
        return Call.of(endpoints.SEARCH, query=asked)

    @verb
    def clients(self) -> Call[list[ClientStatus]]:
        """Return the workers that sent a heartbeat in the last 24 hours, most recent first."""
        return Call.of(endpoints.CLIENTS)

    @verb
    def audit(
        self,
        *,
        by: str | None = None,
        action: str | None = None,
        group: str | None = None,
        since: str | None = None,
        until: str | None = None,
        reason: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Call[AuditPage]:
        """Return a page of the changes made by people and by operator tokens, newest first.

        `since` and `until`: times such as `now-1h` or `2026-01-31T12:00`. `after`: the `after` of the previous page.
        """
        asked = given(by=by, action=action, group=group, since=since, until=until, reason=reason, after=after)
        return Call.of(endpoints.AUDIT, query={**asked, "limit": limit})

    @verb
    def health(self) -> Call[Health]:
        """Check that the server process is running. Does not check the database."""
        return Call.of(endpoints.HEALTHZ)

    @verb
    def ready(self) -> Call[Health]:
        """Check that the server can serve requests. Raises StoreUnavailable if it can't within `patience_s`."""
        return Call.of(endpoints.READYZ)

    @verb
    def metrics(self) -> Call[str]:
        """Return the server's metrics in the Prometheus text format."""
        return Call.of(endpoints.METRICS, read=bytes.decode)

    @verb
    def schema(self) -> Call[str]:
        """Return the OpenAPI description of the whole API, as YAML."""
        return Call.of(endpoints.SCHEMA, read=bytes.decode)


def group(name: str, *, limit: int, owned: bool, labels: Mapping[str, str | None] | None) -> Call[list[Task]]:
    """See `Client.group`."""
    query = {
        "name": name,
        "limit": limit,
        "owned": "yes" if owned else "no",
        "label": [key if value is None else f"{key}:{value}" for key, value in (labels or {}).items()],
    }
    return Call.of(endpoints.GROUP_BY_QUERY, query=query)


def export(query: str, *, format: str) -> Call[bytes]:
    """See `Client.export_tasks`."""
    return Call.of(endpoints.EXPORT, query={"q": query, "format": format})


class TaskListParser:
    """Parse a JSON list of tasks while it arrives, because a group may not fit into memory."""

    def __init__(self) -> None:
        self._text = ""
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder()
        self._next_try = 0  # Characters needed before the next attempt: a large task may arrive in small chunks.

    def feed(self, chunk: bytes) -> Iterator[Task]:
        """Yield the tasks that are complete. Raises UnexpectedAnswer if an element is not a task."""
        self._text += self._utf8.decode(chunk)
        if len(self._text) < self._next_try:
            return
        place = 0
        while True:
            while place < len(self._text) and self._text[place] in SEPARATORS:
                place += 1
            try:
                tree, place = self._decoder.raw_decode(self._text, place)
            except ValueError:  # The rest of the element has not arrived.
                break
            try:
                yield msgspec.convert(tree, Task)
            except msgspec.ValidationError as problem:
                raise UnexpectedAnswer(f"the response has an invalid task: {problem!r}") from problem
        self._text = self._text[place:]
        self._next_try = 2 * len(self._text)

    def end(self) -> Iterator[Task]:
        """Yield the last tasks. Raises UnexpectedAnswer if the list is incomplete."""
        self._next_try = 0
        yield from self.feed(b"")
        if self._text:
            raise UnexpectedAnswer(f"the response is not a list of tasks: {self._text[:100]}")
