"""A person who has signed in to a server of this store, on a store full of seeded tasks."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import httpx

from lab.testing import PROJECT

from .. import CannotMeasure
from ..measuring import Entry
from ..places import Place

GROUPS, WORKERS = 300, 40
USER, PASSWORD = "bench", "as long as it has to be"
PATIENCE_S = 60
FOLDED_S = 20  # Until a server shows what another process has added.
STATES = ("ready", "claimed", "expired", "scheduled")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page as it came."""

    text: str
    seconds: float  # To the last byte.
    size: int  # Bytes, as they were sent.


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """What it takes to ask for pages, and to change the store meanwhile."""

    browser: httpx.Client  # With the cookie of the one who has signed in.
    api: httpx.Client
    groups: list[str]  # The one with the most tasks first.

    def look_at(self, path: str) -> View:
        """Raises CannotMeasure when the server refuses the page."""
        started_s = time.perf_counter()
        answer = self.browser.get(path)
        seconds = time.perf_counter() - started_s
        if answer.status_code != httpx.codes.OK:
            raise CannotMeasure(f"{path} answers {answer.status_code}")
        return View(text=answer.text, seconds=seconds, size=answer.num_bytes_downloaded)

    def update(self, **change: Any) -> list[int]:
        """A commit; the ids of the tasks that it made."""
        answer = self.api.post("/update", json={"clientid": 1, **change}).json()
        if answer["error"]:
            raise CannotMeasure(f"the server refused: {answer['error']}")
        return [task["id"] for task in answer["tasks"]]


def visitor_of(entry: Entry, place: Place) -> Visitor:
    """The one of this place, which is seeded when the first entry of a scene asks."""
    if "visitor" not in place.kept:
        place.kept["visitor"] = _visitor(entry.load.present, place)
    found: Visitor = place.kept["visitor"]
    return found


def _visitor(tasks: int, place: Place) -> Visitor:
    _manage(place, "demo", "seed", f"--tasks={tasks}", f"--groups={GROUPS}", f"--workers={WORKERS}")
    _manage(place, "createsuperuser", "--noinput", f"--username={USER}", "--email=", DJANGO_SUPERUSER_PASSWORD=PASSWORD)
    place.storage.settle()
    server = place.servers[0]
    api = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}, timeout=PATIENCE_S)
    return Visitor(browser=_signed_in(server.url), api=api, groups=_groups(api, tasks))


def _manage(place: Place, *command: str, **variables: str) -> None:
    environment = {**place.environment, **variables}
    done = subprocess.run(
        [sys.executable, "-m", "taskstore_project", *command],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotMeasure(f"{command[0]}: {done.stderr.strip().rpartition(chr(10))[2]}")


def _signed_in(url: str) -> httpx.Client:
    browser = httpx.Client(base_url=url, timeout=PATIENCE_S, follow_redirects=True)
    browser.get("/console/login")
    form = {"username": USER, "password": PASSWORD, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
    browser.post("/console/login", data=form)
    if "sessionid" not in browser.cookies:
        raise CannotMeasure("the console let nobody in")
    return browser


def _groups(api: httpx.Client, tasks: int) -> list[str]:
    """Once the server sees all that was added."""
    deadline_s = time.monotonic() + FOLDED_S
    while True:
        sizes = {each["group"]: sum(map(each.get, STATES)) for each in api.get("/stats").json()["groups"]}
        if sum(sizes.values()) >= tasks or time.monotonic() > deadline_s:
            return sorted(sizes, key=lambda name: -sizes[name])
        time.sleep(0.5)
