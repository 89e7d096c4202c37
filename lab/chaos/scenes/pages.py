"""Commits while pages of the console are open."""

from __future__ import annotations

import time

import httpx

from lab.testing import CannotTry
from lab.testing.processes import cpu_s

from ..open_pages import Pages, open_pages
from ..outcome import Figure, SceneResult, outcome_of, p99
from ..processes import StoreServer, command
from ..stage import Stage

USER, PASSWORD = "olaf", "as long as it has to be"
SILENT, ASKING = 60, 20  # A person may have a hundred pages.
LONGER = 1.5  # The permitted factor compared with no pages.
MOST_IDLE_S = 5.0
PATIENCE_S = 60.0


def many_pages(stage: Stage) -> SceneResult:
    """Measure the CPU time of open pages, and how much they slow down commits."""
    server = stage.server()
    cookie = signed_in(server)
    silent, asking = (max(1, round(count * stage.pace.crowd)) for count in (SILENT, ASKING))
    idle_s = min(MOST_IDLE_S, stage.pace.seconds / 6)
    without_pages = cpu_in(server, idle_s)
    with open_pages(Pages(url=server.url, cookie=cookie, silent=silent + asking)):
        time.sleep(idle_s)  # The server first sends each page its content.
        with_pages = cpu_in(server, idle_s)
    with stage.load([server]):
        time.sleep(stage.pace.seconds / 2)
        busy = Pages(url=server.url, cookie=cookie, silent=silent, asking=asking, coming=1)
        with open_pages(busy) as tally:
            opened_s = time.monotonic()
            time.sleep(stage.pace.seconds / 2)
            ended_s = time.monotonic()
    history = stage.history(server)
    commits = [event for event in history.requests if event.is_done and not event.is_claim]
    alone_s = p99(event.received_s - event.sent_s for event in commits if event.received_s < opened_s)
    watched_s = p99(event.received_s - event.sent_s for event in commits if opened_s < event.sent_s < ended_s)
    problems = [f"{number} pages: {name} by the server" for name, number in tally.items() if name.endswith("closed")]
    if not tally["answered"]:
        problems.append("no page that asked was answered")
    return outcome_of(
        history,
        faults=tally["opened"],
        problems=problems,
        figures=[
            Figure(name="p99 of a commit without pages", value=alone_s),
            Figure(name="p99 of a commit with pages", value=watched_s),
            Figure(name="their ratio", value=watched_s / alone_s, limit=LONGER, unit=""),
            Figure(
                name=f"CPU of {silent + asking} idle pages", value=1_000 * (with_pages - without_pages), unit="ms/s"
            ),
        ],
    )


def signed_in(server: StoreServer) -> str:
    """Create a user who may see everything, sign in, and return the Cookie header."""
    words = ("createsuperuser", "--noinput", f"--username={USER}", "--email=")
    url = server.variables["DATABASE_URL"]
    command(*words, folder=server.folder, DATABASE_URL=url, DJANGO_SUPERUSER_PASSWORD=PASSWORD)
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as browser:
        browser.get("/console/login")
        form = {"username": USER, "password": PASSWORD, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
        browser.post("/console/login", data=form)
        if "sessionid" not in browser.cookies:
            raise CannotTry("the console let nobody in")
        return "; ".join(f"{name}={text}" for name, text in browser.cookies.items())


def cpu_in(server: StoreServer, seconds: float) -> float:
    """Return the share of a CPU that the server uses during this time."""
    before_s = cpu_s(server.pid)
    time.sleep(seconds)
    return (cpu_s(server.pid) - before_s) / seconds
