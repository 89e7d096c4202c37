"""The search box and what it leads to."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from tasks_app.models import Client
from tasks_app.reading import clients

from .store import BOB, add, claim, fail

pytestmark = pytest.mark.django_db


def search(client, q, status=200, **asked):
    answer = client.get("/console/search", {"q": q, **asked})
    assert answer.status_code == status
    return answer.content.decode()


def ids(html):
    return [int(number) for number in re.findall(r'class="task-id"><a href="/console/task/(\d+)"', html)]


def suggestions(client, q):
    answer = client.get("/console/search/suggestions", {"q": q})
    assert answer.status_code == 200
    return re.findall(r'<option value="([^"]*)">', answer.content.decode())


@pytest.mark.parametrize("typed", ["{}", " {} ", "id:{}"])
def test_an_id_alone_leads_to_its_task(viewer, typed):
    [task] = add()
    answer = viewer.get("/console/search", {"q": typed.format(task.id)})
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/console/task/{task.id}")


def test_it_lists_what_it_finds_with_the_group(viewer):
    add(count=2)
    failed = fail(claim()[0], error="timed out")
    html = search(viewer, "group:mail error:timed")
    assert ids(html) == [failed.id]
    assert '<a href="/console/group?name=mail"><bdi class="group-name">mail</bdi></a>' in html
    assert 'value="group:mail error:timed"' in html


def test_each_term_can_be_taken_out(viewer):
    add(labels={"my tier": "gold"})
    html = search(viewer, 'group:mail -state:failed label."my tier":gold')
    terms = re.findall(r'href="([^"]*)"><span class="unseen">Remove </span><bdi><code>(.*?)</code>', html)
    assert [(unescape(term), parse_qs(urlsplit(unescape(url)).query)["q"]) for url, term in terms] == [
        ("group:mail", ['-state:failed label."my tier":gold']),
        ("-state:failed", ['group:mail label."my tier":gold']),
        ('label."my tier":gold', ["group:mail -state:failed"]),
    ]


def test_data_is_searched_and_shown_for_those_alone_who_may_see_it(viewer, operator):
    [task] = add(data=b"hello kim")
    html = search(operator, "data:kim")
    assert ids(html) == [task.id]
    assert "hello kim" in html
    assert "your role does not allow you to see or search task data" in search(viewer, "data:kim", status=400)
    assert "hello kim" not in search(viewer, "group:mail")


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("st", ["state:"]),
        ("-st", ["-state:"]),
        ("label.", ["label.", "label.region:", "label.&quot;shop: tier&quot;:"]),
        ("-label.re", ["-label.region:"]),
        ("label.region:", ["label.region:&quot;far east&quot;", "label.region:west"]),
        ("label:", ["label:region", "label:&quot;shop: tier&quot;"]),
        ("label.nothing:", []),
        ("a", ["age:&gt;", "age:&lt;", "available:&lt;", "available:&gt;"]),
        ("state:f", ["state:failed", "state:finished"]),
        ("group:mail st", ["group:mail state:"]),
        ("group:m", ["group:mail", "group:&quot;my mail&quot;"]),
        ("owner:ki", ["owner:Kim"]),
        ("error:x", []),
        ("x" * 1_001, []),
    ],
)
def test_it_suggests_what_could_come_next(viewer, typed, suggested):
    add("mail", labels={"region": "west"}), add("my mail", labels={"region": "far east", "shop: tier": "gold"})
    add("reports")
    clients.hear(Client(id=BOB, name="Kim", groups=[], info="{}"))
    assert suggestions(viewer, typed) == suggested
