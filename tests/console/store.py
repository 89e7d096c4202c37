"""What the tests of the console put into the store. Ann and Bob are the owners, `mail` and `reports` the groups."""

from tasks_app import bulk
from tasks_app.bulk import Action, Asked, Selection
from tasks_app.core.actors import Actor
from tasks_app.models import BulkOperation, Level, Task
from tasks_app.reading.counts import LEVELS
from taskstore.types.tasks import Change, NewTask, Order

ANN = 1643
# What the console's form of each bulk action holds when somebody agrees to it for the group mail.
AGREED = {
    "requeue": {},
    "give_back": {},
    "move": {"to": "reports"},
    "edit": {"set_error": "1", "error": "known"},
    "cancel": {"typed": "mail"},
    "purge": {"typed": "mail"},
}
BOB = 2624


def add(group: str = "mail", count: int = 1, **fields) -> list[Task]:
    data = fields.pop("data", b"hello")
    return Task.objects.commit(owner=ANN, adds=[NewTask(group=group, data=data, **fields) for _ in range(count)])


def claim(group: str = "mail", count: int = 1, duration_ms: int = 60_000, owner: int = BOB) -> list[Task]:
    return Task.objects.claim(group, owner=owner, duration_ms=duration_ms, limit=count, order=Order.OLDEST)


def ids() -> set[int]:
    return set(Task.objects.get_queryset().values_list("id", flat=True))


def fail(task: Task, error: str = "no such recipient") -> Task:
    """The worker gives the task back with an error."""
    change = Change(id=task.id, error=error, release=True)
    return Task.objects.commit(owner=task.owner, updates=[change])[0]


def keep_level(minute: int, **numbers: int) -> Level:
    """How much there was at the end of the minute; of what is not named nothing."""
    return Level.objects.create(minute=minute, **dict.fromkeys(LEVELS, 0) | numbers)


def one_of_each_state(group: str = "mail") -> dict[str, Task]:
    """A task in each state but finished, which only records of jobs and commands are."""
    # Each is the only available one when it is claimed.
    claimed = claimed_task(group)
    failing = claimed_task(group)
    expired = claimed_task(group, duration_ms=0)
    [ready], [scheduled] = add(group), add(group, timespec_ms=-3_600_000)
    others = {"retrying": fail(failing), "failed": dead_letter(group)}
    return {"ready": ready, "claimed": claimed, "expired": expired, "scheduled": scheduled, **others}


def dead_letter(group: str = "mail", source: str = "reports", error: str = "no such recipient") -> Task:
    """A task that has failed in the group `source` and was put aside in this one."""
    change = Change(id=claimed_task(source).id, group=group, error=error, release=True)
    return Task.objects.commit(owner=BOB, updates=[change])[0]


def claimed_task(group: str, duration_ms: int = 60_000) -> Task:
    add(group)
    return claim(group, duration_ms=duration_ms)[0]


def change_all(
    action: type[Action], selection: Selection, *, by: str = "olaf", reason: str = "", typed: str = "", **parameters
) -> BulkOperation:
    """Begin a bulk operation as somebody does who agrees to its preview."""
    seen = bulk.preview(selection)
    asked = Asked(action=action(**parameters), selection=seen.selection, expected=seen.count, typed=typed)
    return bulk.start(asked, Actor(by, selection.scope, reason=reason))
