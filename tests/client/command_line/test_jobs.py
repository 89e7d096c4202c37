"""Commands about jobs. That a worker runs them is in tests/server/test_command_line.py."""

import pytest

pytestmark = pytest.mark.once


def test_a_job_is_enqueued_with_its_parameters(command):
    told = command(
        "job", "enqueue", "reports.build", "2026", "draft", "--with", 'to=["ann"]', "--priority", "3", "--json"
    )
    [job] = told.records
    assert (job["args"], job["kwargs"], job["priority"]) == ([2026, "draft"], {"to": ["ann"]}, 3)
    later = command("job", "enqueue", "reports.build", "--at", "+1h", "--queue", "slow", "--max-attempts", "3")
    assert later.out.endswith(" is scheduled in the queue slow\n")
    assert [line.split()[1:3] for line in command("job", "list").words[1:]] == [
        ["scheduled", "reports.build"],
        ["pending", "reports.build"],
    ]
    [scheduled] = command("job", "list", "--status", "scheduled", "--json").records
    assert scheduled["options"]["max_attempts"] == 3
    shown = command("job", "show", str(job["id"])).words
    assert {'args 2026 "draft"', 'kwargs to=["ann"]', "queue default"} <= {*shown}


def test_only_a_finished_job_is_deleted_or_runs_again(command):
    [job] = command("job", "enqueue", "reports.build", "--json").records
    for verb in ("delete", "requeue"):
        told = command("job", verb, str(job["id"]))
        assert (told.code, told.out) == (1, "")
    assert command("job", "wait", str(job["id"]), "--timeout", "1ms").code == 1
    gone = command("job", "show", "999999")
    assert (gone.code, gone.err) == (1, "taskstore: job 999999 does not exist; it may have been deleted\n")
    assert command("job", "list", "--queue", "nothing").code == 1
