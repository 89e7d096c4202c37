"""/metrics: who may read it, and what it says."""

from collections.abc import Iterable

import pytest
from django.db import OperationalError
from django.test import Client
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from tasks_app.database.time_limits import TookTooLong
from tasks_app.models import Scope, Task
from tasks_app.reading import metrics
from taskstore.types.tasks import NewTask, State

from .api import ANN, BOB, Api

pytestmark = pytest.mark.django_db

HOME = {"host": "127.0.0.1:8048"}
OPEN_METRICS = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.1"}
Labels = frozenset[tuple[str, str]]


@pytest.fixture
def machine(settings):
    """A program on the machine of the server, without a token."""
    settings.TASKSTORE_PUBLIC_URL, settings.TASKSTORE_PROXIES = "", 0
    settings.ALLOWED_HOSTS = ["127.0.0.1", "tasks.example.org", "testserver"]
    return Client(headers=HOME)


def told(client: Client, name: str) -> dict[Labels, float]:
    """What it says of this name, by the labels."""
    return {
        frozenset(sample.labels.items()): sample.value
        for family in families(client)
        for sample in family.samples
        if sample.name == name
    }


def families(client: Client) -> Iterable[Metric]:
    answer = client.get("/metrics")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return plain(answer.text)


def by(**labels: str) -> Labels:
    return frozenset(labels.items())


# ---- Who


@pytest.mark.once
@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-for": "192.0.2.7"},
        {"x-forwarded-for": "127.0.0.1"},
        {"x-forwarded-for": ""},
        {"forwarded": "for=192.0.2.7"},
        {"x-real-ip": "192.0.2.7"},
        {"via": "1.1 proxy"},
        {"origin": "https://elsewhere.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "tasks.example.org"},
    ],
)
def test_what_came_by_a_proxy_or_from_a_page_needs_one(machine, headers):
    assert machine.get("/metrics", headers=headers).status_code == 401


@pytest.mark.once
@pytest.mark.parametrize(
    ("setting", "value"), [("TASKSTORE_PUBLIC_URL", "https://tasks.example.org"), ("TASKSTORE_PROXIES", 1)]
)
def test_on_a_server_for_others_everybody_needs_one(machine, settings, setting, value):
    setattr(settings, setting, value)
    assert machine.get("/metrics").status_code == 401


@pytest.mark.once
@pytest.mark.parametrize(("groups", "status"), [((), 200), (("*",), 200), (("mail",), 403), (("mail*", "pay/*"), 403)])
def test_a_token_has_to_be_for_every_group(groups, status):
    assert Api(Scope.READ, groups).http.get("/metrics", REMOTE_ADDR="192.0.2.7").status_code == status


# ---- What


def test_it_tells_the_tasks_of_each_group_by_state(machine):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 3 + [NewTask(group="mail", timespec_ms=-60_000)])
    Task.objects.commit(owner=ANN, adds=[NewTask(group="reports", error="broken", timespec_ms=1_000)])
    Task.objects.claim("mail", owner=BOB)
    Task.objects.claim("mail", owner=BOB, duration_ms=0)
    tasks = told(machine, "taskstore_tasks")
    mail, reports = {"ready", "claimed", "expired", "scheduled"}, {"retrying"}
    assert tasks == {
        by(group=group, state=state): float(state in states)
        for group, states in {"mail": mail, "reports": reports}.items()
        for state in State
    }
    assert told(machine, "taskstore_tasks_failed") == {by(group="mail"): 0, by(group="reports"): 1}
    assert told(machine, "masstasker_num_tasks") == {by(group="mail"): 4, by(group="reports"): 1}
    assert told(machine, "taskstore_groups") == {by(): 2}
    assert told(machine, "taskstore_store_up") == {by(): 1}
    oldest_s = told(machine, "taskstore_oldest_ready_seconds")
    assert oldest_s[by(group="mail")] < 60 < oldest_s[by(group="reports")]


def test_it_names_the_largest_groups_and_adds_up_the_others(machine, settings):
    settings.TASKSTORE_METRICS_GROUPS = 2
    for group, tasks in {"mail": 5, "pay": 4, "a": 3, "others": 1}.items():
        Task.objects.commit(owner=ANN, adds=[NewTask(group=group)] * tasks)
    assert told(machine, "masstasker_num_tasks") == {by(group="mail"): 5, by(group="pay"): 4, by(groups="others"): 4}
    ready = told(machine, "taskstore_tasks")
    assert ready[by(groups="others", state="ready")] == 4
    assert len(ready) == 3 * 7
    assert told(machine, "taskstore_group_paused").keys() == {by(group="mail"), by(group="pay")}
    settings.TASKSTORE_METRICS_GROUPS = 0
    assert told(machine, "masstasker_num_tasks") == {by(groups="others"): 13}


def test_it_counts_tasks_by_the_value_of_a_label(machine, settings):
    settings.TASKSTORE_METRICS_LABEL, settings.TASKSTORE_METRICS_GROUPS = "tenant", 2
    numbers = {"acme": 3, 'quoted "\\ % {0}': 2, "": 1, "small": 1}
    for tenant, tasks in numbers.items():
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", labels={"tenant": tenant})] * tasks)
    Task.objects.commit(owner=ANN, adds=[NewTask(group="jobs/x", labels={"tenant": "acme"}, timespec_ms=-1_000_000)])
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail"), NewTask(group="mail", labels={"other": "acme"})])
    Task.objects.claim("mail", owner=BOB, limit=7)
    settings.TASKSTORE_METRICS_LABEL = ""
    assert not told(machine, "taskstore_tasks_by_label")
    settings.TASKSTORE_METRICS_LABEL = "tenant"
    counted = told(machine, "taskstore_tasks_by_label")
    assert len(counted) == 3 * len(State)
    assert counted[by(label="tenant", value="acme", state="scheduled")] == 1
    claimed = [labels for labels in counted if ("state", "claimed") in labels or ("state", "ready") in labels]
    assert sum(counted[labels] for labels in claimed) == 7
    ready_or_claimed = [by(label="tenant", values="others", state=state) for state in ("ready", "claimed")]
    assert sum(counted[labels] for labels in ready_or_claimed) == 2


@pytest.mark.once
def test_counting_by_label_takes_a_small_share_of_the_time(machine, settings, monkeypatch):
    settings.TASKSTORE_METRICS_LABEL = "tenant"
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", labels={"tenant": "acme"})])
    ready = by(label="tenant", value="acme", state="ready")
    clock_s = 1_000_000.0

    def counted_slowly(label: str) -> dict[str, dict[str, int]]:
        nonlocal clock_s
        clock_s += 1
        return {"acme": {"ready": int(clock_s)}}

    monkeypatch.setattr(metrics, "_by_label", metrics._ByLabel())
    monkeypatch.setattr(metrics, "_counted_by", counted_slowly)
    monkeypatch.setattr("time.monotonic", lambda: clock_s)
    assert told(machine, "taskstore_tasks_by_label") == told(machine, "taskstore_tasks_by_label")
    first = told(machine, "taskstore_tasks_by_label")[ready]
    clock_s += metrics.REST
    assert told(machine, "taskstore_tasks_by_label")[ready] > first

    def too_slowly(label: str) -> dict[str, dict[str, int]]:
        raise TookTooLong

    monkeypatch.setattr(metrics, "_counted_by", too_slowly)
    clock_s += 2 * metrics.REST
    assert not told(machine, "taskstore_tasks_by_label")
    assert told(machine, "taskstore_store_up") == {by(): 1}


@pytest.mark.parametrize("name", ['a "quoted" \\ name', "\x01\x7f\n", "\N{PILE OF POO}", '",state="x"} 1\n', "\\n"])
def test_a_group_may_have_any_name(machine, name):
    Task.objects.commit(owner=ANN, adds=[NewTask(group=name)])
    assert told(machine, "masstasker_num_tasks") == {by(group=name): 1}
    answer = machine.get("/metrics", headers=OPEN_METRICS)
    assert answer["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    [tasks] = [family for family in open_metrics(answer.text) if family.name == "masstasker_num_tasks"]
    assert [sample.labels for sample in tasks.samples] == [{"group": name}]


@pytest.mark.once
@pytest.mark.parametrize("failure", [OperationalError("no route to host"), TookTooLong()])
def test_without_the_store_the_server_still_tells_of_itself(machine, monkeypatch, failure):
    def fail() -> None:
        raise failure

    monkeypatch.setattr(metrics, "summary", fail)
    names = {family.name for family in families(machine)}
    assert told(machine, "taskstore_store_up") == {by(): 0}
    assert "taskstore_commits" in names
    assert "taskstore_tasks" not in names


@pytest.mark.once
def test_it_counts_what_is_refused_before_a_verb_is_asked(machine, api):
    def counted(reason: str) -> float:
        return told(machine, "taskstore_refusals_total")[by(reason=reason)]

    before = {reason: counted(reason) for reason in ("invalid", "unauthenticated", "forbidden", "gone")}
    api.post("/update", {"clientid": "x"})
    api.post("/update", {"clientid": ANN, "deletes": [0]})
    api.post("/groups/mail/pause", {})
    machine.get("/groups")
    assert {reason: counted(reason) - number for reason, number in before.items()} == dict.fromkeys(before, 1)
