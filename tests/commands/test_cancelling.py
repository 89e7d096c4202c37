"""Single commands of a list are cancelled, while its worker goes on with the others."""

import os
import time

import pytest

from tasks_app.commands import cancel, cancelling, looking
from tasks_app.core.actors import Actor
from taskstore.commands.executor import Lists
from taskstore.types.command_record import Command, CommandStatus, group_of
from tests.jobs.workers import eventually

from .projects import NAME

pytestmark = pytest.mark.once
ANN = Actor("ann", reason="the wrong film")


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def cancelled(project):
    return [(Command.decode(task.data).cmd, task.error) for task in project.tasks(CommandStatus.CANCELLED)]


def ids(project):
    [made] = project.lists(CommandStatus.OPEN)
    return [command.id for command in made.commands]


def test_a_running_command_is_ended_and_the_others_of_its_list_go_on(project, tmp_path):
    first = f"echo $$ > {tmp_path}/pid; sleep 100; touch {tmp_path}/late"
    project.add_list(first, f"touch {tmp_path}/second", "sleep 0.1", f"touch {tmp_path}/last")
    running, _, third, _ = ids(project)
    with project.worker():
        assert eventually((tmp_path / "pid").exists)
        time.sleep(0.7)  # So that the worker asks for what is cancelled.
        pid, began_s = int((tmp_path / "pid").read_text()), time.monotonic()
        assert cancel(NAME, [running, third, "nothing"], ANN) == 2
        assert eventually(lambda: is_gone(pid))
        assert time.monotonic() - began_s < 10  # How long it takes is measured elsewhere.
        assert eventually((tmp_path / "last").exists)
    assert (tmp_path / "second").exists()
    assert not (tmp_path / "late").exists()
    why = "cancelled by ann: the wrong film"
    assert sorted(cancelled(project)) == sorted([(first, why), ("sleep 0.1", why)])
    done = [command.cmd for _, command in project.settled()]
    assert sorted(done) == sorted([f"touch {tmp_path}/second", f"touch {tmp_path}/last"])
    assert cancel(NAME, [running], ANN) == 0


def test_a_command_that_waits_is_taken_out_of_its_list(project):
    project.add_list("true", "false")
    _, second = ids(project)
    assert cancel(NAME, [second], ANN) == 1
    assert [name for name, _ in cancelled(project)] == ["false"]
    with project.worker():
        assert [command.cmd for command in project.ended()] == ["true"]


def test_the_last_command_of_a_list_and_a_new_one_are_cancelled(project):
    project.store.commands.submit(NAME, ["new"])
    [new] = project.tasks(CommandStatus.NEW)
    project.add_list("true")
    [only] = ids(project)
    asked = [only, Command.decode(new.data).id]
    assert project.store.commands.cancel(NAME, asked, "no more").changed == 2
    project.settled()
    assert sorted(name for name, _ in cancelled(project)) == ["new", "true"]


def test_a_worker_says_of_a_list_with_nothing_left_that_it_was_cancelled(project, tmp_path, caplog):
    caplog.set_level("INFO")
    project.add_list(f"echo $$ > {tmp_path}/pid; sleep 100")
    [only] = ids(project)
    with project.worker():
        assert eventually((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        assert cancel(NAME, [only], ANN) == 1
        assert eventually(lambda: is_gone(pid))
        assert eventually(lambda: "was cancelled" in caplog.text)
    assert "another worker" not in caplog.text


def test_only_what_is_named_is_cancelled_though_a_worker_claims_its_list_meanwhile(project, monkeypatch):
    project.add_list("first", "second", "third")
    look, claimed = looking.command, []

    def claiming(*asked):
        found = look(*asked)
        claimed.extend(project.store.claim(group_of(NAME, CommandStatus.OPEN)))
        return found

    _, second, _ = ids(project)
    monkeypatch.setattr(cancelling, "command", claiming)
    assert cancel(NAME, [second], ANN) == 1
    assert len(claimed) == 1
    assert [name for name, _ in cancelled(project)] == ["second"]
    assert [[command.cmd for command in each.commands] for each in project.lists(CommandStatus.OPEN)] == [
        ["first", "third"]
    ]


def test_what_has_ended_is_written_though_the_others_of_its_list_are_cancelled_meanwhile(project, monkeypatch):
    """All of them have ended at the worker, which has not written its list for the last time."""
    project.add_list("echo a", "echo b", "echo c")  # After the first one, the next two are written together.
    *_, third = ids(project)
    close = Lists._close

    def after_a_cancel(self, work, plan):
        assert not work.made.commands
        assert project.store.commands.cancel(NAME, [third]).changed == 1
        close(self, work, plan)

    monkeypatch.setattr(Lists, "_close", after_a_cancel)
    with project.worker():
        assert eventually(lambda: [command.cmd for command in project.ended()] == ["echo a", "echo b"])
    assert [name for name, _ in cancelled(project)] == ["echo c"]
    assert project.lists(CommandStatus.OPEN) == []
