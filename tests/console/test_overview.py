"""The overview: tiles, the table of groups, its order and filter."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from tasks_app import pauses
from tasks_app.console import overview
from tasks_app.models import PausedGroup

from .store import add, keep_level, one_of_each_state

pytestmark = pytest.mark.django_db


def page(client, query=""):
    answer = client.get(f"/console/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def groups(html):
    return re.findall(r'<tr data-live-group="([^"]*)"', html)


def numbers(html, attribute):
    """What stands in the places of an attribute: {"ready": "2", ...}"""
    return dict(re.findall(rf'{attribute}="(\w+)"[^>]*>([^<]*)<', html))


def test_it_counts_the_tasks_of_all_groups_by_state(viewer):
    one_of_each_state("mail")
    add("reports", count=9_998)
    expected = {"ready": "10\u202f000", "claimed": "1", "scheduled": "1", "expired": "1", "failed": "1"}
    html = page(viewer)
    assert numbers(html, "data-live-total") == expected
    assert numbers(html, "data-live-groups")["ready"] == "2"


def test_it_counts_the_tasks_of_each_group_by_state(viewer):
    one_of_each_state("mail")
    expected = {"ready": "2", "claimed": "1", "expired": "1", "scheduled": "1", "failed": "1"}
    assert numbers(page(viewer), "data-live-count") == expected


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("", ["c", "a", "b"]), ("-ready", ["c", "a", "b"]), ("ready", ["a", "b", "c"]),
        ("name", ["a", "b", "c"]), ("-name", ["c", "b", "a"]), ("-scheduled", ["b", "a", "c"]),
    ],
)  # fmt: skip
def test_it_sorts_as_the_address_says(viewer, sort, order):
    add("c", count=2), add("a"), add("b"), add("b", timespec_ms=-60_000)
    assert groups(page(viewer, f"?sort={sort}")) == order


def test_it_says_by_what_it_is_sorted(viewer):
    add()
    assert re.search(
        r'<th scope="col" class="count failed" aria-sort="ascending">\s*<a href="\?sort=-failed">',
        page(viewer, "?sort=failed"),
    )


@pytest.mark.parametrize(
    ("searched", "found"), [("MAIL", ["Mail/a", "mail/b"]), ("/b", ["mail/b"]), ("%", []), ("_", [])]
)
def test_it_filters_by_name(viewer, searched, found):
    add("mail/b"), add("Mail/a"), add("reports")
    assert groups(viewer.get("/console/", {"filter": searched, "sort": "name"}).content.decode()) == found


def test_it_says_that_no_name_matches_and_leads_back(viewer):
    add("reports")
    assert "No group's name contains “mail”" in page(viewer, "?filter=mail")
    assert re.search(r'<a href="/console/\??">Show all 1 group</a>', page(viewer, "?filter=mail"))
    assert '<a href="/console/?sort=name">Show all 1 group</a>' in page(viewer, "?filter=mail&sort=name")


def test_it_says_why_it_is_empty_and_what_to_do(viewer):
    html = page(viewer)
    assert "No tasks yet" in html
    assert "curl http://testserver/update" in html
    assert "token create" in html


def test_it_shows_many_groups_page_by_page(viewer, monkeypatch):
    monkeypatch.setattr(overview, "ROWS", 2)
    for name in "abc":
        add(name)
    assert groups(page(viewer, "?sort=name")) == ["a", "b"]
    assert 'href="?sort=name&amp;page=2">Next</a>' in page(viewer, "?sort=name")
    assert groups(page(viewer, "?sort=name&page=2")) == ["c"]


def test_it_is_kept_by_no_browser_and_no_proxy(viewer):
    assert "no-store" in viewer.get("/console/").headers["Cache-Control"]


def test_it_asks_the_database_as_often_for_many_groups_as_for_few(viewer, django_assert_max_num_queries):
    for name in range(30):
        add(f"group {name}")
    with django_assert_max_num_queries(24):
        page(viewer)


def test_its_tiles_draw_how_it_was(viewer, clock):
    add()
    assert "<polyline" not in page(viewer)
    minute = clock.now_ms // 60_000
    keep_level(minute - 30, ready=4, workers=1), keep_level(minute - 1, ready=2, failed=3, workers=2)
    lines = dict(re.findall(r'data-flow="(\w+)-level".*?<polyline points="([^"]*)"', page(viewer), re.DOTALL))
    assert list(lines) == ["ready", "claimed", "scheduled", "expired", "failed", "workers"]
    ends = {name: (line.split()[0], line.split()[-1]) for name, line in lines.items()}
    assert ends["ready"] == ("0.0,0.0", "100.0,10.0")
    assert ends["claimed"] == ("0.0,20.0", "100.0,20.0")
    assert ends["failed"] == ("0.0,20.0", "100.0,0.0")
    assert ends["workers"] == ("0.0,10.0", "100.0,0.0")


def test_it_says_which_groups_are_paused(viewer):
    add(), add("reports")
    pauses.pause("reports", by="Ann")
    html = viewer.get("/console/").content.decode()

    rows = dict(re.findall(r'<tr data-live-group="(\w+)">(.*?)</tr>', html, re.DOTALL))
    assert {name: 'data-state="paused"' in row for name, row in rows.items()} == {"mail": False, "reports": True}


def test_it_says_what_needs_attention(viewer):
    add()
    pauses.pause("mail", by="Ann")
    PausedGroup.objects.update(at=timezone.now() - timedelta(hours=2))
    html = viewer.get("/console/").content.decode()
    assert 'data-trouble="1 paused"' in html
    assert re.search(r"<bdi>mail</bdi></a> was paused .*2 h ago.*<strong>1</strong> task waits", html)


def test_when_all_is_well_the_strip_is_empty(viewer):
    add()
    html = viewer.get("/console/attention").content.decode()
    assert "<li" not in html
    assert "data-trouble" not in html


def test_many_notices_are_cut(viewer):
    for number in range(10):
        pauses.pause(f"group-{number}", by="Ann")
    PausedGroup.objects.update(at=timezone.now() - timedelta(hours=2))
    html = viewer.get("/console/attention").content.decode()
    assert html.count("<li") == 5
    assert "and 5 more" in html
