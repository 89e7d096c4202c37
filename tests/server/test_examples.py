"""Each program of docs/examples does what docs/patterns.md says of it, by gRPC and by REST."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from typing import Any

import httpx
import pytest

from lab.testing import PROJECT

from .harness import Server, Store, empty, wait_for
from .rest import Rest

pytestmark = pytest.mark.once

EXAMPLES = PROJECT / "docs" / "examples"
WAYS = ("grpc", "rest")


class Examples:
    """The programs of one way in, beside a server."""

    def __init__(self, way: str, address: str, token: str) -> None:
        self._folder, self._address = EXAMPLES / way, address
        self._environment = {**os.environ, "PYTHONPATH": str(PROJECT), "TASKSTORE_TOKEN": token}

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[str]]:
        """A program that is under way; killed at the end if it still runs."""
        command = [sys.executable, str(self._folder / f"{name}.py"), self._address]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=self._environment, **pipes) as process:
            yield process
            process.kill()

    def run(self, name: str, *, times: int = 1) -> list[str]:
        """Run it to its end, several at once if so many are asked for. Returns the lines that they wrote."""
        with ExitStack() as stack:
            return said_by(*(stack.enter_context(self.started(name)) for _ in range(times)))


def said_by(*processes: subprocess.Popen[str]) -> list[str]:
    said = []
    for process in processes:
        told, complaints = process.communicate(timeout=60)
        assert (process.returncode, complaints) == (0, "")
        said += told.splitlines()
    return said


@pytest.fixture
def server(lasting_server: Server) -> Server:
    return lasting_server


@pytest.fixture
def of_each_way(server: Server, lasting_store: Store) -> dict[str, Examples]:
    addresses = {"grpc": lasting_store.grpc, "rest": server.url}
    return {way: Examples(way, address, lasting_store.token) for way, address in addresses.items()}


@pytest.fixture(params=WAYS)
def examples(request: pytest.FixtureRequest, of_each_way: dict[str, Examples]) -> Examples:
    return of_each_way[request.param]


@pytest.fixture
def rest(server: Server, lasting_store: Store) -> Iterator[Rest]:
    with Rest(server.url, lasting_store.token) as rest:
        yield rest
    empty(server, lasting_store.token)


def add(rest: Rest, group: str, *data: str) -> None:
    assert rest.commit(adds=[{"group": group, "data": each} for each in data])


def data_of(rest: Rest, group: str) -> list[str]:
    return [task["data"] for task in rest.tasks(group)]


def test_a_lease_is_renewed_for_as_long_as_the_work_takes(examples, rest):
    add(rest, "mail", "35")
    [before] = rest.tasks("mail")
    with examples.started("lease") as worker:
        wait_for(lambda: rest.tasks("mail")[0]["id"] > before["id"] + 3, "the renewals")
        assert rest.claim("mail", 1) == []
        assert said_by(worker) == ["sent"]
    assert (rest.groups(), data_of(rest, "sent")) == (["sent"], ["35"])


def test_a_task_of_a_killed_worker_is_another_ones_soon(examples, rest):
    add(rest, "mail", "5")
    with examples.started("lease") as worker:
        wait_for(lambda: rest.tasks("mail")[0]["claims"] == 1, "the claim")
        worker.kill()
    wait_for(lambda: rest.tasks("mail") and rest.claim("mail", 1), "the end of the lease")


def test_a_lost_lease_commits_nothing(examples, rest):
    add(rest, "mail", "100")
    with examples.started("lease") as worker:
        wait_for(lambda: rest.tasks("mail")[0]["claims"] == 1, "the claim")
        wait_for(lambda: is_taken_away(rest, "mail"), "a deletion between two renewals")
        assert said_by(worker) == ["too late: another worker has it now"]
    assert rest.groups() == []


def is_taken_away(rest: Rest, group: str) -> bool:
    [task] = rest.tasks(group)
    rest.client_id = task["ownerid"]  # In the name of its worker.
    return rest.commit(deletes=[task["id"]])


def test_each_move_is_a_commit(examples, rest):
    add(rest, "draft", "a", "b", "c")
    origins = {task["origin"] for task in rest.tasks("draft")}
    examples.run("move")
    assert rest.groups() == ["sent"]
    assert sorted(data_of(rest, "sent")) == [f"{name}, checked, sent" for name in "abc"]
    assert {task["origin"] for task in rest.tasks("sent")} == origins


def test_one_worker_makes_the_tasks_and_all_do_them(examples, rest):
    add(rest, "bootstrap", "")
    said = examples.run("bootstrap", times=2)
    assert sorted(said) == sorted(["made 20", *["did 1"] * 20])
    assert rest.groups() == []


def test_nothing_is_made_by_a_config_that_was_replaced(examples, rest):
    add(rest, "config", "hello")
    add(rest, "mail", *map(str, range(8)))
    with examples.started("condition") as worker:
        wait_for(lambda: rest.tasks("sent"), "the first mail")
        [old] = rest.tasks("config")
        assert rest.commit(updates=[{"id": old["id"], "data": "good evening"}])
        said = said_by(worker)
    [new] = rest.tasks("config")
    sent = rest.tasks("sent")
    assert said.count("sent") == len(sent) == 8
    for mail in sent:
        assert mail["data"].startswith("good evening, " if mail["id"] > new["id"] else "hello, ")
    ids = [mail["id"] for mail in sent]
    assert min(ids) < new["id"] < max(ids)


def test_the_last_part_starts_the_next_phase_whichever_way_it_came(of_each_way, rest):
    add(rest, "barrier", json.dumps({"parts": 12, "results": []}))
    add(rest, "parts", *map(str, range(12)))
    with ExitStack() as stack:
        said_by(*(stack.enter_context(each.started("barrier")) for each in 2 * list(of_each_way.values())))
    [joined] = rest.tasks("joined")
    assert sorted(json.loads(joined["data"])["results"]) == [number**2 for number in range(12)]
    assert rest.groups() == ["joined"]


def test_a_broken_task_is_kept_with_its_error_and_the_others_go_on(examples, rest):
    add(rest, "orders", "3 x 20", "three", "1 x 5")
    examples.run("dead_letter")
    assert sorted(data_of(rest, "totals")) == ["5", "60"]
    [failed] = rest.tasks("orders/failed")
    assert failed["data"] == "three"
    assert failed["error"].startswith("not an order: ")
    assert rest.groups() == ["orders/failed", "totals"]


def test_a_worker_says_how_far_it_is(of_each_way, rest):
    add(rest, "books", "40")

    def progress() -> Any:
        [book] = rest.tasks("books")
        with suppress(httpx.HTTPStatusError):  # It was claimed just now.
            return rest._ask("GET", f"/task/{book['id']}").get("progress")

    with of_each_way["rest"].started("show_progress") as worker:
        wait_for(progress, "the progress")
        assert re.fullmatch(r"page \d+ of 40", progress()["text"])
        assert said_by(worker) == ["printed"]
    assert rest.groups() == ["printed"]


def test_progress_is_told_until_all_is_done(examples, rest):
    add(rest, "mail", *map(str, range(6)))
    with examples.started("progress") as told:
        assert told.stdout
        lines: list[str] = []
        while not lines or forecast(lines[-1])["left"]:
            lines.append(told.stdout.readline())
            rest.commit(deletes=[task["id"] for task in rest.tasks("mail")[:1]])
        assert told.wait(timeout=60) == 0
    seen = [forecast(line) for line in lines]
    left = [each["left"] for each in seen]
    assert left == sorted(left, reverse=True)
    assert (left[0], left[-1]) == (6, 0)
    told_rate = [each for each in seen if each["rate"]]
    assert told_rate
    for each in told_rate:
        # Both are rounded.
        assert each["seconds"] == pytest.approx(each["left"] / each["rate"], rel=0.3, abs=0.1)


def forecast(line: str) -> dict[str, Any]:
    found = re.match(r"(\d+) left(?:, ([\d.]+) a second)?(?:, done in ([\d.]+) s)?$", line)
    assert found, line
    return {"left": int(found[1]), "rate": float(found[2] or 0), "seconds": float(found[3] or 0)}


def test_of_many_equal_orders_one_reminder_is_added(of_each_way, rest):
    rest.commit(adds=[{"group": "orders", "data": name} for name in ("Ann", "Bob", "Ann", "Ann", "Bob", "Ann")])
    said = of_each_way["rest"].run("once", times=3)
    assert sorted(line.rpartition(" ")[0] for line in said) == ["added"] * 2 + ["already waiting"] * 4
    assert sorted(task["data"] for task in rest.tasks("reminders")) == ["Ann", "Bob"]


def test_no_two_calls_for_a_customer_overlap(of_each_way, rest):
    names = ["Ann", "Bob", "Ann", "Cid", "Ann", "Bob"]
    rest.commit(adds=[{"group": "calls", "data": "", "labels": {"customer": name}} for name in names])
    calls = sorted(line.split() for line in of_each_way["rest"].run("limit", times=3))
    assert [name for name, *_ in calls] == sorted(names)
    for (name, _, ended_s), (next_name, began_s, _) in pairwise(calls):
        assert name != next_name or float(ended_s) <= float(began_s)


def test_squares_are_added_up_once_when_all_are_there(of_each_way, rest):
    batch = {"adds": [{"group": "sums", "data": "10"}], "then": [{"group": "totals", "data": "10"}]}
    rest._ask("POST", "/batches", json={"clientid": rest.client_id, **batch})
    assert of_each_way["rest"].run("batch", times=3) == ["10 385"]
    assert rest.groups() == []


def test_what_is_cancelled_ends_though_its_lease_lasts(of_each_way, rest):
    add(rest, "movies", "1000")
    with of_each_way["rest"].started("cancel") as worker:
        wait_for(lambda: rest.tasks("movies")[0]["claims"] == 1, "the claim")
        rest._ask("POST", "/cancel", json={"ids": [rest.tasks("movies")[0]["id"]]})
        assert said_by(worker) == ["cancelled"]
    assert rest.groups() == []


@pytest.mark.parametrize("way", WAYS)
def test_every_example_is_explained(way):
    explained = (PROJECT / "docs" / "patterns.md").read_text()
    for file in (EXAMPLES / way).glob("*.py"):
        assert f"(examples/{way}/{file.name})" in explained
