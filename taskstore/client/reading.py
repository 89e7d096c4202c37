"""The calls that change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from ..types.audit import AuditPage
from ..types.clients import Heard
from ..types.groups import Stats
from ..types.history import History
from ..types.search import SearchPage
from ..types.server import Health
from ..types.tasks import Task
from .calls import Call, decoder, given

PATH_LETTERS = "/"  # What a path carries beside letters and digits.


class Looking:
    __slots__ = ()

    def task(self, id: int) -> Call[Task | None]:
        """The task with this id; None when there is none (`history` says what became of it)."""
        return Call(method="GET", path=f"/task/{id}", read=decoder(Task), may_be_missing=True)

    def tasks(self, ids: Iterable[int]) -> Call[list[Task | None]]:
        """The tasks of these ids in the order asked, None for one that does not exist."""
        return Call(method="POST", path="/tasks", body={"ids": list(ids)}, read=decoder(list[Task | None]))

    def group(
        self, name: str, *, limit: int = 0, owned: bool = False, labels: Mapping[str, str | None] | None = None
    ) -> Call[list[Task]]:
        """The tasks of a group, the longest available first, one after the other as they come in.

        0: all that there are. `owned`: also what is not available. `labels`: those that bear all of them; None
        stands for any value.
        """
        query = {
            "name": name,
            "limit": limit,
            "owned": "yes" if owned else "no",
            "label": [key if value is None else f"{key}:{value}" for key, value in (labels or {}).items()],
        }
        return Call(method="GET", path="/group", query=query, read=decoder(list[Task]))

    def groups(self) -> Call[list[str]]:
        """The names of the groups that hold a task, sorted."""
        return Call(method="GET", path="/groups", read=decoder(list[str]))

    def stats(self) -> Call[Stats]:
        """Every group that holds a task in numbers."""
        return Call(method="GET", path="/stats", read=decoder(Stats))

    def history(self, id: int) -> Call[History | None]:
        """What became of an id that was ever given out; None when nothing is known of it (any more)."""
        return Call(method="GET", path=f"/history/{id}", read=decoder(History), may_be_missing=True)

    def search(self, query: str = "", *, after: str | None = None, limit: int = 50) -> Call[SearchPage]:
        """A page of the tasks that meet every term: `group:mail state:failed error:"timed out"`."""
        asked = {"q": query, "limit": limit, **given(after=after)}
        return Call(method="GET", path="/search", query=asked, read=decoder(SearchPage))

    def export_tasks(self, query: str = "", *, format: str = "ndjson") -> Call[bytes]:
        """All tasks that a search finds, as a file, piece by piece: `ndjson` (see `import_tasks`) or `csv`."""
        return Call(method="GET", path="/export", query={"q": query, "format": format}, read=bytes)

    def clients(self) -> Call[list[Heard]]:
        """The workers that were heard within a day, the last heard first."""
        return Call(method="GET", path="/clients", read=decoder(list[Heard]))

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
        """What people and operating tokens changed, the newest first. Times: `now-1h`, or 2026-01-31T12:00."""
        asked = given(by=by, action=action, group=group, since=since, until=until, reason=reason, after=after)
        return Call(method="GET", path="/audit", query={**asked, "limit": limit}, read=decoder(AuditPage))

    def health(self) -> Call[Health]:
        """The server process lives."""
        return Call(method="GET", path="/healthz", read=decoder(Health))

    def ready(self) -> Call[Health]:
        """The server can work. Raises StoreUnavailable when it can't for as long as this client is patient."""
        return Call(method="GET", path="/readyz", read=decoder(Health))

    def metrics(self) -> Call[str]:
        """The numbers of the server, as Prometheus reads them."""
        return Call(method="GET", path="/metrics", read=bytes.decode)

    def schema(self) -> Call[str]:
        """The description of the whole API in OpenAPI, as YAML."""
        return Call(method="GET", path="/schema", read=bytes.decode)


def in_path(name: str) -> str:
    return quote(name, safe=PATH_LETTERS)
