"""Limits in the console: set, seen with their use, changed and removed."""

import html
import re

import pytest

from tasks_app.models import AuditEntry, GroupLimit, Task
from tasks_app.models import Client as Worker
from tasks_app.reading import clients
from taskstore.types.limits import Rate

from .store import ANN, add

pytestmark = pytest.mark.django_db


def text(response):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


def set_limit(person, **fields):
    return person.post("/console/limits/set", {"name": "mail"} | fields)


def test_it_is_set_seen_changed_and_removed(operator):
    add("mail")
    add("mail")
    answer = set_limit(operator, running="1", claims="100", per_s="0.5", reason="slow bank")
    assert (answer.status_code, answer.url) == (302, "/console/limits/group?name=mail")
    assert GroupLimit.objects.values_list("running", "claims", "per_ms", "set_by").get() == (1, 100, 500, "olaf")
    Task.objects.claim("mail", owner=ANN)
    assert "1 of 1 running" in text(operator.get(answer.url))
    assert "Limit 1 of 1 running" in text(operator.get("/console/group?name=mail"))
    assert "At its limit 1 of 1 running. See the limit" in text(operator.get("/console/"))
    form = operator.get("/console/limits/set?name=mail").content.decode()
    assert all(f'value="{value}"' in form for value in ("mail", "1", "100", "0.5"))
    set_limit(operator, running="5", by="tenant")
    assert "mail 5 — tenant" in text(operator.get("/console/limits"))
    assert "5 running, by tenant" in text(operator.get("/console/limits/remove?name=mail"))
    assert operator.post("/console/limits/remove", {"name": "mail"}).status_code == 302
    assert "No limits yet" in text(operator.get("/console/limits"))
    assert operator.get("/console/limits/group?name=mail").status_code == 404
    actions = AuditEntry.objects.order_by("id").values_list("action", "group", "reason")
    assert list(actions) == [
        ("set limits", "mail", "slow bank"),
        ("set limits", "mail", ""),
        ("remove limits", "mail", ""),
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "Is required, unless rate is given."),
        ({"running": "0"}, "Must be a whole number between 1 and 1000000."),
        ({"running": "-2"}, "Must be a whole number between 1 and 1000000."),
        ({"claims": "5"}, "Is required with a rate."),
        ({"per_s": "5"}, "Is required with a rate."),
        ({"claims": "5", "per_s": "3601"}, "Must be a number of seconds between 0.001 and 3600, such as 1 or 0.5."),
        ({"claims": "10001", "per_s": "1"}, "Must be a whole number between 1 and 10000."),
        ({"running": "1", "name": ""}, "This field is required."),
    ],
)
def test_what_is_wrong_is_told_at_its_field(operator, fields, why):
    answer = set_limit(operator, **fields)
    assert (answer.status_code, why.lower() in text(answer).lower()) == (422, True), text(answer)
    assert not GroupLimit.objects.exists()


def test_the_groups_of_a_prefix_say_what_limits_them(viewer):
    add("pay/out")
    Task.objects.set_limits("pay/*", rate=Rate(1, 60_000))
    Task.objects.claim("pay/out", owner=ANN)
    shown = text(viewer.get("/console/limits/group?name=pay/out"))
    assert re.search(r"Limited by pay/\* At its limit : rate: next in [0-9]+ m?s", shown)
    assert "1 of 1" in shown
    assert "Remove" not in shown


def test_its_page_says_who_holds_its_places_since_when_and_who_set_it_and_why(operator, clock):
    for minute, (id, name) in enumerate([(7, "kim"), (8, "lea")]):
        clock.advance(-5 * 60_000 + minute)
        clients.hear(Worker(id=id, name=name, groups=["mail"], info="{}"))
        clock.advance(5 * 60_000 - minute)
    clients.hear(Worker(id=8, name="lea", groups=["mail"], info="{}"))
    set_limit(operator, running="3", reason="slow bank")
    add("mail"), add("mail"), add("mail"), add("mail")
    for owner, count in ((7, 2), (8, 1)):
        Task.objects.claim("mail", owner=owner, duration_ms=600_000, limit=count)
    page = operator.get("/console/limits/group?name=mail").content.decode()
    shown = text(operator.get("/console/limits/group?name=mail"))
    assert '<meter class="of-limit" min="0" max="3" value="3"' in page
    assert "3 of 3" in shown
    assert re.search(r"Set by olaf .*slow bank", shown)
    assert re.search(r"kim 2 .* lost 5 min ago Give back 2 leases lea 1 ", shown)
    assert "verb=give_back" in page
    assert 'href="/console/workers/7"' in page
