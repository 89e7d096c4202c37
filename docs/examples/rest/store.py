"""What the other examples ask the REST API for. It needs httpx and nothing else."""

import os
import secrets

import httpx


class Refused(Exception):
    """Something that the commit names is gone, or somebody else's. Nothing was changed. `ids` says what."""

    def __init__(self, ids):
        super().__init__(f"refused: {ids}")
        self.ids = ids


class Store:
    """The store at an address, with the token of TASKSTORE_TOKEN."""

    def __init__(self, url="http://127.0.0.1:8048"):
        self.me = secrets.randbits(48)  # Whose a claimed task is.
        headers = {"Authorization": f"Bearer {os.environ['TASKSTORE_TOKEN']}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def claim(self, group, lease_ms=30_000, wait_ms=0):
        """A task that nobody else gets for so long; None when there is none, or none comes in time."""
        asked = {"clientid": self.me, "group": group, "duration": lease_ms, "wait": wait_ms}
        return next(iter(self._answer("POST", "/claim", json=asked)["tasks"]), None)

    def commit(self, **changes):
        """All of it or nothing: adds, updates, deletes, depends. Returns the new tasks, or raises Refused."""
        answer = self._answer("POST", "/update", json={"clientid": self.me, **changes})
        if answer["error"]:
            raise Refused({what: ids for what, ids in answer["error"].items() if ids})
        return answer["tasks"]

    def report(self, task, done, text=""):
        """Say how far a claimed task is, from 0 to 1. Raises Refused when it is somebody else's, or has ended."""
        said = {"clientid": self.me, "done": done, "text": text}
        answer = self._http.put(f"/progress/{task['id']}", json=said)
        if answer.status_code in (404, 409):
            raise Refused({"progress": [task["id"]]})
        answer.raise_for_status()

    def first(self, group):
        """The task that has been available longest, without claiming it; None when there is none."""
        return next(iter(self._answer("GET", "/group", params={"name": group, "limit": 1})), None)

    def stats(self, group):
        """The group in numbers; None when no task is in it."""
        return next((each for each in self._answer("GET", "/stats")["groups"] if each["group"] == group), None)

    def _answer(self, method, path, **request):
        return self._http.request(method, path, **request).raise_for_status().json()
