"""What the charts of a page ask for."""

import pytest

from tasks_app.console import group_table
from tasks_app.database.time_limits import TookTooLong

from ..test_rates import NOW, happen
from .store import add

pytestmark = pytest.mark.django_db


def rates(client, query=""):
    answer = client.get(f"/console/rates{query}")
    assert answer.status_code == 200
    return answer.json()


def test_every_line_has_a_number_for_each_time(viewer, clock):
    clock.set(NOW * 60_000)
    happen(NOW - 1, entered=6, waits="8:2")
    found = rates(viewer, "?name=mail")
    assert {len(line) for line in found.values()} == {60}
    assert (found["times"][-1], found["entered"][-1], found["wait50"][-1]) == ((NOW - 1) * 60, 6, 24)


def test_of_all_groups_there_are_the_events(viewer, clock):
    clock.set(NOW * 60_000)
    happen(NOW - 1, "reports", left=2)
    found = rates(viewer, "?span=6h")
    assert found["left"][-1] == 0.4
    assert len(found["times"]) == 72


def test_a_slow_database_is_told(viewer, monkeypatch):
    monkeypatch.setattr(group_table, "series_of_all", too_slow)
    assert viewer.get("/console/rates").status_code == 503


def too_slow(span):
    raise TookTooLong


@pytest.mark.parametrize(("page", "number"), [("/console/", 1), ("/console/group?name=mail", 4)])
def test_pages_have_charts_with_the_span_in_the_address(viewer, page, number):
    add()
    html = viewer.get(page + ("&" if "?" in page else "?") + "span=7d").content.decode()
    assert html.count("data-chart=") == number
    assert 'aria-current="true">7d<' in html
    assert "/console/rates?span=7d" in html
