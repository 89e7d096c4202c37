"""The page of the workers."""

import re

import pytest

from tasks_app.models import Client, Task
from tasks_app.reading import clients
from tasks_app.writer import totals
from taskstore.types.tasks import Change

from .store import BOB, add, claim

pytestmark = pytest.mark.django_db


def hear(clock, age_ms, client_id=7, **said):
    now_ms = clock.now_ms
    clock.set(now_ms - age_ms)
    clients.hear(Client(id=client_id, groups=said.pop("groups", []), info="{}", **said))
    clock.set(now_ms)


def text(client):
    answer = client.get("/console/workers")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.content.decode()))


@pytest.mark.parametrize(
    ("age_ms", "pulse"),
    [(0, "live"), (29_000, "live"), (31_000, "late"), (119_000, "late"), (121_000, "lost"), (86_000_000, "lost")],
)
def test_its_pulse_is_the_age_of_the_last_heartbeat(viewer, clock, age_ms, pulse):
    hear(clock, age_ms, name="Kim")
    assert re.search(rf"Kim 7 +{pulse} ", text(viewer))


def test_trouble_comes_first_and_no_heartbeat_moves_a_row(viewer, clock):
    add(count=1)
    claim(owner=4)
    ages = {"ann": 0, "bob": 10_000, "cid": 40_000, "dan": 130_000, "eve": 200_000}
    for number, (name, age_ms) in reversed([*enumerate(ages.items())]):
        hear(clock, age_ms, number, name=name)
    order = re.findall(r"\b(ann|bob|cid|dan|eve) \d", text(viewer))
    assert order == ["eve", "dan", "cid", "ann", "bob"]
    hear(clock, 0, 1, name="bob")
    assert re.findall(r"\b(ann|bob|cid|dan|eve) \d", text(viewer)) == order


def test_it_shows_what_a_worker_says_of_itself_and_holds(viewer, clock):
    add(count=3)
    claim(count=2, owner=7)
    clock.advance(65_000 - 60_000)
    hear(clock, 0, name="Kim", host="ann.example.org", pid=4711, groups=["mail", "reports"], version="1.2")
    html = viewer.get("/console/workers").content.decode()
    assert '<a href="/console/search?q=owner%3A7+state%3Aclaimed">2<' in html
    assert (
        "Kim 7 live now counts as late in 30 s mail , reports 0 done per minute 2 held 5 s ago"
        " ann.example.org pid 4711 1.2" in text(viewer)
    )


def test_it_shows_how_much_a_worker_has_done_lately(viewer, clock):
    hear(clock, 0, BOB, name="Bob")
    add(count=3)
    Task.objects.commit(owner=BOB, deletes=[task.id for task in claim(count=3)])
    totals.fold_here()
    assert "0 done per minute" in text(viewer)  # The minute is under way.
    clock.advance(60_000)
    assert "0.3 done per minute" in text(viewer)


def test_lost_ones_come_first_and_are_counted(viewer, clock):
    hear(clock, 200_000, 1, name="Lena")
    hear(clock, 0, 2, name="Kim")
    hear(clock, 0, 3, name="Bo")
    shown = text(viewer)
    assert "2 live 0 late 1 lost" in shown
    assert shown.index("Lena") < shown.index("Kim")


def test_its_page_says_what_it_holds_has_done_and_has_failed_at(operator, clock):
    add(count=3), add("video", 2)
    done = claim(owner=7)
    Task.objects.commit(owner=7, deletes=[done[0].id])
    failing = claim(owner=7)[0]
    failed = Task.objects.commit(owner=7, updates=[Change(id=failing.id, group="mail/failed", error="boom")])[0]
    claim(owner=7, duration_ms=600_000), claim("video", count=2, owner=7, duration_ms=600_000)
    totals.fold_here()
    hear(clock, 200_000, name="Kim", host="node-3", pid=41, version="1.2", groups=["mail", "video"])
    clock.advance(60_000)
    html = operator.get("/console/workers/7").content.decode()
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))
    assert "Give back 3…" in page
    assert re.search(r"video 2 .* mail 1 ", page)
    assert f'href="/console/task/{failed.id}"' in html
    assert "mail/failed boom" in page.replace("  ", " ")
    assert all(word in page for word in ("lost", "node-3", "41", "1.2", "2 in the last hour"))
    assert operator.get("/console/workers/8").status_code == 404
    assert operator.get("/console/workers/x").status_code == 404
    assert "kim" in operator.get(f"/console/task/{claim_of(7)}").content.decode().lower()


def claim_of(owner):
    return Task.objects.filter(owner=owner, leased_since_ms__gt=0).earliest("id").id
