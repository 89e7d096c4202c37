"""Answers have a budget, and all large ones together have one, too: contract.md section 8."""

import json
import threading
import time

import pytest

from tasks_app.core.room import room
from tasks_app.models import KeptPayload, Payload, Task
from taskstore.types.tasks import NewTask, json_size
from tests.behaviour.people import ANN, BOB

MIB = 2**20
pytestmark = pytest.mark.usefixtures("transactional_db")


def add(count, size=MIB, group="mail", **more):
    adds = [NewTask(group=group, data=b"x" * size, **more)] * count
    return [task.id for task in Task.objects.commit(owner=ANN, adds=adds)]


@pytest.fixture
def budget(settings):
    settings.TASKSTORE_MAX_ANSWER_BYTES = 5 * MIB
    settings.TASKSTORE_MAX_ANSWERS_BYTES = 12 * MIB


@pytest.fixture
def worker(api, served):
    """Asks a server; returns the status and the value of its answer."""

    def ask(method, path, **body):
        content = json.dumps({"clientid": BOB, **body}) if method == "POST" and path != "/tasks" else json.dumps(body)
        answer = served.request(
            method, path, content=content.encode(), headers={"Authorization": f"Bearer {api.secret}"}
        )
        return answer.status_code, answer.json() if answer.content else None

    return ask


def taken(size, most):
    place = room.take(size, most)
    assert place
    return place


def data_of(tasks):
    return [len(task["data"]) for task in tasks]


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("groups", [{"group": "mail"}, {"groups": ["mail", "other"]}])
def test_a_claim_stops_at_the_budget_and_says_so(worker, groups):
    add(7)
    status, answer = worker("POST", "/claim", limit=10, **groups)
    assert (status, data_of(answer["tasks"]), answer["truncated"]) == (200, [MIB] * 4, True)
    status, answer = worker("POST", "/claim", limit=10, **groups)
    assert (status, data_of(answer["tasks"]), "truncated" in answer) == (200, [MIB] * 3, False)
    assert worker("POST", "/claim", limit=10, **groups)[1] == {"tasks": [], "error": None}


@pytest.mark.usefixtures("budget")
def test_a_claim_that_is_sent_again_gets_the_same_tasks(worker):
    add(7)
    first, again = [worker("POST", "/claim", limit=10, group="mail", key="k") for _ in range(2)]
    assert first == again
    assert (data_of(first[1]["tasks"]), first[1]["truncated"]) == ([MIB] * 4, True)


@pytest.mark.usefixtures("budget")
def test_a_list_of_ids_beyond_the_budget_is_refused(worker):
    [task] = add(1)
    assert data_of(worker("POST", "/tasks", ids=[task] * 4)[1]) == [MIB] * 4
    for status, answer in (
        worker("POST", "/tasks", ids=[task] * 100),
        worker("GET", f"/tasks/{task},{task},{task},{task},{task}"),
    ):
        assert status == 413
        assert "more than TASKSTORE_MAX_ANSWER_BYTES (5242880): ask for fewer at once" in answer["errors"]["ids"][0]
    assert worker("POST", "/tasks", ids=[task, task + 1])[1][1] is None


@pytest.mark.usefixtures("budget")
def test_a_page_of_a_search_stops_at_the_budget_and_goes_on(worker):
    ids = add(7)
    status, first = worker("GET", "/search?q=group:mail&limit=6")
    assert (status, [task["id"] for task in first["tasks"]], first["truncated"]) == (200, ids[:4], True)
    status, rest = worker("GET", f"/search?q=group:mail&limit=6&after={first['after']}")
    assert (status, [task["id"] for task in rest["tasks"]], "truncated" in rest) == (200, ids[4:], False)


@pytest.mark.usefixtures("budget")
def test_an_update_is_never_refused_for_its_answer(worker):
    ids = add(20)
    status, answer = worker(
        "POST", "/update", updates=[{"id": task, "keep": True, "timespec": -60_000} for task in ids]
    )
    assert (status, data_of(answer["tasks"])) == (200, [MIB] * 20)
    assert room.add(0) == 0


def test_the_data_of_a_duplicate_is_sent_once(worker):
    add(1, unique="k")
    status, answer = worker("POST", "/update", adds=[{"group": "mail", "unique": "k"}] * 300)
    first, *others = answer["tasks"]
    assert (status, len(first["data"]), len(others)) == (200, MIB, 299)
    assert {task["id"] for task in others} == {first["id"]}
    assert not any("data" in task or "data_base64" in task for task in others)


def test_all_large_answers_have_a_budget_together(worker, settings, monkeypatch):
    monkeypatch.setattr("tasks_app.writer.writer.PATIENCE_S", 0.3)
    monkeypatch.setattr("tasks_app.database.transaction.PATIENCE_S", 0.3)
    settings.TASKSTORE_MAX_ANSWERS_BYTES = 4 * MIB
    ids = add(3, size=2 * MIB)
    place = taken(3 * MIB, 4 * MIB)
    for answer in (worker("POST", "/claim", group="mail"), worker("GET", f"/task/{ids[0]}")):
        assert answer[0] == 503
        assert answer[1]["detail"] == "too many large responses are being sent: try again later"
    assert Task.objects.find(ids).count(None) == 0  # Nothing was claimed.
    place.leave()
    assert data_of(worker("POST", "/claim", group="mail")[1]["tasks"]) == [2 * MIB]


def test_who_waits_for_room_gets_it(worker):
    add(1, size=2 * MIB)
    place = taken(191 * MIB, 192 * MIB)
    threading.Timer(0.5, place.leave).start()
    began_s = time.monotonic()
    assert data_of(worker("POST", "/claim", group="mail")[1]["tasks"]) == [2 * MIB]
    assert time.monotonic() - began_s > 0.4
    assert room.add(0) == 0


def test_data_outlives_its_task_for_those_who_were_told_of_it(worker):
    [task] = add(1)
    told = Task.objects.read([task])
    Task.objects.commit(owner=ANN, deletes=[task])
    [record] = Task.objects.with_data(told)
    assert record.data == b"x" * MIB
    assert list(KeptPayload.objects.values_list("id", "gone")) == [(task, 1)]
    assert Payload.objects.count() == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain",
        bytes(range(128)),
        "Zürich \U0001f4ec".encode() * 1000,
        b"\xff\xfe",
        bytes(range(256)),
        b'\\"\x7f\x00',
    ],
)
def test_the_size_in_json_is_exact(worker, data):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=data)])
    _, answer = worker("POST", "/claim", group="mail")
    fields = {name: answer["tasks"][0][name] for name in ("data", "data_base64") if name in answer["tasks"][0]}
    assert json_size(data) == len(json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()) - 2
