"""The overview: tiles, the table of groups, its order and filter."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from tasks_app.alerts.kinds import Diagnosis, Kind, Link
from tasks_app.console import overview, words
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.models import Client, PausedGroup
from tasks_app.reading import clients

from .store import add, claim, keep_level, one_of_each_state

pytestmark = pytest.mark.django_db


def page(client, query=""):
    answer = client.get(f"/console/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def groups(html):
    return re.findall(r'<tr role="row" data-live-group="([^"]*)"', html)


def lines(html):
    """Groups and folders, each with its level before it."""
    found = re.findall(r'<tr role="row" data-live-(?:group|folder)="([^"]*)"(?: data-level="(\d)")?>', html)
    return [f"{level} {name}".strip() for name, level in found]


def row(html, name):
    [found] = re.findall(rf'<tr role="row" data-live-\w+="{name}".*?</tr>', html, re.DOTALL)
    return found


def numbers(html, attribute):
    """What stands in the places of an attribute: {"ready": "2", ...}"""
    return dict(re.findall(rf'{attribute}="(\w+)"[^>]*>([^<]*)<', html))


def test_it_counts_the_tasks_of_all_groups_by_state(viewer):
    one_of_each_state("mail")
    add("reports", count=9_998)
    others = dict.fromkeys(("claimed", "scheduled", "expired", "retrying", "failed"), "1")
    expected = {"ready": "9\u202f999", **others}
    html = page(viewer)
    assert numbers(html, "data-live-total") == expected
    assert numbers(html, "data-live-groups")["ready"] == "2"


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("", ["c", "a", "b"]), ("-ready", ["c", "a", "b"]), ("ready", ["a", "b", "c"]),
        ("name", ["a", "b", "c"]), ("-name", ["c", "b", "a"]), ("-scheduled", ["b", "a", "c"]),
        ("-trouble", ["c", "a", "b"]),
    ],
)  # fmt: skip
def test_it_sorts_as_the_address_says(viewer, sort, order):
    add("c", count=2), add("a"), add("b"), add("b", timespec_ms=-60_000)
    assert groups(page(viewer, f"?sort={sort}")) == order


def test_a_script_gets_the_groups_alone(viewer):
    add("mail"), add("reports")
    part = viewer.get("/console/", {"filter": "mail"}, headers={"HX-Request-Type": "partial"}).content.decode()
    assert groups(part) == ["mail"]
    assert re.findall(r'id="(groups-\w+)"', part) == [
        "groups-note", "groups-view", "groups-flat", "groups-tree", "groups-state", "groups-list",
    ]  # fmt: skip
    assert "<html" not in part


def test_a_script_is_led_to_the_page_when_there_are_no_groups(viewer):
    answer = viewer.get("/console/?filter=mail", headers={"HX-Request-Type": "partial"})
    assert (answer.status_code, answer["HX-Redirect"]) == (204, "/console/?filter=mail")


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
    assert 'href="?sort=name&amp;page=2" rel="next">Next</a>' in page(viewer, "?sort=name")
    assert groups(page(viewer, "?sort=name&page=2")) == ["c"]
    assert groups(page(viewer, "?sort=name&page=3")) == ["c"]  # The last, when there are not so many any more.


def test_its_tiles_draw_how_it_was(viewer, clock):
    add()
    assert "<polyline" not in page(viewer)
    minute = clock.now_ms // 60_000
    keep_level(minute - 30, ready=4, workers=1), keep_level(minute - 1, ready=2, failed=3, workers=2)
    lines = dict(re.findall(r'data-flow="(\w+)-level".*?<polyline points="([^"]*)"', page(viewer), re.DOTALL))
    assert list(lines) == ["ready", "claimed", "expired", "scheduled", "retrying", "failed", "workers"]
    ends = {name: (line.split()[0], line.split()[-1]) for name, line in lines.items()}
    assert ends["ready"] == ("0,0", "29,10")
    assert ends["claimed"] == ("0,20", "29,20")
    assert ends["failed"] == ("0,20", "29,0")
    assert ends["workers"] == ("0,10", "29,0")
    told = flow(viewer)["tiles"]
    assert {name: told[f"{name}-level"] for name in lines} == lines
    assert (told["workers"], told["workers-note"]) == ("0", "no workers reporting")


def test_a_folder_has_the_numbers_of_all_below(viewer, clock):
    one_of_each_state("mail/in")
    clock.advance(60_000)
    add("mail/out", count=1_234)
    pauses.pause("mail/out", Actor("Ann"))
    folder = row(page(viewer, "?view=tree"), "mail/")
    others = {"claimed": "0", "expired": "2", "scheduled": "1", "retrying": "1", "failed": "1"}
    expected = {"ready": "1\u202f235", **others}
    assert numbers(folder, "data-live-count") == expected
    assert "2 groups" in folder
    assert re.search(r'data-kind="paused".*1 of 2 groups: mail/out\.', folder, re.DOTALL)
    assert ">1 min ago<" in folder
    assert re.search(r'data-flow="in">1\u202f\d{3}<', folder)
    assert 'data-state="ready" x="0" width="995"' in folder
    assert 'href="/console/search?q=group%3A%22mail%2F%2A%22+state%3Aready"' in folder


def test_siblings_are_sorted(viewer):
    add("mail/in"), add("mail/out", count=2), add("reports", count=2), add("web/a", count=2), add("web/b", count=2)
    opened = "?view=tree&open=mail/"
    assert lines(page(viewer, opened)) == ["web/", "mail/", "1 mail/out", "1 mail/in", "reports"]
    assert lines(page(viewer, f"{opened}&sort=ready")) == ["reports", "mail/", "1 mail/in", "1 mail/out", "web/"]
    assert lines(page(viewer, f"{opened}&sort=-name")) == ["web/", "reports", "mail/", "1 mail/out", "1 mail/in"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("view=round", "view"),
        ("view=tree&open=mail", "open[0]"),
        ("open=a/&open=", "open[1]"),
        ("close=a%00/", "close[0]"),
    ],
)
def test_nonsense_about_the_tree_is_named(viewer, query, field):
    answer = viewer.get(f"/console/?{query}")
    assert answer.status_code == 400
    assert field in answer.content.decode()


def flow(client, **asked):
    answer = client.get("/console/flow", asked)
    assert answer.status_code == 200
    return answer.json()


def test_what_flows_is_told_of_the_groups_that_are_asked_for(viewer, clock):
    clock.set(clock.now_ms // 60_000 * 60_000 + 70_000)  # Far from the end of a minute.
    add("mail", count=3), add("reports"), add("mail*")
    clock.advance(1_000)
    told = flow(viewer, group=["mail", "mail*", "gone"])
    assert set(told["groups"]) == {"mail", "mail*"}
    mail = told["groups"]["mail"]
    assert (mail["out"], mail["drain"], mail["spark"]) == ("0", "growing", "")
    assert float(mail["in"]) > 0
    assert mail["oldest"] == words.iso(clock.now_ms - 1_000)
    clock.advance(60_000)
    points = flow(viewer, group="mail")["groups"]["mail"]["spark"].split()
    assert (points[0], points[-1]) == ("0,20", "29,0")


def test_a_folder_of_more_groups_than_a_tree_shows_is_left_out(viewer, monkeypatch):
    monkeypatch.setattr("tasks_app.console.overview.MOST_IN_TREE", 2)
    add("mail/a"), add("mail/b"), add("pay/a"), add("reports/a"), add("reports/b"), add("reports/c")
    told = flow(viewer, group="reports/a", folder=["reports/", "mail/", "pay/"])
    assert (list(told["groups"]), list(told["folders"])) == (["reports/a"], ["mail/"])
    # What the filter does not find does not count.
    told = flow(viewer, folder=["reports/", "mail/"], filter="/A")
    assert list(told["folders"]) == ["reports/", "mail/"]


def test_what_flows_through_a_folder_is_that_of_all_below_that_the_filter_finds(viewer, clock):
    add("mail/in", count=3), add("mail/out"), add("mailbox")
    [folder] = flow(viewer, folder="mail/")["folders"].values()
    assert float(folder["in"]) == pytest.approx(4, abs=0.1)
    [folder] = flow(viewer, folder="mail/", filter="OUT")["folders"].values()
    assert float(folder["in"]) == pytest.approx(1, abs=0.1)
    assert flow(viewer, folder="mail/", filter="nothing")["folders"] == {}


@pytest.mark.parametrize(
    ("asked", "field"),
    [({"group": ""}, "group[0]"), ({"folder": "mail"}, "folder[0]"), ({"group": ["a"] * 201}, "group")],
)
def test_nonsense_about_what_flows_is_named(viewer, asked, field):
    answer = viewer.get("/console/flow", asked)
    assert answer.status_code == 400
    assert field in answer.content.decode()


def test_what_is_the_matter_with_a_group_stands_in_its_row(viewer):
    add("mail", count=2), add("reports", count=3)
    pauses.pause("mail", Actor("Ann", reason="<b>deploy"))
    PausedGroup.objects.update(at=timezone.now() - timedelta(hours=2))
    html = page(viewer)
    assert groups(html) == ["mail", "reports"]  # Trouble first, though the other has more.
    assert 'data-trouble="1 paused"' in html
    assert "<strong>1</strong> paused" in html
    shown = row(html, "mail")
    assert "by Ann 2 h ago: &lt;b&gt;deploy. 2 waiting." in shown
    assert ">Paused<" in shown
    told = flow(viewer, group=["mail", "reports"])["groups"]
    assert told["mail"]["status"] == {"kind": "paused", "what": "Paused", "icon": "paused"}
    assert told["mail"]["why"] == {"text": "by Ann 2 h ago: <b>deploy. 2 waiting.", "advice": None}
    assert (told["reports"]["status"]["kind"], told["reports"]["why"]["text"]) == ("idle", "")


def test_the_trouble_comes_first_page_by_page(viewer, monkeypatch):
    monkeypatch.setattr(overview, "ROWS", 2)
    for place, name in enumerate("abcdef"):
        add(name, count=place + 1)
    for name in "abc":
        pauses.pause(name, Actor("Ann"))
    assert [groups(page(viewer, f"?page={number}")) for number in (1, 2, 3)] == [["c", "b"], ["a", "f"], ["e", "d"]]
    assert groups(page(viewer, "?filter=A")) == ["a"]
    assert lines(page(viewer, "?view=tree")) == ["c", "b", "a", "f", "e", "d"]


@pytest.mark.parametrize("right", ["viewer", "operator"])
def test_what_to_do_is_offered_to_who_may(request, right, clock):
    client = request.getfixturevalue(right)
    add("mail*", count=2), add("mail", count=2)
    claim("mail", count=2, owner=7, duration_ms=3_600_000)
    clients.hear(Client(id=7, name="Kim", info="{}", groups=["mail"]))
    clock.advance(180_000)
    html = page(client)
    assert "worker: Kim holds 2 tasks" not in html
    assert "for 3 min: Kim holds 2 tasks until the leases end." in row(html, "mail")
    told = flow(client, group="mail")["groups"]["mail"]
    assert told["workers"] == "1 lost"
    if right == "viewer":
        assert "Give back" not in html
        assert told["why"]["advice"] is None
        return
    advice = told["why"]["advice"]
    assert (advice["words"], advice["asks"]) == ("Give back 2 leases", True)
    question = client.get(advice["address"]).content.decode()
    assert "Give back 2 tasks" in question
    assert advice["address"].replace("&", "&amp;") in client.get("/console/group?name=mail").content.decode()
    assert "Give back 2 leases" in client.get("/console/workers").content.decode()


def test_many_notices_are_cut(viewer):
    for number in range(10):
        pauses.pause(f"group-{number}", Actor("Ann"))
    PausedGroup.objects.update(at=timezone.now() - timedelta(hours=2))
    html = viewer.get("/console/attention?view=tree").content.decode()
    assert html.count("<li") == 4  # The last leads to all.
    assert 'href="/console/?view=tree&amp;notices=all">and 7 more<' in html
    html = viewer.get("/console/attention?notices=all").content.decode()
    assert html.count("<li") == 11
    assert 'href="/console/?">Show fewer<' in html
    refused = viewer.get("/console/?notices=5")
    assert refused.status_code == 400
    assert re.search(r"notices\b.*one of worst, all", refused.content.decode(), re.DOTALL)


def test_many_notices_of_one_kind_hide_no_other():
    def notice(kind, tasks):
        return Diagnosis(kind=kind, of=Link(words="mail", page="group"), tasks=tasks)

    broken = [notice(Kind.LOST, tasks) for tasks in (9, 8, 7, 6)]
    found = [*broken, notice(Kind.BROKEN, 5), notice(Kind.BROKEN, 4), notice(Kind.PAUSED, 3)]
    assert overview.worst(found, 5) == [*broken[:3], found[4], found[6]]
    assert overview.worst(found[:2], 5) == found[:2]
