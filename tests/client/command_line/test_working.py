"""Commands that do by hand what workers do."""

import pytest

from taskstore import NewTask

pytestmark = pytest.mark.once


def tasks_in(client, group):
    return list(client.group(group, owned=True))


def test_tasks_are_added_from_an_argument_a_file_and_standard_input(command, ann, tmp_path):
    (tmp_path / "data").write_bytes(b"\x00\xff")
    [added] = command("add", "mail", "hello", "--label", "tier=gold", "--priority", "3", "--json").records
    told = command("add", "mail", "--file", str(tmp_path / "data"))
    assert told.out == f"added task {added['id'] + 1} to mail\n"
    assert command("add", "mail", "-", stdin="typed\n").code == 0
    found = {task.data: task for task in tasks_in(ann, "mail")}
    assert found.keys() == {b"hello", b"\x00\xff", b"typed\n"}
    assert (found[b"hello"].labels, found[b"hello"].priority) == ({"tier": "gold"}, 3)


def test_each_line_is_a_task(command, ann):
    told = command("add", "mail", "--lines", "--at", "+1h", stdin="\ufeffone\r\n\n# none\n" + "more\n" * 1_500)
    assert told.out == "added 1 501 tasks to mail\n"
    stats = ann.stats().groups[0]
    assert (stats.ready, stats.scheduled) == (0, 1_501)
    # Nobody's: the next command may take them away again.
    first = next(task for task in tasks_in(ann, "mail") if task.data == b"one")
    assert command("delete", str(first.id)).out == f"deleted task {first.id}\n"


def test_what_is_claimed_belongs_to_its_client(command, ann):
    ann.add("mail", "hello")
    told = command("claim", "reports", "mail", "--for", "10min", "--client", "17")
    assert "hello" in told.out
    assert "--client 17" in told.err
    [task] = tasks_in(ann, "mail")
    assert (task.owner, task.claims) == (17, 1)
    refused = command("delete", str(task.id))
    assert (refused.code, refused.err) == (1, f"taskstore: leased to another client: {task.id}\n")
    assert command("delete", str(task.id), "--client", "17").code == 0
    nothing = command("claim", "mail", "--wait", "1ms")
    assert (nothing.code, nothing.err) == (1, "taskstore: no task is available in mail\n")


def test_an_update_leaves_what_it_does_not_name(command, ann):
    task = ann.add("mail", "data", labels={"tier": "gold"}, error="no", priority=7)

    def updated(*arguments):
        [before] = tasks_in(ann, "mail")
        [record] = command("update", str(before.id), *arguments, "--json").records
        return record["data"], record["error"], record["labels"], record["priority"]

    assert updated("--priority", "8") == ("data", "no", {"tier": "gold"}, 8)
    assert updated("--error", "") == ("data", "", {"tier": "gold"}, 8)
    assert updated("new", "--label", "tier=tin") == ("new", "", {"tier": "tin"}, 8)
    assert updated("--no-labels") == ("new", "", {}, 8)
    updated("--at", "+1h", "--release")
    assert updated("--priority", "1")[3] == 1
    assert ann.stats().groups[0].scheduled == 1
    gone = command("update", str(task.id), "x")
    assert (gone.code, gone.out) == (1, "")
    assert f"task {task.id} was replaced by task " in gone.err


def test_a_lease_is_renewed_and_given_back(command, ann):
    ann.add("mail")
    [task] = ann.claim("mail", duration_ms=60_000)
    [renewed] = command("update", str(task.id), "--at", "+1h", "--client", "1", "--json").records
    assert renewed["timespec"] - task.available_at_ms > 3_000_000
    [free] = command("update", str(renewed["id"]), "--release", "--client", "1", "--json").records
    assert free["ownerid"] == 0
    assert ann.stats().groups[0].ready == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "mail", "x", "--lines"), "either DATA or --lines"),
        (("add", "mail", "x", "--at", "soon"), "must be a time such as"),
        (("add", "mail", "x", "--at", "0001-01-01T00:00"), "must be after 1 January 1970"),
        (("add", "mail", "x", "--label", "gold"), "must be NAME=VALUE, not gold"),
        (("claim", "mail", "--for", "a while"), "must be a duration such as"),
        (("update", "1", "--label", "a=b", "--no-labels"), "either --label or --no-labels"),
        (("claim", "other", "--for", "0s"), "must be longer than 0, such as 30s or 10min, not 0s"),
        (("delete", "0"), f"must be between 1 and {2**63 - 1}, not 0"),
        (("job", "enqueue", "a.b", "--max-attempts", "0"), "must be at least 1, not 0"),
        (("add", "", "x"), "group"),
    ],
)
def test_what_is_typed_wrongly_is_exit_code_2(command, ann, arguments, words):
    ann.add("other")
    told = command(*arguments)
    assert told.code == 2
    assert words in told.err
    assert ann.groups() == ["other"]


@pytest.mark.parametrize("arguments", [("update", "new"), ("delete",)])
def test_an_id_that_was_replaced_names_its_successor(command, ann, served, arguments):
    verb, *data = arguments
    first, other, ended = ann.add("mail"), ann.add("mail"), ann.add("mail")
    [held] = ann.claim("mail", order="oldest")
    ann.delete(ended.id)
    ids = [str(first.id)] if verb == "update" else [str(other.id), str(first.id)]
    told = command(verb, *ids, *data)
    meant = " ".join([str(held.id)] if verb == "update" else [str(held.id), str(other.id)])
    assert (told.code, told.err) == (
        1,
        f"taskstore: task {first.id} was replaced by task {held.id}, so nothing was changed: "
        f"use `taskstore {verb} {meant} --url {served.url} --token TOKEN` with the same options\n",
    )
    told = command(verb, str(ended.id), *data)
    assert told.code == 1
    assert f"task {ended.id} has ended: deleted by client" in told.err
    told = command(verb, "999999", *data)
    assert (told.code, told.err) == (
        1,
        "taskstore: task 999999 does not exist, or its history has expired, so nothing was changed\n",
    )


# ---- Commands about jobs. That a worker runs them is in tests/server/test_command_line.py


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


def test_a_job_is_cancelled_by_its_id(command, ann):
    ids = [str(command("job", "enqueue", "reports.build", "--json").records[0]["id"]) for _ in range(2)]
    [task] = ann.commit(adds=[NewTask(group="mail")])
    assert f"job {task.id} does not exist" in command("job", "cancel", ids[0], str(task.id)).err
    assert command("job", "cancel", "999999").err == "taskstore: job 999999 does not exist; it may have been deleted\n"
    told = command("job", "cancel", *ids, "--reason", "wrong")
    assert told.out == "cancelled 2 jobs\n"
    assert "status cancelled" in command("job", "show", ids[0]).words
    assert command("job", "cancel", ids[0]).err == "taskstore: nothing was cancelled: the job has ended\n"


# ---- Commands about schedules. What comes of them when they are due is in tests/schedules


def test_a_schedule_is_made_changed_paused_run_and_deleted(command, ann):
    told = command(
        "schedule", "put", "nightly", "0 3 * * *", "2026", "--job", "reports.build", "--zone", "Europe/Berlin"
    )
    assert told.out.startswith("nightly adds job reports.build: ")
    [schedule] = command("schedule", "show", "nightly", "--json").records
    assert (schedule["job"]["args"], schedule["zone"]) == ([2026], "Europe/Berlin")
    runs = ("--overlap", "wait", "--expires", "10min", "--unique", "nightly")
    command("schedule", "put", "nightly", "@hourly", "hello", "--group", "mail", "--label", "tier=gold", *runs)
    shown = command("schedule", "show", "nightly").words
    assert {"overlap wait", "expires 10 min after it is due", "unique key nightly"} <= {*shown}, shown
    assert command("schedule", "list").words[1].startswith("nightly ")
    assert "adds task in mail" in command("schedule", "show", "nightly").words
    assert command("schedule", "pause", "nightly").out == "nightly is paused\n"
    assert command("schedule", "list").words[1].endswith(" paused")
    assert command("schedule", "resume", "nightly").out.startswith("nightly is resumed, next in ")
    assert command("schedule", "run", "nightly").out.endswith(" to mail\n")
    assert [task.data for task in ann.group("mail")] == [b"hello"]
    assert command("schedule", "delete", "nightly").code == 0
    for verb in ("show", "delete", "pause", "run"):
        assert command("schedule", verb, "nightly").code == 1


def test_what_makes_no_sense_is_told(command):
    for wrong in ([], ["--job", "a.b", "--group", "mail"], ["one", "two", "--group", "mail"]):
        told = command("schedule", "put", "nightly", "0 3 * * *", *wrong)
        assert told.code == 2
    told = command("schedule", "put", "nightly", "0 3 * *", "--group", "mail")
    assert (told.code, "cron" in told.err) == (2, True)
    assert command("schedule", "list").code == 1


def test_a_batch_is_filled_released_and_deleted(command, ann):
    batch = command("batches", "create", "import", "--then", "report=now").out.strip()
    assert command("add", "mail", "--lines", "--batch", batch, stdin="1\n2\n").code == 0
    assert [task.batch for task in tasks_in(ann, "mail")] == [int(batch)] * 2
    assert "import" in command("batches", "list").out
    assert command("batches", "release", batch).out == f"batch {batch} is open\n"
    ann.delete(*tasks_in(ann, "mail"))
    [task] = tasks_in(ann, "report")
    assert (task.text, command("batches", "show", batch).out.split()[:2]) == ("now", ["batch", batch])
    other = command("batches", "create").out.strip()
    assert "deletes 0 tasks: operation " in command("batches", "delete", other).out
    missing = command("batches", "show", "99")
    assert (missing.code, "batch 99 does not exist" in missing.err) == (1, True)
