"""A small client of the REST API for the other examples. It needs only httpx."""

import os
import secrets

import httpx


class Refused(Exception):
    """A task no longer exists, or another client holds it. Nothing was changed. `ids` lists the tasks by reason."""

    def __init__(self, ids):
        super().__init__(f"refused: {ids}")
        self.ids = ids


class Store:
    """The store at an address, with the token of TASKSTORE_TOKEN."""

    def __init__(self, url="http://127.0.0.1:8048"):
        self.me = secrets.randbits(48)  # The owner of claimed tasks.
        self._seen = ""  # The place in the list of cancelled tasks.
        headers = {"Authorization": f"Bearer {os.environ['TASKSTORE_TOKEN']}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def claim(self, group, lease_ms=30_000, wait_ms=0):
        """Claim a task for `lease_ms`, waiting up to `wait_ms` for one. Returns None if there is none."""
        asked = {"clientid": self.me, "group": group, "duration": lease_ms, "wait": wait_ms}
        return next(iter(self._answer("POST", "/claim", json=asked)["tasks"]), None)

    def commit(self, **changes):
        """Commit adds, updates and deletes if all `depends` exist. Returns the new tasks. Raises Refused."""
        answer = self._answer("POST", "/update", json={"clientid": self.me, **changes})
        if answer["error"]:
            raise Refused({what: ids for what, ids in answer["error"].items() if ids})
        return answer["tasks"]

    def report(self, task, done, text=""):
        """Report the progress of a claimed task, from 0 to 1. Raises Refused if the lease was lost."""
        said = {"clientid": self.me, "done": done, "text": text}
        answer = self._http.put(f"/progress/{task['id']}", json=said)
        if answer.status_code in (404, 409):
            raise Refused({"progress": [task["id"]]})
        answer.raise_for_status()

    def limit(self, group, **limits):
        """Limit a group, or each with a prefix such as `calls/*`: `running`, `rate`, `by`. Needs the scope operate."""
        self._answer("PUT", f"/groups/{group}/limits", json=limits)

    def cancelled(self):
        """Return the ids of tasks of this client that were cancelled since the last call."""
        told = self._answer("GET", "/cancelled", params={"clientid": self.me, "after": self._seen})
        self._seen = told["after"]
        return told["ids"]

    def first(self, group):
        """Return the task that has been available longest, without claiming it; None if there is none."""
        return next(iter(self._answer("GET", "/group", params={"name": group, "limit": 1})), None)

    def all(self, group):
        """Return the available tasks of a group, without claiming them."""
        return self._answer("GET", "/group", params={"name": group})

    def stats(self, group):
        """Return the counts of the group; None if it is empty."""
        return next((each for each in self._answer("GET", "/stats")["groups"] if each["group"] == group), None)

    def _answer(self, method, path, **request):
        return self._http.request(method, path, **request).raise_for_status().json()
