"""Large bodies: decoded in another process, and the same in all that a client sees."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.test import override_settings

from tasks_app.models import Scope
from tasks_app.offload.helper_process import Helper, helper
from tasks_app.rest_api.bodies import decoded, whole_of
from tasks_app.wire import strict_json
from taskstore.errors import InvalidInput, LimitExceeded, StoreBusy
from taskstore.types.requests import ClaimRequest, UpdateRequest
from taskstore.worker import process_tree as tree
from tests.worker.children import within

from .api import ANN, Api

PATIENCE_S = 60


@pytest.fixture
def api(db):
    return Api(Scope.OPERATE)


@pytest.fixture(params=["in a thread", "by the helper"])
def everything_is_large(request, monkeypatch):
    monkeypatch.setattr(strict_json, "LIGHT_BYTES", 0)
    monkeypatch.setattr(strict_json, "LIGHT_VALUES", -1)
    if request.param == "by the helper":
        monkeypatch.setattr(strict_json, "HEAVY_VALUES", -1)


def test_a_large_update_does_what_a_small_one_does(api, everything_is_large):
    first, second = api.committed(adds=[{"group": "mail", "data": "a"}, {"group": "mail"}])
    adds = [{"group": "reports", "data": f"{number}", "labels": {"to": "Ann"}} for number in range(600)]
    asked = {"adds": adds, "updates": [{"id": first["id"], "data": "b"}], "deletes": [second["id"]]}
    tasks = api.committed(**asked)
    assert [task["data"] for task in tasks] == [*(add["data"] for add in adds), "b"]
    assert {task["group"] for task in tasks[:-1]} == {"reports"}
    assert tasks[0]["labels"] == {"to": "Ann"}
    assert tasks[-1]["origin"] == first["id"]
    assert api.get(f"/tasks/{first['id']},{second['id']}") == (200, [None, None])


def test_large_claims_imports_and_jobs_do_what_small_ones_do(api, everything_is_large):
    assert api.send("/import", b'{"group": "mail"}\n{"group": "mail"}\n')[1]["imported"] == 2
    assert len(api.claimed(groups=["mail", "reports"], group=None, limit=2)) == 2
    status, job = api.post("/jobs", {"function": "f", "args": [None, 2**70]})
    assert (status, job["args"]) == (200, [None, 2**70])


def test_a_claim_names_as_many_groups_as_the_setting_says(api):
    groups = [f"group {number}" for number in range(1_001)]
    status, answer = api.post("/claim", {"clientid": ANN, "groups": groups})
    assert (status, answer["errors"]) == (413, {"groups": ["must have at most 1000 groups, not 1001"]})
    assert api.post("/claim", {"clientid": ANN, "groups": groups[:1_000]})[0] == 200


def test_far_too_many_groups_are_refused_before_anybody_looks_at_each(db):
    """They would come out of the pipe and be compared with the token's one by one, on the event loop."""
    status, answer = Api(groups=("pay",)).post("/claim", {"clientid": ANN, "groups": ["mail"] * 100_000})
    assert (status, answer["errors"]) == (413, {"groups": ["must have at most 1000 groups, not 100000"]})


@pytest.mark.once
@pytest.mark.parametrize("item", [b"1", b'"a"', b"{}", b"[]", b'{"group": "mail"}'])
def test_more_values_than_the_limit_are_refused_before_they_are_built(db, monkeypatch, item):
    def nothing_is_read(_: bytes) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(strict_json, "read", nothing_is_read)
    with pytest.raises(LimitExceeded, match="at most 1000000 values"):
        list(decoded(b'{"clientid": 1, "adds": [' + b",".join([item] * 1_100_000) + b"]}", UpdateRequest))


def test_what_stands_in_texts_does_not_count(db):
    data = '[{,\\"' * 300_000
    body = json.dumps({"clientid": 1, "adds": [{"group": "mail", "data": data}]}).encode()
    assert whole_of([*decoded(body, UpdateRequest)]).commit.adds[0].data == data.encode()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"function": "f", "args": ["?"]}, ["args[0]"]),
        ({"function": "f", "kwargs": {"to": [{"a": "?"}]}}, ["kwargs.to[0].a"]),
    ],
)
def test_an_integer_of_5000_digits_is_named(api, body, names):
    status, answer = api.send("/jobs", json.dumps(body).replace('"?"', "9" * 5_000))
    assert (status, list(answer["errors"])) == (400, names)


def test_a_fraction_of_5000_digits_is_refused(api):
    status, answer = api.send("/update", b'{"clientid": 1.' + b"1" * 5_000 + b"}")
    assert (status, list(answer["errors"])) == (400, ["body"])


@pytest.mark.once
def test_the_helper_is_replaced_when_it_dies(db):
    body = json.dumps({"clientid": 1, "group": "mail"}).encode()
    assert helper.run(decoded, body, ClaimRequest)[0].group == "mail"
    assert helper.pid
    os.kill(helper.pid, signal.SIGKILL)
    assert helper.run(decoded, body, ClaimRequest)[0].group == "mail"


@pytest.mark.once
@pytest.mark.parametrize("who", ["itself", "all"])
def test_the_helper_is_replaced_when_it_does_not_answer(db, monkeypatch, who):
    monkeypatch.setattr("tasks_app.offload.helper_process.MOST_S", 1.0)
    monkeypatch.setattr("tasks_app.offload.helper_process.GRACE_S", 1.0)
    body = b'{"clientid": 1, "group": "mail"}'
    helper.run(decoded, body, ClaimRequest)
    assert helper.pid
    assert helper._children
    assert helper._children._server
    server = helper._children._server.pid
    stopped = [helper.pid] if who == "itself" else [server, *tree.descendants(server)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        answer = within(PATIENCE_S, lambda: helper.run(decoded, body + b" " * 1_000_000, ClaimRequest))
    finally:
        for pid in stopped:
            tree.send(pid, signal.SIGKILL)
    assert answer[0].group == "mail"
    assert helper.pid not in stopped


@pytest.mark.once
def test_the_helper_gives_its_memory_back_when_it_is_idle(db, monkeypatch):
    monkeypatch.setattr("tasks_app.offload.helper_process.IDLE_S", 0.05)
    body = json.dumps({"clientid": 1, "group": "mail"}).encode()
    one = Helper()
    for _ in range(2):
        assert one.run(decoded, body, ClaimRequest)[0].group == "mail"
        process = Path(f"/proc/{one.pid}")  # It may have ended already.
        until = time.monotonic() + PATIENCE_S
        while (one.pid or process.exists()) and time.monotonic() < until:
            time.sleep(0.01)
        assert not one.pid
        assert not process.exists()


@pytest.mark.once
def test_a_body_of_which_the_helper_dies_twice_is_refused(db):
    one = Helper()
    with pytest.raises(StoreBusy, match="send less"):
        one.run(os._exit, 1)
    one.end()


@pytest.mark.once
def test_the_helper_judges_by_the_settings_of_the_server(db):
    body = json.dumps({"clientid": 1, "group": "mail", "groups": ["a", "b"]}).encode()
    with override_settings(TASKSTORE_MAX_VALUES=999), pytest.raises(LimitExceeded):
        helper.run(decoded, b"[" * 3_000, ClaimRequest)
    with pytest.raises(InvalidInput, match="must not be given together with group"):
        helper.run(decoded, body, ClaimRequest)


@pytest.mark.once
def test_the_helper_ends_with_its_server():
    lines = (
        "import os, django; django.setup()",
        "from tasks_app.offload.helper_process import helper",
        "from tasks_app.rest_api.bodies import decoded",
        "from taskstore.types.requests import ClaimRequest",
        'helper.run(decoded, b\'{"clientid": 1, "group": "mail"}\', ClaimRequest)',
        "print(helper.pid, flush=True)",
        "os.kill(os.getpid(), 9)",
    )
    server = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    pid, until_s = int(server.stdout), time.monotonic() + PATIENCE_S
    while os.path.exists(f"/proc/{pid}/exe") and state_of(pid) != "Z":
        assert time.monotonic() < until_s
        time.sleep(0.05)


def state_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(") ")[2][0]
    except FileNotFoundError:
        return "Z"
