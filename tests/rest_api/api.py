"""A client of the API inside the test's process, and thus inside its transaction."""

import json
from typing import Any

from django.http.response import HttpResponseBase
from django.test import Client

from tasks_app.access import tokens
from tasks_app.models import Scope

ANN, BOB = 1, 2


class Api:
    """A worker with a token. Answers are a status and a JSON value."""

    def __init__(self, scope: Scope | str = Scope.WORK, groups: tuple[str, ...] = ()) -> None:
        self.token, self.secret = tokens.create("Ann", scope, groups)
        self.http = Client(headers={"authorization": f"Bearer {self.secret}"})

    def get(self, path: str) -> tuple[int, Any]:
        return answered(self.http.get(path))

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        return self.send(path, json.dumps(body))

    def send(self, path: str, body: str | bytes, content_type: str = "application/json") -> tuple[int, Any]:
        return answered(self.http.generic("POST", path, body, content_type))

    def add(self, group: str = "mail", *, owner: int = ANN, **fields: Any) -> dict[str, Any]:
        """A task that was added just now."""
        return self.committed(clientid=owner, adds=[{"group": group, **fields}])[0]

    def committed(self, **body: Any) -> list[dict[str, Any]]:
        status, answer = self.post("/update", {"clientid": ANN, **body})
        assert (status, answer["error"]) == (200, None)
        return list(answer["tasks"])

    def claimed(self, group: str = "mail", *, owner: int = ANN, **body: Any) -> list[dict[str, Any]]:
        status, answer = self.post("/claim", {"clientid": owner, "group": group, **body})
        assert (status, answer["error"]) == (200, None)
        return list(answer["tasks"])


def answered(response: HttpResponseBase) -> tuple[int, Any]:
    return response.status_code, json.loads(response.getvalue())


class Clock:
    """In place of the module `time`; a test can put it forward."""

    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s
