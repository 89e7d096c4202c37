"""Functions of a worker say how far they are."""

import pytest

from taskstore import Context, InvalidInput, StoreUnavailable
from taskstore.errors import NotHeld
from taskstore.worker.heartbeat import Reports

from .fakes import FakeStore

pytestmark = pytest.mark.once


@pytest.fixture
def fake() -> FakeStore:
    return FakeStore()


def test_what_could_not_be_sent_is_sent_later_unless_there_is_news(fake):
    reports = Reports(fake)
    reports.note(17, 0.1, "")
    reports.note(18, 0.2, "")
    fake.problem = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        reports.send()
    reports.note(17, 0.5, "")
    fake.problem = None
    reports.send()
    assert sorted(fake.reports) == [(17, 0.5, ""), (18, 0.2, "")]


def test_the_report_of_a_lost_task_is_dropped(fake):
    reports = Reports(fake)
    reports.note(17, 0.1, "")
    fake.problem = NotHeld("task 17 is leased to client 8")
    reports.send()
    fake.problem = None
    reports.send()
    assert fake.reports == []


def test_a_function_without_a_worker_reports_to_nobody():
    Context(1, "mailer").progress(0.5, "half")


@pytest.mark.parametrize(("done", "text"), [(1.5, ""), (float("nan"), ""), ("half", ""), (0.5, "x" * 256)])
def test_a_wrong_report_fails_where_it_is_made(done, text):
    with pytest.raises(InvalidInput):
        Context(1, "mailer").progress(done, text)
