"""Commands in batches: what comes when all of them have succeeded."""

import time

import pytest

from tasks_app.commands.bundling import look_after
from taskstore.types.command_record import CommandStatus

from .projects import NAME

pytestmark = pytest.mark.once


@pytest.fixture
def work_off(project, settings):
    """Bundle, run and settle until nothing more happens for a moment."""
    settings.TASKSTORE_COMMAND_LISTS = "*=2/1d/0s"

    def work_off(until):
        with project.worker():
            end_s = time.monotonic() + 60
            while not until() and time.monotonic() < end_s:
                look_after()
                time.sleep(0.05)
        assert until()

    return work_off


def batch_of(project, made):
    return project.store.batches.get(made[0].batch)


def ended(project, status):
    return list(project.tasks(status))


def test_what_comes_then_is_submitted_once_when_all_have_succeeded(project, work_off, tmp_path):
    lines = [f"echo {number} >> {tmp_path}/out" for number in range(5)]
    made = project.store.commands.submit(NAME, lines, then=[f"wc -l < {tmp_path}/out > {tmp_path}/count"])
    other = project.store.commands.submit(NAME, ["true"])
    assert {each.batch for each in made} == {made[0].batch}
    assert (batch_of(project, made).open, other[0].batch) == (5, 0)
    work_off(lambda: len(ended(project, CommandStatus.COMPLETED)) == 7)
    assert (tmp_path / "count").read_text().strip() == "5"
    assert batch_of(project, made).state == "closed"


def test_a_command_that_fails_for_good_keeps_the_batch_open_until_it_is_retried(project, work_off, tmp_path):
    made = project.store.commands.submit(NAME, ["true", f"test -e {tmp_path}/there"], then=[f"touch {tmp_path}/then"])
    work_off(lambda: len(ended(project, CommandStatus.FAILED_COUNT)) == 1)
    assert batch_of(project, made).state == "failed"
    (tmp_path / "there").touch()
    project.store.commands.retry(NAME)
    work_off((tmp_path / "then").exists)
    assert batch_of(project, made).state == "closed"


def test_more_commands_join_a_batch_that_is_held(project, work_off, tmp_path):
    made = project.store.commands.submit(NAME, ["true"], then=[f"touch {tmp_path}/then"], hold=True)
    work_off(lambda: len(ended(project, CommandStatus.COMPLETED)) == 1)
    assert batch_of(project, made).state == "held"
    project.store.commands.submit(NAME, ["true"], batch=made[0].batch)
    project.store.batches.release(made[0].batch)
    assert batch_of(project, made).state == "open"
    work_off((tmp_path / "then").exists)
