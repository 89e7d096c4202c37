"""The metrics of a server under load, and everything that is written about them."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lab.testing import PROJECT
from tasks_app.core.meters import REASONS

from ..behaviour.databases import only_postgresql
from .conftest import IS_POSTGRESQL
from .harness import Server, Store, wait_for

DOCS = PROJECT / "docs"
OURS = re.compile(r"\b(?:taskstore|masstasker)_\w+")
OF_PROMETHEUS = {"job", "instance", "le"}  # Labels that it sets itself, and those of histograms.
DURATION = re.compile(r"\d+[smhd]")

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


@pytest.fixture(scope="module")
def store(tmp_path_factory, copies):
    with copies(tmp_path_factory.mktemp("metrics")) as store:
        yield store


@pytest.fixture(scope="module")
def server(store: Store):
    # One group has a name, so that there are others.
    command = "serve --workers 2" if IS_POSTGRESQL else "up"
    with store.up(command=command, TASKSTORE_METRICS_GROUPS="1", TASKSTORE_METRICS_LABEL="tenant") as server:
        work(server, store.token)
        yield server


def work(server: Server, token: str) -> None:
    """Twenty commits that add a task each, twelve claims, a deletion, and three commits that are refused."""
    for number, group in enumerate(("reports", *["mail"] * 19)):
        add = {"group": group, "labels": {"tenant": f"t{number % 2}"}}
        server.ask("POST", "/update", token, json={"clientid": 1, "adds": [add]})
    claims = [{"clientid": 2, "group": "mail", "duration": duration} for duration in (0, 0, *[60_000] * 10)]
    claimed = [server.ask("POST", "/claim", token, json=claim).json()["tasks"] for claim in claims]
    [last] = claimed[-1]
    server.ask("POST", "/update", token, json={"clientid": 2, "deletes": [last["id"]]})
    for _ in range(3):
        server.ask("POST", "/update", token, json={"clientid": 2, "deletes": [last["id"]]})


def scraped(server: Server) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(server.ask("GET", "/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def number(samples: Samples, name: str, **labels: str) -> float:
    return samples[name][frozenset(labels.items())]


def test_every_process_tells_of_all_that_was_done(server, store):
    before = scraped(server)
    work(server, store.token)
    for _ in range(10):
        after = scraped(server)
        more = {
            name: value - before[name][labels] for name in after for labels, value in after[name].items() if not labels
        }
        assert more["taskstore_commits_total"] == 21
        assert more["taskstore_tasks_claimed_total"] == 12
        assert more["taskstore_tasks_done_total"] == 1
        assert more["taskstore_tasks_entered_total"] == 20
        assert more["taskstore_tasks_left_total"] == 1
        assert more["taskstore_batch_operations_sum"] >= 36
        assert more["taskstore_batch_seconds_count"] == more["taskstore_batch_operations_count"]
        assert 0 < more["taskstore_batch_seconds_sum"] < 60
        gone = {"reason": "gone"}
        assert (
            number(after, "taskstore_refusals_total", **gone) - number(before, "taskstore_refusals_total", **gone) == 3
        )


def test_it_tells_what_the_processes_have_to_do(server, store):
    claim = {"clientid": 2, "group": "nothing", "wait": 60_000}
    processes = 2 if IS_POSTGRESQL else 1  # In each waits one for the schedules.
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(server.ask, "POST", "/claim", store.token, json=claim) for _ in range(3)]
        wait_for(lambda: number(scraped(server), "taskstore_waiting_claims") == 3 + processes, "three waiting claims")
        adds = [{"group": "nothing", "timespec": 1}] * 3
        server.ask("POST", "/update", store.token, json={"clientid": 1, "adds": adds})
        ids = [each.result().json()["tasks"][0]["id"] for each in waiting]
    server.ask("POST", "/update", store.token, json={"clientid": 2, "deletes": ids})
    wait_for(lambda: number(scraped(server), "taskstore_waiting_claims") == processes, "the end of the waiting")
    assert number(scraped(server), "taskstore_processes") == processes


@only_postgresql
def test_what_a_killed_process_did_still_counts(server):
    before = scraped(server)
    os.kill(server.workers[0], signal.SIGKILL)
    wait_for(lambda: number(scraped(server), "taskstore_processes") == 1, "the death of one process")
    wait_for(lambda: number(scraped(server), "taskstore_processes") == 2, "another process")
    after = scraped(server)
    for name in before:
        if name.endswith("_total"):
            assert all(after[name][labels] >= value for labels, value in before[name].items()), name


# ---- What is written about them


@pytest.fixture(scope="module")
def labels(server) -> dict[str, set[str]]:
    """Of each name that is told: its labels."""
    return {
        name: {label for each in samples for label, _ in each} - {"le"} for name, samples in scraped(server).items()
    }


def test_the_page_about_them_has_a_row_for_each_and_no_other(labels):
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", of_row)) for name, of_row in rows}
    reasons = {name for name in documented if not OURS.match(name)}
    assert reasons == set(REASONS)
    assert documented == {reason: set() for reason in reasons} | {family_of(name): own for name, own in labels.items()}


def test_the_alerts_ask_for_what_is_there(labels):
    [group] = yaml.safe_load((DOCS / "alerts.yml").read_text())["groups"]
    assert group.keys() == {"name", "rules"}
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
    for rule in group["rules"]:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert DURATION.fullmatch(rule["for"])
        assert rule["annotations"].keys() == {"summary", "description"}
        check(rule["expr"], labels)
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert used <= grouped_by(rule["expr"]) | ({"job", "instance"} if "by (" not in rule["expr"] else set())


def test_the_dashboard_asks_for_what_is_there(labels):
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert not overlapping(panels)
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            check(target["expr"], labels)
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped_by(target["expr"])
    for variable in dashboard["templating"]["list"]:
        check(str(variable["query"]), labels)


def check(expression: str, labels: dict[str, set[str]]) -> None:
    """That each metric of ours is told, with the labels that the expression names."""
    assert balanced(expression), expression
    names = set(OURS.findall(expression))
    assert names <= labels.keys(), expression
    known = set().union(OF_PROMETHEUS, *(labels[name] for name in names))
    assert grouped_by(expression) | matched(expression) <= known, expression


def grouped_by(expression: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(re.findall(r"(?:by|on) \(([^)]*)\)", expression))))


def matched(expression: str) -> set[str]:
    return set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", " ".join(re.findall(r"\{([^}]*)\}", expression))))


def balanced(expression: str) -> bool:
    depth = 0
    for character in expression:
        depth += (character in "({[") - (character in ")}]")
        if depth < 0:
            return False
    return depth == 0


def family_of(name: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", name)


def overlapping(panels: list[dict[str, Any]]) -> bool:
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + across, place["y"] + down) for across in range(place["w"]) for down in range(place["h"])}
        if taken & cells or place["x"] + place["w"] > 24:
            return True
        taken |= cells
    return False
