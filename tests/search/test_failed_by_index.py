"""Failed tasks are found through their indexes, however many tasks did not fail."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from tasks_app import bulk
from tasks_app.bulk import Selection
from tasks_app.core.operations import GroupScope
from tasks_app.models import Task
from tasks_app.reading.failures import failures
from tasks_app.reading.listing import Cursor, page_of
from tasks_app.reading.search.finding import find, find_all
from tasks_app.reading.search.grammar import parse
from taskstore.types.tasks import State
from tests.console.store import add
from tests.people import make_user, signed_in

pytestmark = pytest.mark.django_db

EXPLAIN = {"postgresql": "EXPLAIN", "sqlite": "EXPLAIN QUERY PLAN"}
INDEXES = ("task_failed", "task_failed_newest")
MIDDLE = Cursor(available_at_ms=0, id=4_000)


@pytest.fixture
def some_failed() -> None:
    """A few failed tasks among many others, in two groups."""
    for group in ("mail", "reports"):
        add(group, count=4_000)
        add(group, count=3, error="timed out")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE tasks_app_task")  # As autovacuum does all the time.


@contextmanager
def plans() -> Iterator[list[tuple[str, str]]]:
    """Each statement that asks which tasks failed, with the way on which the database finds them."""
    seen = []

    def explain(execute: Callable, sql: str, parameters: object, many: bool, context: dict) -> object:
        _, _, conditions = sql.partition("WHERE")
        if "tasks_app_task" in sql and "error" in conditions:
            execute(f"{EXPLAIN[connection.vendor]} {sql}", parameters, many, context)
            seen.append((sql, str(context["cursor"].fetchall())))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(explain):
        yield seen


def look_at_admin(query: str) -> None:
    assert signed_in(make_user("olaf", "operator")).get(f"/admin/tasks_app/task/?{query}").status_code == 200


LOOKS = {
    "search": lambda: find(parse("state:failed")),
    "search further": lambda: find(parse("state:failed"), after=MIDDLE),
    "search in a group": lambda: find(parse("group:mail state:failed")),
    "search further in a group": lambda: find(parse("group:mail state:failed"), after=MIDDLE),
    "search below a name": lambda: find(parse("group:ma* state:failed")),
    "search for what is older": lambda: find(parse("state:failed age:>1h")),
    "search as who may see a group": lambda: find(parse("state:failed"), scope=GroupScope(("mail", "pay/*"))),
    "search for an error": lambda: find(parse("error:timed")),
    "search for an error in a group": lambda: find(parse("group:mail error:timed")),
    "search for all": lambda: list(find_all(parse("state:failed"))),
    "preview": lambda: bulk.preview(Selection(state=State.FAILED)),
    "preview in a group": lambda: bulk.preview(Selection(group="mail", state=State.FAILED)),
    "failed page": lambda: failures(),
    "failed page of a group": lambda: failures("mail"),
    "group": lambda: page_of("mail", State.FAILED),
    "group, next page": lambda: page_of("mail", State.FAILED, after=MIDDLE),
    "group, page before": lambda: page_of("mail", State.FAILED, before=MIDDLE),
    "count": lambda: Task.objects.get_queryset().failed().count(),
    "admin": lambda: look_at_admin("group=mail&state=failed"),
    "admin's search": lambda: look_at_admin("q=mail&state=failed"),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_an_index_knows_what_failed(some_failed, look):
    with plans() as seen:
        look()
    assert seen
    assert [each for each in seen if not any(index in each[1] for index in INDEXES)] == []
