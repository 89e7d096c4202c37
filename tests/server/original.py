"""A stand-in for the server of the original Task Store (github.com/shiblon/taskstore, service/taskserver).

It keeps tasks in memory and answers as that server does, which is not what its documentation says: `/update` and
`/claim` take JSON in a field of a form, times count nanoseconds and are called `duration`, members of answers begin
with a capital, `clientid` has 32 bits, and all paths that read tasks answer 400. copy_tasks.py was run by hand against
the real one, built with Go 1.19.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

READS = ("/task/", "/tasks/", "/group/")


@dataclass(frozen=True, kw_only=True)
class OldTask:
    id: int
    group: str
    data: str
    at_ns: int
    owner: int

    @property
    def on_the_wire(self) -> dict[str, Any]:
        return {"id": self.id, "group": self.group, "data": self.data, "duration": self.at_ns, "ownerid": self.owner}


@dataclass
class Original:
    """The tasks, and the time that has passed for them beside the clock's."""

    url: str = ""
    tasks: dict[int, OldTask] = field(default_factory=dict)
    passed_ns: int = 0
    _ids: Iterator[int] = field(default_factory=lambda: count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def now_ns(self) -> int:
        return time.time_ns() + self.passed_ns

    def add(self, group: str, data: str, duration: int = 0) -> None:
        """0 or below: that many nanoseconds from now."""
        at_ns = duration if duration > 0 else self.now_ns - duration
        task = OldTask(id=next(self._ids), group=group, data=data, at_ns=at_ns, owner=1)
        self.tasks[task.id] = task

    def answer(self, path: str, form: Mapping[str, list[str]]) -> tuple[int, Any]:
        """The status and the body, for a GET without a form."""
        name = path.removeprefix("/")
        if path == "/groups":
            return 200, sorted({task.group for task in self.tasks.values()})
        if path.startswith(READS):
            return 400, "invalid request"
        if name not in ("update", "claim"):
            return 404, "404 page not found"
        [asked] = [json.loads(text) for text in form.get(name, [])] or [None]
        if asked is None or not -(2**31) <= asked["clientid"] < 2**31:
            return 400, "no data provided"
        with self._lock:
            return 200, (self.update if name == "update" else self.claim)(asked)

    def update(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        assert set(asked) == {"clientid", "deletes"}, "copying needs no more"
        missing = [each for each in asked["deletes"] if each not in self.tasks]
        now_ns = self.now_ns
        found = [self.tasks[each] for each in asked["deletes"] if each in self.tasks]
        owned = [task.id for task in found if task.at_ns > now_ns and task.owner != asked["clientid"]]
        if missing or owned:
            reasons = {"Changes": [], "Deletes": missing, "Depends": [], "Owned": owned, "Bugs": []}
            return {"Tasks": None, "Error": reasons}
        for task in found:
            del self.tasks[task.id]
        return {"Tasks": [], "Error": None}

    def claim(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        now_ns = self.now_ns
        available = [task for task in self.tasks.values() if task.group == asked["group"] and task.at_ns <= now_ns]
        if not available:
            return {"Tasks": None, "Error": None}
        old = self.tasks.pop(available[0].id)
        new = replace(old, id=next(self._ids), at_ns=now_ns + asked["duration"], owner=asked["clientid"])
        self.tasks[new.id] = new
        return {"Tasks": [new.on_the_wire], "Error": None}


@contextmanager
def original() -> Iterator[Original]:
    """One that listens while the block runs."""
    old = Original()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_form = self.headers.get("Content-Type") == "application/x-www-form-urlencoded"
            self.send(parse_qs(body.decode()) if is_form else {})

        def send(self, form: Mapping[str, list[str]]) -> None:
            status, tree = old.answer(urlsplit(self.path).path, form)
            body = json.dumps(tree).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        old.url = f"http://127.0.0.1:{server.server_address[1]}"
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield old
        finally:
            server.shutdown()
            serving.join()
