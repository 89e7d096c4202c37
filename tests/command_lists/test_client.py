"""`client.commands` against a server."""

import asyncio

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import AsyncClient, Client, CommandStatus, InvalidInput

from .stages import completed, is_in, open_list, run, running_list, writes

# What crosses the wire is the same on each database: test_looking.py, test_flow.py and tests/rest_api/test_commands.py
# run on both.
pytestmark = pytest.mark.once


@pytest.fixture
def secret(served, settings):
    settings.TASKSTORE_COMMANDS = True
    return tokens.create("ann", Scope.COMMANDS)[1]


@pytest.fixture
def client(served, secret):
    with Client(served.url, token=secret) as client:
        yield client


def test_what_is_wrong_is_named(client):
    with pytest.raises(InvalidInput, match=r"commands\[1\].cmd"):
        client.commands.submit("nightly", ["true", ""])
    for project in ("", "a/b"):
        with pytest.raises(InvalidInput, match="project"):
            client.commands.status(project)


def test_one_text_is_not_a_list_of_commands(client):
    with pytest.raises(InvalidInput, match="must be a list of command lines"):
        client.commands.submit("default", "true")


def test_a_project_tells_how_far_it_is(client):
    completed(duration_ms=2_000)
    task, made = running_list()
    task = writes(task, made, 1)
    seen = client.commands.status("default")
    [running] = seen.running
    assert (running.task, running.commands, running.done, running.worker) == (task.id, 2, 1, "")
    assert (seen.counts["running"], seen.lists["running"], seen.durations.mean_ms, seen.fails) == (1, 1, 2_000, 0)
    assert seen.forecast_s == pytest.approx(2)


def test_lists_are_seen_and_reopened(client):
    task, made = running_list()
    waiting, _ = open_list()
    task = writes(task, made)
    page = client.commands.lists("default", limit=1)
    assert [each.task for each in page.lists] == [task.id]
    assert [each.task for each in client.commands.lists("default", after=page.after).lists] == [waiting.id]
    [seen] = client.commands.lists("default", status=CommandStatus.RUNNING).lists
    whole = client.commands.list("default", seen.origin)
    assert (whole.list.task, len(whole.commands), len(whole.live)) == (task.id, 2, 1)
    assert client.commands.reopen("default", seen.task, reason="burnt").changed
    [again] = [each for each in client.commands.lists("default").lists if each.origin == seen.origin]
    assert (again.status, client.commands.reopen("default", again.task).changed) == (CommandStatus.OPEN, 0)
    assert client.commands.list("default", 99_999) is None


def test_results_are_found_and_run_again(client):
    _, good = completed(out=b"fine")
    task, bad = is_in(CommandStatus.FAILED_COUNT, run=run(failed=True, err=b"\xff"))
    page = client.commands.results("default", limit=1)
    [found] = page.commands
    assert (found.id, found.run.failed, found.run.err.kept) == (bad.id, True, b"\xff")
    assert [each.id for each in client.commands.results("default", after=page.after).commands] == [good.id]
    assert [each.id for each in client.commands.results("default", text="FINE").commands] == [good.id]
    assert client.commands.results("default", status="failed_time").commands == ()
    assert client.commands.archive("default").changed == 1
    assert client.commands.retry("default", [task.id], reason="fixed").changed == 1
    assert client.commands.retry("default", status=CommandStatus.COMPLETED_ARCHIVE).changed == 1
    assert client.commands.stash("default").changed == 2
    assert client.commands.unstash("default", [each.task for each in stashed(client)]).changed == 2


def stashed(client):
    return client.commands.results("default", status=CommandStatus.NEW_STASHED).commands


def test_it_can_be_awaited(served, secret):
    async def flow():
        async with AsyncClient(served.url, token=secret) as client:
            await client.commands.submit("nightly", ["true"], stashed=True)
            return await client.commands.status("nightly"), (await client.commands.unstash("nightly")).changed

    seen, changed = asyncio.run(flow())
    assert (seen.counts["new_stashed"], changed) == (1, 1)
