"""The audit log over the API: filtered, page by page, and as files."""

import csv
import io
import json

import pytest

from tasks_app.access import audit
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, Scope
from tasks_app.reading import audit as audited

from .api import Api

pytestmark = pytest.mark.django_db


def record(actor="ann", action="requeue", group="mail", selection="all tasks", reason="", **fields):
    return audit.record(Actor(actor, reason=reason), action, group=group, selection=selection, done=1, **fields)


def listed(api, query=""):
    status, answer = api.get(f"/audit?{query}")
    assert status == 200
    return answer


def ids(api, query=""):
    return [entry["id"] for entry in listed(api, query)["entries"]]


def test_it_goes_on_where_a_page_ended_whatever_comes_meanwhile(operator):
    entries = [record().id for _ in range(5)]
    first = listed(operator, "limit=2")
    record()
    second = listed(operator, f"limit=2&after={first['after']}")
    third = listed(operator, f"limit=2&after={second['after']}")
    assert [each["id"] for page in (first, second, third) for each in page["entries"]] == entries[::-1]
    assert third["after"] is None


@pytest.mark.parametrize(
    "query",
    [
        "by=token:pay", "action=give+back", "group=pay/x", "group=pay/*", "reason=LATE+100%25", "since=now-1min",
        "until=now%2B1min", "by=token:pay&action=give+back&group=pay/*&reason=late&since=now-1h&until=2099-01-31T12:00",
    ],
)  # fmt: skip
def test_a_filter_finds_what_meets_all_of_it(operator, query):
    entry = record("token:pay", "give back", "pay/x", reason="too late 100% of the time")
    assert ids(operator, query) == [entry.id]


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("since=yesterday&until=2026-13-01", {"since", "until"}),
        ("until=now-999999999w", {"until"}),
        ("reason=a%00b", {"reason"}),
        (f"group={'x' * 257}", {"group"}),
        ("after=17", {"after"}), ("after=1.x", {"after"}), (f"after={10**18}.1", {"after"}),
        ("limit=0", {"limit"}), ("limit=1001", {"limit"}),
        ("format=xlsx", {"format"}),
        ("who=ann", {"who"}),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_named(operator, query, fields):
    status, answer = operator.get(f"/audit?{query}")
    assert (status, set(answer["errors"])) == (400, fields)


def test_a_token_of_some_groups_is_told_of_those_only(operator):
    paid = record(group="pay/x")
    record(), record(group=""), record(group="payroll")
    for_pay = Api(Scope.OPERATE, ("pay/*",))
    assert ids(for_pay) == [paid.id]
    assert ids(for_pay, "group=pay/*") == [paid.id]
    assert for_pay.get("/audit?group=mail")[0] == 403
    assert len(for_pay.http.get("/audit?format=ndjson").getvalue().splitlines()) == 1


HOSTILE = ["=1+2", "+1", "-1", "@x", "\tx", "\rx", "<script>alert(1)</script>", 'a "quoted", b\nc', "=1\n+2"]


def test_a_file_of_cells_holds_no_formula(operator):
    for text in HOSTILE:
        record(reason=text, group=text, actor=text, selection=text, details={"to": text})
    answer = operator.http.get("/audit?format=csv&action=requeue")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    head, *rows = csv.reader(io.StringIO(answer.getvalue().decode("utf-8-sig"), newline=""))
    assert head == list(audited.COLUMNS)
    guarded = [f"'{text}" if text[0] in "=+-@\t\r" else text for text in reversed(HOSTILE)]
    for column in ("reason", "group", "by", "selection"):
        assert [row[head.index(column)] for row in rows] == guarded
    assert [json.loads(row[-1]) for row in rows] == [{"to": text} for text in reversed(HOSTILE)]


def test_a_file_is_read_in_pages_of_which_none_is_kept(operator, monkeypatch):
    monkeypatch.setattr(audited, "READ_AT_ONCE", 2)
    entries = [record().id for _ in range(5)]
    pieces = operator.http.get("/audit?format=ndjson").streaming_content
    assert [len(piece.splitlines()) for piece in pieces] == [2, 2, 1]
    assert AuditEntry.objects.count() == len(entries)
