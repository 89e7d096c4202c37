"""Any list of tasks as a file, over the API and with the formats that the console has, too."""

import csv
import io
import json
from base64 import b64decode

import httpx
import pytest
from django.db import OperationalError

from tasks_app.database.time_limits import TookTooLong
from tasks_app.models import Scope, Task
from tasks_app.reading import exporting, parts
from tasks_app.reading.exporting import Export, Format, guarded, pieces_of
from tasks_app.reading.parts import LONG_BYTES
from tasks_app.reading.search import finding
from tasks_app.reading.search.grammar import parse
from tests.console.store import add, claim, fail

from .api import Api

pytestmark = pytest.mark.django_db


def export(api, q="", format="ndjson"):
    response = api.http.get("/export", {"q": q, "format": format})
    assert response.status_code == 200
    return response


def lines(api, q=""):
    return [json.loads(line) for line in export(api, q).getvalue().splitlines()]


def cells(api, q=""):
    return list(csv.DictReader(io.StringIO(export(api, q, "csv").getvalue().decode("utf-8-sig"), newline="")))


def exported(format, q="group:mail"):
    return pieces_of(Export(terms=parse(q), format=format, with_data=True), Task.objects.now_ms())


@pytest.fixture
def small_pages(monkeypatch):
    for module, name, size in [
        (finding, "FIRST_WINDOW", 4), (finding, "LARGEST_WINDOW", 4), (finding, "AT_ONCE", 4),
        (exporting, "AT_ONCE", 2), (parts, "PIECE_BYTES", 1),
    ]:  # fmt: skip
        monkeypatch.setattr(module, name, size)


def test_a_line_of_ndjson_is_a_task_as_the_api_has_it(api):
    tasks = [api.add(data="one", labels={"a": "ü"}), api.add(data_base64="/w=="), api.add(data_type="t/T")]
    api.add("reports")
    answer = export(api, "group:mail")
    assert answer["Content-Type"] == "application/x-ndjson"
    assert lines(api, "group:mail") == tasks


def test_csv_has_a_line_for_each_task(api):
    [task] = add(data=b'a "b",\r\nc', labels={"tier": "gold"}, priority=-5)
    fail(claim()[0], error="no such recipient")
    binary = api.add(data_base64="/w==")
    first, second = cells(api, "group:mail")
    assert first["id"] > first["origin"] == str(task.id)
    assert (first["group"], first["state"], first["priority"], first["claims"]) == ("mail", "retrying", "-5", "1")
    assert (first["error"], json.loads(first["labels"])) == ("no such recipient", {"tier": "gold"})
    assert first["data"] == 'a "b",\r\nc'
    assert first["created"].endswith("Z")
    assert (second["id"], second["data"], second["data_base64"]) == (str(binary["id"]), "", "/w==")


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r=1", "\n-1", "\t1", "\0=1", "\N{NO-BREAK SPACE}+1", "\uff1d1"],
)
def test_no_cell_is_taken_for_a_formula(text):
    assert guarded(text) == f"'{text}"


def test_a_token_exports_tasks_of_its_groups_only(api):
    for group in ("pay", "payroll", "mail"):
        api.add(group)
    assert [task["group"] for task in lines(Api(Scope.READ, ("pay",)))] == ["pay"]


@pytest.mark.parametrize(
    ("q", "name"),
    [
        ("", "tasks"),
        ("group:mail", "mail"),
        ("group:mail state:failed", "mail-failed"),
        ("-group:mail", "search"),
        ("group:mail error:x", "search"),
        (r'group:"<script>alert(\"../x\")\r\n"', "_script_alert__.._x__rn"),
        ("group:Grüße", "Grüße"),
        (f"group:{'x' * 200}", "x" * 100),
    ],
)
def test_the_file_is_named_for_what_it_holds(q, name):
    asked = Export(terms=parse(q), format=Format.CSV, with_data=True)
    assert exporting.file_name(asked, 1_795_269_731_408) == f"{name}-20261121T140211Z.csv"


@pytest.mark.parametrize(
    ("asked", "field", "told"),
    [
        ("q=state:redy", "q", "state:redy: must be one of ready, claimed, expired"),
        ("format=xml", "format", "must be one of csv, ndjson"),
        ("limit=1", "limit", "is not a known parameter; use one of q, format"),
    ],
)
def test_a_mistake_is_named(api, asked, field, told):
    status, answer = api.get(f"/export?{asked}")
    assert status == 400
    assert answer["errors"][field][0].startswith(told)


@pytest.mark.parametrize("q", ["group:mail", "group:mail data.n:1", ""])
def test_all_of_it_comes_in_order_and_once_page_by_page(api, small_pages, q):
    tasks = add(count=23, data=b'{"n": 1}')
    pieces = list(exported(Format.NDJSON, q))
    assert max(piece.count(b"\n") for piece in pieces) <= 2
    ids = [json.loads(line)["id"] for line in b"".join(pieces).splitlines()]
    assert ids == sorted([task.id for task in tasks], reverse=not q)


def test_it_ends_though_tasks_are_added_faster_than_it_reads(api, small_pages):
    tasks = add(count=6)
    exported_ids = set()
    for piece in exported(Format.NDJSON):
        exported_ids |= {json.loads(line)["id"] for line in piece.split()}
        add(count=10)
    assert exported_ids == {task.id for task in tasks}


def test_long_data_is_whole_in_both_formats(api):
    csv.field_size_limit(2**24)
    text = ('ä"\n,\0' + "\U0001f4ec") * LONG_BYTES
    binary = b"\xff\0" * LONG_BYTES
    add(data=text.encode()), add(data=binary)
    for first, second in (lines(api, "group:mail"), cells(api, "group:mail")):
        assert first["data"] == text
        assert b64decode(second["data_base64"]) == binary
        assert not second["data"]
        assert first["id"] != second["id"]


def test_the_time_limit_of_a_search_does_not_cut_it_short(api, monkeypatch):
    def no_time(seconds, using):
        raise TookTooLong

    monkeypatch.setattr(finding, "at_most", no_time)
    tasks = add(count=3)
    assert finding.find(parse("group:mail")).is_cut_short
    assert [task["id"] for task in lines(api, "group:mail")] == [task.id for task in tasks]


@pytest.mark.usefixtures("transactional_db")
def test_an_export_that_fails_half_way_does_not_look_whole(server, small_pages, monkeypatch):
    add(count=20)
    calls = []

    def as_ndjson(task, unique_group, *, with_data):
        calls.append(task)
        if len(calls) == 3:
            raise OperationalError("the database has gone")
        yield b"{}\n"

    monkeypatch.setattr(exporting, "as_ndjson", as_ndjson)
    monkeypatch.setattr(exporting, "FIRST_PIECES", 1)
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):  # Not that it waits in vain.
        server.request("GET", "/export", headers={"Authorization": f"Bearer {Api().secret}"})
    assert len(calls) == 3
