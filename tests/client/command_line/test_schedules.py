"""Commands about schedules. What comes of them when they are due is in tests/schedules."""

import pytest

pytestmark = pytest.mark.once


def test_a_schedule_is_made_changed_paused_run_and_deleted(command, ann):
    told = command(
        "schedule", "put", "nightly", "0 3 * * *", "2026", "--job", "reports.build", "--zone", "Europe/Berlin"
    )
    assert told.out.startswith("nightly adds job reports.build: ")
    [schedule] = command("schedule", "show", "nightly", "--json").records
    assert (schedule["job"]["args"], schedule["zone"]) == ([2026], "Europe/Berlin")
    command("schedule", "put", "nightly", "@hourly", "hello", "--group", "mail", "--label", "tier=gold")
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
