"""The page of a group."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tasks_app.models import Client
from tasks_app.reading import clients, pages

from .store import add, one_of_each_state

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
        ("total", "6"),
        ("ready", "1"),
        ("claimed", "1"),
        ("expired", "1"),
        ("scheduled", "1"),
        ("retrying", "1"),
        ("failed", "1"),
    ]


def test_it_shows_data_to_those_who_may_see_it_alone(viewer, operator):
    add(data=b'{"to": "kim@example.org"}')
    assert "kim@example.org" not in page(viewer)
    assert "{&quot;to&quot;: &quot;kim@example.org&quot;}" in page(operator)


def test_it_leads_from_page_to_page(viewer, monkeypatch):
    monkeypatch.setattr(pages, "PAGE", 2)
    tasks = [task.id for task in add(count=5)]
    first = page(viewer)
    second = viewer.get(link(first, "Next")).content.decode()
    last = viewer.get(link(first, "Last")).content.decode()
    assert (ids(first), ids(second), ids(last)) == (tasks[:2], tasks[2:4], tasks[3:])
    assert ids(viewer.get(link(second, "Previous")).content.decode()) == tasks[:2]
    assert ids(viewer.get(link(last, "First")).content.decode()) == tasks[:2]


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
    with django_assert_max_num_queries(29):
        page(operator)


def test_it_says_how_the_group_flows_and_who_works_on_it(viewer):
    add(count=3)
    clients.hear(Client(id=7, groups=["mail"], info="{}"))
    clients.hear(Client(id=8, groups=["reports"], info="{}"))
    shown = text(page(viewer))
    assert re.search(r"In / out per minute (2\.\d|3) / 0", shown)
    assert "Empty in growing" in shown
    assert "Workers 1" in shown
