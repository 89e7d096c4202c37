"""Who asks, as one value: what verbs let them change, and what the audit log says of them."""

import pytest

from tasks_app import commands, schedules
from tasks_app.access.policy import Action, actor_of
from tasks_app.access.tokens import create
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.core.operations import GroupScope
from tasks_app.models import AuditEntry, PausedGroup, Scope
from tasks_app.schedules import PlannedTask, SchedulePlan
from taskstore.errors import Forbidden, InvalidInput
from taskstore.types.scalars import REASON_LENGTH

from .console.store import add, claim
from .people import make_user

pytestmark = pytest.mark.django_db

NO_COMMANDS = Actor("ann", GroupScope(no_commands_because="not here"))
HELD = "commands/default/new"


def test_a_token_and_a_person_of_the_same_name_are_told_apart():
    token, _ = create("ann", Scope.WORK, ["pay/*"], clients=[17])
    actor = actor_of(token, "a try")
    assert (actor.name, actor.reason, actor.scope.patterns, actor.scope.owners) == (
        "token:ann", "a try", ("pay/*",), (17,)
    )  # fmt: skip
    assert (actor.may(Action.WORK), actor.may(Action.OPERATE)) == (True, False)
    person = actor_of(make_user("ann", "operator"))
    assert (person.name, person.scope.patterns, person.may(Action.OPERATE)) == ("ann", None, True)


def test_the_program_itself_changes_everything_and_leaves_no_entry():
    pauses.pause("reports")
    schedules.put("nightly", SchedulePlan(cron="@daily", task=PlannedTask(group=HELD)))
    schedules.delete("nightly")
    add()
    [held] = claim()
    assert not pauses.give_back(held.id).leased
    commands.stash("default")
    assert PausedGroup.objects.get().by == ""
    assert not AuditEntry.objects.exists()


def test_the_reason_is_in_the_entry_and_has_an_end():
    pauses.pause("mail", Actor("ann").because("the server is down"))
    assert AuditEntry.objects.get().reason == "the server is down"
    for change in (pauses.pause, pauses.resume, schedules.delete):
        with pytest.raises(InvalidInput) as refused:
            change("mail", Actor("ann", reason="x" * (REASON_LENGTH + 1)))
        assert list(refused.value.fields) == ["reason"]


@pytest.mark.parametrize(
    "change",
    [
        lambda: pauses.pause(HELD, NO_COMMANDS),
        lambda: pauses.resume(HELD, NO_COMMANDS),
        lambda: commands.stash("default", actor=NO_COMMANDS),
        lambda: commands.retry("default", actor=NO_COMMANDS),
        lambda: commands.reopen("default", 1, NO_COMMANDS),
        lambda: schedules.put("a", SchedulePlan(cron="@daily", task=PlannedTask(group=HELD)), NO_COMMANDS),
    ],
)
def test_each_verb_asks_whether_the_actor_may_change_the_group(change):
    with pytest.raises(Forbidden, match="not here"):
        change()
    assert not AuditEntry.objects.exists()
