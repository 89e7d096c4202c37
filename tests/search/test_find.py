"""Which tasks a search finds, and in what order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from tasks_app import bulk, database
from tasks_app.bulk import Selection
from tasks_app.core.operations import EVERY_GROUP, GroupScope
from tasks_app.models import Client, Task
from tasks_app.reading import clients
from tasks_app.reading.failures import failures
from tasks_app.reading.pages import Cursor, page_of
from tasks_app.reading.search import finding
from tasks_app.reading.search.finding import Scan, find, find_all
from tasks_app.reading.search.grammar import label_term, parse
from taskstore.types.tasks import Change, NewTask, State
from tests.console.store import ANN, BOB, add, claim, fail, one_of_each_state
from tests.people import make_user, signed_in

pytestmark = pytest.mark.django_db


def search(text, **asked):
    return find(parse(text), **asked)


def ids(text, **asked):
    found = search(text, **asked)
    assert not found.is_cut_short
    return found.ids


@pytest.fixture
def moment(monkeypatch):
    """Stops the database's clock; sets it, when it is called."""

    def set_to(now_ms):
        for dialect in database.DIALECTS.values():
            monkeypatch.setattr(dialect, "clock", f"CAST({now_ms} AS bigint)")

    set_to(1_000_000_000_000)
    return set_to


@pytest.mark.parametrize("state", State)
def test_it_finds_by_state(state):
    tasks = one_of_each_state() | {"finished": add("jobs/mail/succeeded")[0]}
    expected = {tasks[state].id}
    assert set(ids(f"state:{state}")) == expected
    assert set(ids(f"-state:{state}")) == {task.id for task in tasks.values()} - expected


def test_it_finds_by_group_and_by_the_beginning_of_its_name():
    [mail], [reports], [returns], [other] = add("mail"), add("re/ports"), add("re/turns"), add("RE/turns")
    assert ids("group:mail") == [mail.id]
    assert set(ids("group:re/*")) == {reports.id, returns.id}
    assert set(ids("-group:re/*")) == {mail.id, other.id}
    assert ids("group:re/* -group:re/ports") == [returns.id]
    assert ids("group:mail group:re/ports") == []


def test_it_finds_a_task_by_each_id_that_it_had():
    [first] = add()
    [second] = claim()
    assert ids(f"id:{first.id}") == ids(f"{second.id} state:claimed") == [second.id]
    Task.objects.commit(owner=BOB, deletes=[second.id])
    assert ids(f"id:{first.id}") == []
    assert ids("id:999999") == []


def test_it_finds_what_a_worker_holds_by_its_id_or_its_name():
    add(count=2)
    [held] = claim(owner=77)
    clients.hear(Client(id=77, name="Kim's worker", groups=[], info="{}"))
    assert ids("owner:77") == ids("""owner:"Kim's worker" state:claimed""") == [held.id]
    assert ids("owner:nobody") == []


@pytest.mark.parametrize(
    ("searched", "is_found"),
    [
        ("error:timed", True),
        ('error:"TIMED OUT after"', True),
        ('error:"timed * after * ms"', True),
        ('error:"after*out"', False),
        ("error:100%", True),
        ("error:100_", False),
        ("error:%", True),
        ("error:_", False),
        (r'error:"\\"', True),
        ("-error:timed", False),
        ("-error:refused", True),
    ],
)
def test_it_finds_by_a_part_of_the_error(searched, is_found):
    add()
    failed = fail(claim()[0], error="Timed out after 300 ms \\ at 100% of load")
    assert (failed.id in ids(searched)) is is_found


def test_it_finds_by_label():
    [gold], [plain] = add(labels={"tier": "gold", 'a "b"': "c"}), add()
    assert ids("label.tier:gold") == ids('label."a \\"b\\"":c') == [gold.id]
    assert ids("label.tier:silver") == ids("label.tie:gold") == []
    assert ids("-label.tier:gold") == ids("-label:tier") == [plain.id]
    assert ids("label:tier") == ids("label:tier label.tier:gold") == [gold.id]
    assert ids("label:gold") == []


@pytest.mark.parametrize(
    ("name", "value"), [("tier", ""), ("", "gold"), ("é", "\N{GRINNING FACE}"), ("a, b", "c\\n: {")]
)
def test_it_finds_whatever_a_label_is(name, value):
    [task], _ = add(labels={name: value}), add(labels={f'{name}"x': value, name + "x": value, "x": name})
    assert ids(label_term(name, value)) == ids(label_term(name)) == [task.id]


@pytest.mark.parametrize("within", ["", "group:mail ", "state:ready "])
@pytest.mark.parametrize("rare", [1, 100])
def test_it_looks_at_few_tasks_for_a_label_that_few_bear(monkeypatch, within, rare):
    monkeypatch.setattr(finding, "IN_VAIN", 100)
    monkeypatch.setattr(finding, "RARE", rare)
    early, _ = add(labels={"tier": "gold"}, count=2)
    add(count=600)
    [late] = add(labels={"tier": "gold", "user": "kim"})
    add("reports", labels={"tier": "gold"}, timespec_ms=-60_000)
    found = search(f"{within}label.tier:gold -group:reports label:tier", limit=2)
    again = search(f"{within}label.tier:gold -group:reports label:tier", limit=2, after=found.after)
    assert sorted(found.ids + again.ids) == [early.id, early.id + 1, late.id]
    found = search(f"{within}label:user")
    assert (found.ids, found.looked_at) == ([late.id], 100)  # The first window; one who goes on looks at 500.


def test_tasks_are_told_by_any_of_some_labels():
    [gold], [kim], _ = add(labels={"tier": "gold"}), add(labels={"user": "kim"}), add(labels={"tier": "tin"})
    tasks = Task.objects.get_queryset().order_by("id")
    assert [task.id for task in tasks.bearing_any({"tier": "gold", "user": "kim"})] == [gold.id, kim.id]
    assert not tasks.bearing_any({}).exists()
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SET LOCAL enable_seqscan = off"
            )  # Which it prefers in a table that it believes to be empty.
    assert "task_labels" in tasks.order_by().bearing_any({"tier": "gold", "user": "kim"}).values("id").explain()


PLANS = {"postgresql": "EXPLAIN", "sqlite": "EXPLAIN QUERY PLAN"}


@pytest.mark.parametrize("text", ["label.tier:gold", "label:tier"])
def test_an_index_knows_who_bears_a_label(text):
    add(count=5_000, labels={"region": "eu"})
    scan = Scan(terms=parse(text), scope=EVERY_GROUP, place=None, limit=1)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE tasks_app_task")  # As autovacuum does all the time.
        cursor.execute(f"{PLANS[connection.vendor]} {scan.labelled.sql}", scan.labelled.parameters)
        assert "task_labels" in str(cursor.fetchall())


@pytest.mark.parametrize(
    ("searched", "is_found"),
    [
        ("data:kim", True),
        ("data:KIM", False),
        ("data:k%", False),
        ('data:"é"', True),
        ("-data:kim", False),
        ("data.user.name:kim", True),
        ("data.user.id:42", True),
        ("data.user.id:4", False),
        ("data.user.id:420", False),
        ("data.user.text:42", True),
        ("data.tags:b", True),
        ("data.tags.1:b", True),
        ("data.tags.2:b", False),
        ("data.tags.x:b", False),
        ("data.on:true", True),
        ("data.none:null", True),
        ("data.big:123456789012345678901234567890", True),
        ("data.word:é", True),
        ("data.missing:42", False),
        ("-data.user.id:42", False),
        ("-data.user.id:43", True),
    ],
)
@pytest.mark.parametrize("padding", [0, 100_000])
def test_it_finds_by_data(searched, is_found, padding):
    data = (
        '{"user": {"name": "kim", "id": 42, "text": "42"}, "tags": ["a", "b"], "on": true, "none": null,'
        ' "big": 123456789012345678901234567890, "word": "é"}' + " " * padding
    )
    [task] = add(data=data.encode())
    looks_into_it = "data." in searched
    if padding and looks_into_it:  # Too large to be looked into: nothing is at any path.
        is_found = searched.startswith("-")
    assert (task.id in ids(searched)) is is_found


def test_it_finds_by_the_time_since_a_task_is_what_it_is(moment):
    [old] = add()
    moment(1_000_000_000_000 + 3_600_001)
    [new] = add("reports")
    assert ids("age:>1h") == [old.id]
    assert ids("age:<1h") == [new.id]
    [claimed] = claim()
    assert set(ids("age:<1h")) == {new.id, claimed.id}


def test_it_finds_by_available_time(moment):
    [ready], [later] = add(), add(timespec_ms=-7_200_000)
    assert ids("available:<now+1h") == [ready.id]
    assert ids("available:>now+1h") == ids("available:>2001-09-09T03:00") == [later.id]
    assert ids("-available:>now+1h") == [ready.id]


def test_a_scope_bounds_what_is_found():
    add("pay"), add("payroll"), add("mail")
    found = ids("-state:failed", scope=GroupScope(("pay", "ma*")))
    assert {task.group for task in Task.objects.find(found) if task} == {"pay", "mail"}
    assert ids("", scope=GroupScope(())) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "group:mail",
        "group:mail state:scheduled",
        "state:retrying",
        "group:mail error:recipient",
        "data:hello",
        "data.to:kim",
        "-data.to:bob",
    ],
)
@pytest.mark.parametrize("window", [1, 3, 100])
def test_pages_show_each_match_once(text, window, monkeypatch):
    monkeypatch.setattr(finding, "FIRST_WINDOW", window)
    monkeypatch.setattr(finding, "CANDIDATES", 2)
    for number in range(7):
        add(data=b'{"to": "kim", "text": "hello"}', timespec_ms=-(number % 3) * 1_000)
    for task in claim(count=3, duration_ms=0):
        fail(task)
    expected, pages, after = ids(text, limit=100), [], None
    while True:
        found = search(text, after=after, limit=2)
        assert len(found.ids) <= 2
        pages += found.ids
        if (after := found.after) is None:
            break
    assert pages == expected
    assert len(set(pages)) == len(pages) > 0


def test_within_a_group_the_longest_available_come_first_else_the_newest():
    [later], [sooner] = add(timespec_ms=-2_000), add(timespec_ms=-1_000)
    assert ids("group:mail") == [sooner.id, later.id]
    assert ids("data:hello") == [sooner.id, later.id]
    [newest] = add(timespec_ms=-3_000)
    assert ids("group:mail") == [sooner.id, later.id, newest.id]
    assert ids("data:hello") == [newest.id, sooner.id, later.id]


def test_it_says_how_far_it_looked_when_the_time_is_up(monkeypatch):
    monkeypatch.setattr(finding, "FIRST_WINDOW", 2)
    tasks = add(count=6)
    found = search("data:nowhere", seconds=0.000_001)
    assert found.is_cut_short
    assert found.ids == []
    # Either its first window was finished or it was not; it goes on from there.
    assert found.after is None or found.after.id == tasks[4].id


def test_payloads_of_their_own_row_are_searched():
    [task] = add(data=b"x" * 200_000 + b"needle")
    Task.objects.commit(owner=ANN, updates=[Change(id=task.id, group="reports")])
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=b"hay")])
    assert len(ids("data:needle")) == 1


# ---- Failed tasks are found through their indexes, however many tasks did not fail


EXPLAIN = {"postgresql": "EXPLAIN", "sqlite": "EXPLAIN QUERY PLAN"}
INDEXES = ("task_failed", "task_failed_newest", "task_error", "task_error_newest")


def middle() -> Cursor:
    """Half of the tasks are newer: ids go on where an earlier test has ended."""
    return Cursor(at=0, id=Task.objects.newest_id() - 4_000)


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
        if "tasks_app_task" in sql and ("error" in conditions or "standing" in conditions):
            execute(f"{EXPLAIN[connection.vendor]} {sql}", parameters, many, context)
            seen.append((sql, str(context["cursor"].fetchall())))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(explain):
        yield seen


def look_at_admin(query: str) -> None:
    assert signed_in(make_user("olaf", "operator")).get(f"/admin/tasks_app/task/?{query}").status_code == 200


LOOKS = {
    "search": lambda: find(parse("state:failed")),
    "search further": lambda: find(parse("state:failed"), after=middle()),
    "search in a group": lambda: find(parse("group:mail state:failed")),
    "search further in a group": lambda: find(parse("group:mail state:failed"), after=middle()),
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
    "group, next page": lambda: page_of("mail", State.FAILED, after=middle()),
    "group, page before": lambda: page_of("mail", State.FAILED, before=middle()),
    "count": lambda: Task.objects.get_queryset().with_error().count(),
    "admin": lambda: look_at_admin("group=mail&state=failed"),
    "admin's search": lambda: look_at_admin("q=mail&state=failed"),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_an_index_knows_what_failed(some_failed, look):
    with plans() as seen:
        look()
    assert seen
    assert [each for each in seen if not any(index in each[1] for index in INDEXES)] == []
