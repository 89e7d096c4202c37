"""Pages of a group's tasks by key."""

import pytest

from tasks_app.reading import pages
from tasks_app.reading.pages import END, Cursor, page_of
from taskstore.errors import InvalidInput
from taskstore.types.tasks import State

from .store import add, claim, fail, one_of_each_state

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(pages, "PAGE", 3)


def ids(page):
    return [row.id for row in page.rows]


def forwards(group, state=None):
    """The ids of each page from the first to the last."""
    page = page_of(group, state)
    pages = [ids(page)]
    while page.after:
        page = page_of(group, state, after=page.after)
        pages.append(ids(page))
    return pages


def backwards(group, state=None):
    page = page_of(group, state, before=END)
    pages = [ids(page)]
    while page.before:
        page = page_of(group, state, before=page.before)
        pages.insert(0, ids(page))
    return pages


def test_it_shows_each_task_once_from_the_longest_available_on():
    tasks = add(count=10)
    assert forwards("mail") == [[task.id for task in tasks[start : start + 3]] for start in (0, 3, 6, 9)]


def test_it_goes_back_over_the_same_tasks():
    tasks = [task.id for task in add(count=10)]
    # From the end the pages are cut elsewhere; the first one is full again.
    assert backwards("mail") == [tasks[0:3], tasks[1:4], tasks[4:7], tasks[7:10]]


def test_it_shows_failed_tasks_the_newest_first():
    add(count=7)
    failed = [fail(task).id for task in claim(count=7)]
    assert forwards("mail", State.RETRYING) == [failed[:3:-1], failed[3:0:-1], failed[:1]]
    assert backwards("mail", State.RETRYING)[-1] == failed[2::-1]


def test_it_skips_and_repeats_nothing_when_tasks_of_one_moment_are_cut_apart(clock):
    add(count=5)
    clock.advance(1)
    add(count=5)
    shown = [task_id for page in forwards("mail") for task_id in page]
    assert len(shown) == len(set(shown)) == 10


@pytest.mark.parametrize("count", [1, 3, 9])
def test_it_asks_the_database_as_often_for_a_long_list_as_for_a_short_one(count, django_assert_num_queries):
    add(count=count)
    with django_assert_num_queries(2):  # What time it is, and the tasks.
        page_of("mail", with_data=True)


@pytest.mark.parametrize("text", ["", "1", "1.2.3", "a.b", "1.", "1_0.2", "1.٣", f"{2**63}.1", "--1.2", " 1.2"])
def test_it_refuses_a_place_that_no_page_names(text):
    with pytest.raises(InvalidInput) as refused:
        Cursor.read(text, "after")
    assert list(refused.value.fields) == ["after"]


def test_it_finds_the_first_of_each_state():
    assert pages.facts_of("mail").oldest_ready_ms is None
    tasks = one_of_each_state()
    facts = pages.facts_of("mail")
    assert facts.oldest_ready_ms == min(tasks["ready"].available_at_ms, tasks["failed"].available_at_ms)
    assert facts.oldest_expired_ms == tasks["expired"].available_at_ms
    assert facts.next_lease_end_ms == tasks["claimed"].available_at_ms
    assert facts.next_scheduled_ms == tasks["scheduled"].available_at_ms
