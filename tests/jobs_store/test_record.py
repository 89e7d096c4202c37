"""A job as its task carries it: what is written is read again, and what is no job is refused by name."""

import json

import pytest

from taskstore.types.job_record import (
    Attempt,
    How,
    JobError,
    JobOptions,
    JobRecord,
    JobStatus,
    NotAJob,
    OnLost,
    new_task,
    queue_of,
    status_of,
)
from taskstore.types.tasks import State

pytestmark = pytest.mark.once

FAILED = Attempt(started=1, ended=2, how=How.FAILED, worker="a", host="b", pid=3, error=JobError(type="KeyError"))
WHOLE = JobRecord(
    function="mail.send",
    args=["ann", 2**70, {"deep": [None, True, 1.5]}],
    kwargs={"ü": "\0"},
    options=JobOptions(max_attempts=3, timeout_ms=5, on_lost=OnLost.FAIL),
    attempts=(FAILED, Attempt(started=4)),
    result={"sent": 1},
    error=JobError(type="KeyError", message="'to'", traceback="..."),
    log="done\n",
)


def test_what_was_written_is_read_again():
    assert JobRecord.decode(WHOLE.encode()) == WHOLE


def test_options_that_are_not_given_are_not_written_but_read_as_null():
    written = json.loads(WHOLE.encode())
    assert written["options"] == {"max_attempts": 3, "timeout_ms": 5, "on_lost": "fail"}
    written["options"] = {name: written["options"].get(name) for name in JobOptions.__struct_fields__}
    assert JobRecord.decode(json.dumps(written).encode()) == WHOLE
    assert json.loads(JobRecord(function="f").encode())["options"] == {}


@pytest.mark.parametrize(
    ("tree", "wrong"),
    [
        ("[]", "it must be an object"),
        ("no JSON", "Expecting value"),
        ('{"function": "a", "result": NaN}', "NaN is not valid JSON"),
        ('{"function": "a", "result": 1e400}', "1e400 is not valid JSON"),
        ('{"function": "a", "result": "\\ud800"}', "surrogates not allowed"),
        ('{"function": "a", "attempts": [{"started": -1}]}', "attempts[0].started must be between 0 and"),
        (b'{"function": "a", "result": "\xed\xa0\x80"}', "codec can't decode byte 0xed"),
        ('{"function": "a"}'.encode("utf-16"), "codec can't decode byte 0xff"),
        ("[" * 100_000, "recursion"),
        ("{}", "function is required"),
        ('{"function": ""}', "function must not be empty"),
        ('{"function": 1}', "function must be a string, not 1"),
        ('{"function": "a", "args": {}}', "args must be a list, not an object"),
        ('{"function": "a", "kwargs": []}', "kwargs must be an object"),
        (
            '{"function": "a", "options": {"max_attempts": true}}',
            "options.max_attempts must be an integer between 1 and",
        ),
        ('{"function": "a", "options": {"on_lost": "cry"}}', "options.on_lost must be one of retry, fail"),
        ('{"function": "a", "attempts": [{}, 1]}', "attempts[1] must be an object"),
        ('{"function": "a", "attempts": [{"how": "well"}]}', "attempts[0].how must be one of succeeded, failed"),
        ('{"function": "a", "attempts": [{"error": {}}]}', "attempts[0].error.type is required"),
        ('{"function": "a", "error": {"type": "E", "message": 1}}', "error.message must be a string"),
    ],
)
def test_what_is_no_job_is_refused_by_the_name_of_what_is_wrong(tree, wrong):
    with pytest.raises(NotAJob) as refused:
        JobRecord.decode(tree if isinstance(tree, bytes) else tree.encode())
    assert wrong in str(refused.value)


def test_a_job_is_a_task_of_its_queue_that_bears_its_function():
    task = new_task(WHOLE, queue="mail", at_ms=-5, priority=7)
    assert (task.group, task.labels, task.timespec_ms, task.priority) == (
        "jobs/mail", {"function": "mail.send"}, -5, 7,
    )  # fmt: skip
    assert json.loads(task.data)["function"] == "mail.send"


@pytest.mark.parametrize(
    ("group", "queue", "status"),
    [
        ("jobs/mail", "mail", JobStatus.STARTED),
        ("jobs/failed", "failed", JobStatus.STARTED),
        ("jobs/mail/failed", "mail", JobStatus.FAILED),
        ("jobs/mail/succeeded", "mail", JobStatus.SUCCEEDED),
        ("jobs/mail/other", None, None),
        ("jobs/", None, None),
        ("mail", None, None),
    ],
)
def test_the_group_tells_queue_and_status(group, queue, status):
    assert queue_of(group) == queue
    if queue:
        assert status_of(group, State.CLAIMED) == status
