"""Commands in batches: what comes when all of them have succeeded."""

import time

import pytest

from tasks_app.commands.bundling import look_after
from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.command_record import CommandStatus
from taskstore.types.tasks import NewTask

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
    assert batch_of(project, made).state == "succeeded"


def test_a_command_that_fails_for_good_keeps_the_batch_open_until_it_is_retried(project, work_off, tmp_path):
    made = project.store.commands.submit(NAME, ["true", f"test -e {tmp_path}/there"], then=[f"touch {tmp_path}/then"])
    work_off(lambda: len(ended(project, CommandStatus.FAILED_COUNT)) == 1)
    assert batch_of(project, made).is_stuck
    (tmp_path / "there").touch()
    project.store.commands.retry(NAME)
    work_off(lambda: batch_of(project, made).state == "succeeded")
    assert (tmp_path / "then").exists()
    assert (batch_of(project, made).name, batch_of(project, made).total) == (f"commands of {NAME}", 3)
    project.store.commands.retry(NAME, status="completed")


def test_more_commands_join_a_batch_that_is_held(project, work_off, tmp_path):
    made = project.store.commands.submit(NAME, ["true"], then=[f"touch {tmp_path}/then"], hold=True)
    work_off(lambda: len(ended(project, CommandStatus.COMPLETED)) == 1)
    assert batch_of(project, made).state == "held"
    project.store.commands.submit(NAME, ["true"], batch=made[0].batch)
    project.store.batches.release(made[0].batch)
    assert batch_of(project, made).state == "open"
    work_off((tmp_path / "then").exists)


def test_commands_after_a_batch_are_submitted_when_it_closes_or_at_once_when_it_has(project, work_off, tmp_path):
    store = project.store
    batch = store.batches.create("scan", [NewTask(group="pages")], then=NewTask(group="bind")).batch
    for name in ("one", "other"):
        assert store.commands.submit(NAME, [f"touch {tmp_path}/{name}"], after=batch.id) == []
    assert ended(project, CommandStatus.NEW) == []
    store.delete(*store.claim("pages"))
    assert len(ended(project, CommandStatus.NEW)) == 2
    assert len(list(store.group("bind"))) == 1
    store.commands.submit(NAME, [f"touch {tmp_path}/late"], after=batch.id)
    work_off(lambda: len(ended(project, CommandStatus.COMPLETED)) == 3)
    assert {path.name for path in tmp_path.iterdir()} >= {"one", "other", "late"}


def test_commands_after_a_batch_that_is_not_there_or_is_full_are_refused(project):
    store = project.store
    with pytest.raises(CommitRefused, match="batch 99 does not exist"):
        store.commands.submit(NAME, ["true"], after=99)
    with pytest.raises(InvalidInput, match="must not be given together"):
        store.commands.submit(NAME, ["true"], after=99, batch=1)
    batch = store.batches.create(hold=True).batch
    store.commands.submit(NAME, ["true"] * 1_000, after=batch.id)
    with pytest.raises(CommitRefused, match="may add at most 1000 tasks when it closes, not 1001"):
        store.commands.submit(NAME, ["true"], after=batch.id)
    store.batches.release(batch.id)
    assert len(ended(project, CommandStatus.NEW)) == 1_000
