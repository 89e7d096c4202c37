"""A list as a file, from the page that shows it."""

import csv
import io
import re
from html import unescape

import pytest

from .store import add, one_of_each_state

pytestmark = pytest.mark.django_db


def links(client, path, **asked):
    html = client.get(path, asked).content.decode()
    return [unescape(link) for link in re.findall(r'href="(/console/export\?[^"]*)"', html)]


def rows(answer):
    return list(csv.DictReader(io.StringIO(answer.getvalue().decode("utf-8-sig"), newline="")))


def test_a_tab_of_a_group_leads_to_all_that_it_has(operator):
    tasks, name = one_of_each_state('a "b"/é'), 'a "b"/é'
    add("other"), add(name, count=60)
    as_csv, as_ndjson = links(operator, "/console/group", name=name)
    assert len(rows(operator.get(as_csv))) == 65
    assert len(operator.get(as_ndjson).getvalue().splitlines()) == 65
    as_csv, _ = links(operator, "/console/group", name=name, state="failed")
    answer = operator.get(as_csv)
    assert [row["id"] for row in rows(answer)] == [str(tasks["failed"].id)]
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert re.search(r"a%20_b__%C3%A9-failed-\d{8}T\d{6}Z\.csv$", answer["Content-Disposition"])


def test_who_may_not_see_data_gets_none(viewer):
    add(data=b"secret", data_type="secret")
    for link in links(viewer, "/console/group", name="mail"):
        content = viewer.get(link).getvalue()
        assert b"secret" not in content
        assert b"data" not in content
        assert b"mail" in content
    refused = viewer.get("/console/export", {"q": "data:secret", "format": "csv"})
    assert refused.status_code == 400
    assert "your role does not allow you to see or search task data" in refused.content.decode()


@pytest.mark.parametrize(
    ("asked", "told"), [({"format": "xml"}, "one of csv, ndjson"), ({"q": "x"}, "specify where to search")]
)
def test_a_mistake_is_named_on_a_page(operator, asked, told):
    answer = operator.get("/console/export", {"q": "", "format": "csv", **asked})
    assert answer.status_code == 400
    assert told in answer.content.decode()
