"""Dead letters are sent back to where they failed, by whoever may put something there, and an undo brings them back."""

from typing import Any

import pytest

from tasks_app import bulk
from tasks_app.bulk import Cancel, Edit, Move, Purge, Requeue, Selection, Target
from tasks_app.core.actors import Actor
from tasks_app.core.operations import GroupScope, Operator
from tasks_app.models import Task
from tasks_app.reading import history
from taskstore.errors import Forbidden
from taskstore.types.tasks import NewTask
from tests.console.store import add, change_all

pytestmark = pytest.mark.django_db

FAILED = Selection(group="mail/failed")
NO_COMMANDS = GroupScope(no_commands_because="this needs a token with the scope commands")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 60)  # However busy the machine is.


def letter(group="mail", to="mail/failed", error="boom", **fields):
    [task] = add(group)
    moved = NewTask(id=task.id, group=to, data=b"hello", error=error, **fields)
    [there] = Task.objects.commit(owner=task.owner, adds=[moved], deletes=[task.id])
    return there


def now(task):
    return Task.objects.get(origin=task.origin)


def requeue(selection=FAILED, **parameters):
    return change_all(Requeue, selection, **parameters)


def test_a_dead_letter_goes_back_and_has_not_failed_any_more():
    there = letter(labels={"tier": "gold", "attempts": "3"}, priority=4)
    operation = requeue()
    back = now(there)
    assert (operation.done, back.group, back.error, back.priority) == (1, "mail", "", 4)
    assert (back.labels, back.owner, back.leased, bytes(back.data)) == ({"tier": "gold"}, 0, False, b"hello")
    chain = history.chain_of(there.id)
    assert chain
    assert [step.ending for step in chain.ended] == ["moved", "requeued"]


def test_a_preview_names_each_target_with_its_numbers():
    for group in ("mail", "mail", "reports"):
        letter(group, "graveyard")
    add("graveyard", error="here already")
    add("graveyard")
    everywhere = Selection(q="group:graveyard")
    seen = bulk.preview(everywhere, Requeue())
    assert list(seen.targets) == [
        Target(group="mail", count=2, moved=2),
        Target(group="graveyard", count=1),
        Target(group="reports", count=1, moved=1),
    ]
    assert (seen.count, seen.ready_already, seen.dead_letters) == (5, 1, 3)
    assert list(bulk.preview(everywhere, Requeue(here=True)).targets) == [Target(group="graveyard", count=4)]
    assert bulk.preview(everywhere, Purge()).targets == []


def test_claimed_ones_are_counted_apart():
    letter(), letter()
    Task.objects.claim("mail/failed", owner=1)
    assert list(bulk.preview(FAILED, Requeue()).targets) == [Target(group="mail", count=1, claimed=1, moved=2)]


def test_an_undo_makes_them_dead_letters_again():
    there = letter(labels={"tier": "gold", "attempts": "3"})
    before = (there.group, there.error, there.labels)
    operation = requeue()
    bulk.undo(operation, Actor("olaf"))
    assert (now(there).group, now(there).error, now(there).labels) == before
    assert now(there).failed_from == "mail"
    requeue()
    assert now(there).group == "mail"


def test_of_several_targets_those_are_left_alone_that_may_not_be_touched():
    allowed, forbidden = letter("mail", "all/failed"), letter("commands/x/open", "all/failed")
    operation = requeue(Selection(group="all/failed", scope=NO_COMMANDS))
    assert (operation.done, operation.skipped) == (1, 1)
    [why] = bulk.reasons(operation.pk)
    assert "commands/x/open" in why
    assert "scope commands" in why
    assert (now(allowed).group, now(forbidden).id) == ("mail", forbidden.id)
    with pytest.raises(Forbidden, match="scope commands"):
        requeue(Selection(group="all/failed", scope=NO_COMMANDS))


@pytest.mark.parametrize("status", ["failed_count", "failed_time", "failed_archive", "completed"])
def test_commands_that_have_ended_are_left_to_the_verbs_of_their_project(status):
    [task] = add(f"commands/x/{status}", error="boom")
    selection = Selection(group=f"commands/x/{status}")
    assert (bulk.preview(selection, Requeue()).ended, bulk.preview(selection, Requeue()).targets) == (1, [])
    operation = requeue(selection)
    assert bulk.reasons(operation.pk) == {"a command that has ended: retry it in its project": 1}
    assert now(task).id == task.id


# ---- What feeds groups of commands


def schedule(name="s", group="commands/x/new"):
    data = f'{{"task": {{"group": "{group}"}}}}'.encode()
    return add("schedules", data=data, labels={"name": name})[0]


@pytest.mark.parametrize("verb", [Move, Edit, Requeue])
def test_who_may_not_change_commands_does_nothing_to_what_feeds_them(verb):
    feeding, other = schedule("s"), schedule("t", "mail")
    every: dict[type[bulk.Action], dict[str, Any]] = {Move: {"to": "archive", "create": True}, Edit: {"error": "no"}}
    more = every.get(verb, {})
    with pytest.raises(Forbidden, match="commands/x/new"):
        change_all(verb, Selection(ids=(feeding.id,), scope=NO_COMMANDS), **more)
    both = Selection(ids=(feeding.id, other.id), scope=NO_COMMANDS)
    operation = change_all(verb, both, **more)
    assert Task.objects.filter(id=feeding.id).exists()
    assert operation.failed == 0
    assert any("commands/x/new" in why for why in bulk.reasons(operation.pk))


def test_nor_by_a_commit():
    feeding, ann = schedule(), Operator(name="Ann")
    with pytest.raises(Forbidden, match="commands/x/new"):
        Task.objects.commit(owner=0, deletes=[feeding.id], scope=NO_COMMANDS)
    for operator in (None, ann):
        moved = NewTask(id=feeding.id, group="archive")
        with pytest.raises(Forbidden, match="commands/x/new"):
            Task.objects.commit(owner=0, adds=[moved], deletes=[feeding.id], scope=NO_COMMANDS, operator=operator)
    assert Task.objects.get().id == feeding.id


@pytest.mark.parametrize("verb", [Purge, Cancel])
def test_but_operators_delete_what_somebody_has_planted(verb):
    feeding = schedule()
    change_all(verb, Selection(ids=(feeding.id,), scope=NO_COMMANDS))
    assert not Task.objects.exists()
    again = schedule()
    Task.objects.commit(owner=0, deletes=[again.id], scope=NO_COMMANDS, operator=Operator(name="Ann"))
    assert not Task.objects.exists()
