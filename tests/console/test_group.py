"""The page of a group."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.models import Client
from tasks_app.reading import clients, listing

from .store import ANN, BOB, add, claim, fail, one_of_each_state

pytestmark = pytest.mark.django_db


def page(client, query="name=mail"):
    answer = client.get(f"/console/group?{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def ids(html):
    return [
        int(number) for number in re.findall(r'<td role="cell" class="task-id"><a href="/console/task/(\d+)"', html)
    ]


def text(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


@pytest.mark.parametrize("state", ["ready", "claimed", "expired", "scheduled", "failed"])
def test_it_has_a_tab_for_each_state(viewer, state):
    tasks = one_of_each_state()
    html = page(viewer, f"name=mail&state={state}")
    assert tasks[state].id in ids(html)
    assert re.search(rf'<a href="/console/group\?name=mail&amp;state={state}" aria-current="page">', html)


def test_it_counts_each_state_on_its_tab(viewer):
    one_of_each_state()
    tabs = re.findall(r'class="tab-count" data-live-count="(\w+)">(\d+)<', page(viewer))
    assert tabs == [
        ("total", "5"),
        ("ready", "2"),
        ("claimed", "1"),
        ("expired", "1"),
        ("scheduled", "1"),
        ("failed", "1"),
    ]


def test_it_shows_a_failed_task_with_its_error_and_its_state(viewer):
    add()
    fail(claim()[0], error="no such recipient")
    html = page(viewer)
    assert "no such recipient" in html
    assert 'data-state="failed"' in html
    assert 'data-state="ready"' in html


def test_it_shows_owners_beyond_what_a_browser_can_count(viewer):
    add()
    claim(owner=2**63 - 1)
    assert '<span class="owner">9223372036854775807</span>' in page(viewer)


def test_it_shows_data_to_those_who_may_see_it_alone(viewer, operator):
    add(data=b'{"to": "kim@example.org"}')
    assert "kim@example.org" not in page(viewer)
    assert "{&quot;to&quot;: &quot;kim@example.org&quot;}" in page(operator)


def test_it_cuts_long_data(operator):
    add(data=b"x" * 100_000)
    html = page(operator)
    assert "x" * listing.PREVIEW_BYTES + "…" in html
    assert "x" * (listing.PREVIEW_BYTES + 1) not in html


@pytest.mark.parametrize("name", ["a/b c", "../..", "%2F", "&state=failed", "ночь", "a\tb", "?#", "..", " "])
def test_it_is_found_by_a_name_that_holds_anything(viewer, name):
    add(name)
    [link] = re.findall(r'class="name"><a href="([^"]*)"', viewer.get("/console/").content.decode())
    answer = viewer.get(link.replace("&amp;", "&"))
    assert len(ids(answer.content.decode())) == 1


def test_it_leads_from_page_to_page(viewer, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    tasks = [task.id for task in add(count=5)]
    first = page(viewer)
    second = viewer.get(link(first, "Next")).content.decode()
    last = viewer.get(link(first, "Last")).content.decode()
    assert (ids(first), ids(second), ids(last)) == (tasks[:2], tasks[2:4], tasks[3:])
    assert ids(viewer.get(link(second, "Previous")).content.decode()) == tasks[:2]
    assert ids(viewer.get(link(last, "First")).content.decode()) == tasks[:2]


def test_it_shows_labels_that_lead_to_their_tasks(viewer):
    add(labels={"tier": "gold"}), add()
    html = page(viewer, "name=mail&state=ready")
    assert labels(html) == [("/console/search?q=group%3A%22mail%22+state%3Aready+label.tier%3Agold", "tier=gold")]
    assert "Filter by label" in html
    assert '<option value="tier:gold">' in html


def test_it_shows_a_few_of_many_labels_and_leads_to_the_others(viewer):
    [task] = add(labels={f"label-{number}": "x" * 255 for number in range(64)})
    assert [words for _, words in labels(page(viewer))[3:]] == [f"+61 labels of task {task.id}"]


def test_it_has_no_room_for_labels_where_there_are_none(viewer):
    add()
    html = page(viewer)
    assert "Labels" not in html
    assert "Filter by label" not in html


@pytest.mark.parametrize(("label", "term"), [("tier:gold", "label.tier:gold"), (" my tier ", 'label:"my tier"')])
def test_it_is_filtered_by_a_label_as_a_search_is(viewer, label, term):
    answer = viewer.get("/console/group", {"name": "mail", "state": "failed", "label": label})
    assert answer.status_code == 302
    asked = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert asked == {"q": [f'group:"mail" state:failed {term}']}


def labels(html):
    found = re.findall(r'<a class="label[^"]*" href="([^"]*)">(.*?)</a>', html)
    return [(url, re.sub(r"<[^>]*>", "", words)) for url, words in found]


def link(html, words):
    [address] = re.findall(rf'<a class="button" href="([^"]*)"(?: rel="\w+")?>{words}</a>', html)
    return address.replace("&amp;", "&")


def test_it_says_that_a_group_has_no_tasks_and_how_to_add_one(viewer):
    html = page(viewer)
    assert "Workers have finished and deleted all tasks of this group" in html
    assert "&quot;group&quot;: &quot;mail&quot;" in html


def test_it_says_that_no_task_is_in_a_state_and_leads_to_all(viewer):
    add(count=3)
    html = page(viewer, "name=mail&state=expired")
    assert "No lease has expired" in html
    assert '<a href="/console/group?name=mail">Show all 3 tasks</a>' in html


def test_it_offers_a_viewer_nothing_to_change(viewer, operator):
    one_of_each_state()
    for change in ("verb=", 'value="requeue"', "Add task", 'type="checkbox" name="id"', "/console/add"):
        assert change in page(operator)
        assert change not in page(viewer)


def test_it_says_the_first_times_of_each_state(viewer, clock):
    add()
    clock.advance(60_000)
    assert "Oldest ready 1 min ago" in text(page(viewer))
    part = viewer.get("/console/group/facts?name=mail").content.decode()
    assert "Oldest ready 1 min ago" in text(part)
    assert "<html" not in part


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "name"), ("name=", "name"), ("name=" + "x" * 256, "name"), ("name=a%00b", "name"),
        ("name=mail&state=done", "state"), ("name=mail&after=1", "after"), ("name=mail&before=x.y", "before"),
        ("name=mail&label=tier:", "label"),
    ],
)  # fmt: skip
def test_it_names_what_makes_no_sense(viewer, query, field):
    answer = viewer.get(f"/console/group?{query}")
    assert answer.status_code == 400
    assert f"<code>{field}</code>:" in answer.content.decode()


def test_it_asks_the_database_as_often_for_many_tasks_as_for_few(operator, django_assert_max_num_queries):
    add(count=50)
    with django_assert_max_num_queries(24):
        page(operator)


def test_it_tells_owners_apart(viewer):
    add(count=2)
    claim(owner=BOB)
    owners = re.findall(r'<span class="owner">(\d+)</span>', page(viewer))
    assert sorted(owners) == sorted([str(ANN), str(BOB)])


def test_it_says_that_the_group_is_paused_by_whom_and_why(viewer):
    add()
    assert "Paused" not in text(page(viewer))
    pauses.pause("mail", Actor("Ann <b>", reason="the mail server is down"))
    assert re.search(r"Paused by Ann &lt;b&gt; \w+( ago)? ?: the mail server is down\.", text(page(viewer)))


def test_it_says_how_the_group_flows_and_who_works_on_it(viewer):
    add(count=3)
    clients.hear(Client(id=7, groups=["mail"], info="{}"))
    clients.hear(Client(id=8, groups=["reports"], info="{}"))
    shown = text(page(viewer))
    assert re.search(r"In / out per minute (2\.\d|3) / 0", shown)
    assert "Empty in growing" in shown
    assert "Workers 1" in shown
