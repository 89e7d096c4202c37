"""The page of what people and programs changed."""

import re
from html import unescape

import pytest

from tasks_app.access import audit
from tasks_app.core.actors import Actor
from tasks_app.database.time_limits import TookTooLong
from tasks_app.reading import audit as audited

pytestmark = pytest.mark.django_db

PAGE = "/console/audit"
COLUMNS = ("who", "what", "which", "group", "reason")


def record(actor="ann", action="requeue", group="mail", selection="all failed tasks", done=1, reason="", **fields):
    return audit.record(Actor(actor, reason=reason), action, group=group, selection=selection, done=done, **fields)


def page(client, path=PAGE, status=200, **asked):
    answer = client.get(path, asked)
    assert answer.status_code == status
    return answer.content.decode()


def texts(html):
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def entries(html):
    return [int(number) for number in re.findall(r'href="/console/audit/(\d+)"', html)]


def cells(html):
    """What each row says, column by column."""
    rows = html.partition("<tbody")[2].split("</tr>")[:-1]
    return [[texts(re.findall(rf'audit-{name}">(.*?)</t', row)[0]) for name in COLUMNS] for row in rows]


def test_an_address_holds_nothing_of_fields_in_which_nobody_wrote(operator):
    answer = operator.get(PAGE, {"by": "ann", "action": "", "group": " ", "since": "", "reason": ""})
    assert (answer.status_code, answer.headers["Location"]) == (302, f"{PAGE}?by=ann&group=+")


@pytest.mark.parametrize(("path", "others"), [(PAGE, {}), (f"{PAGE}/export", {"format": "csv"})])
def test_an_unknown_parameter_is_refused(operator, path, others):
    record()
    html = texts(unescape(page(operator, path, status=400, actor="bob", **others)))
    assert "is not a known parameter; use one of by, action, group" in html
    assert "all failed tasks" not in html  # The entry.


def test_an_entry_tells_all_and_leads_to_its_tasks(operator):
    details = {"ids": [17, 18], "to": "reports", "skipped": {"changed meanwhile": 2}, "requeued": False}
    entry = record(action="move", done=2, skipped=2, details=details)
    html = page(operator, f"{PAGE}/{entry.id}")
    told = texts(html.partition("<dl")[2].partition("</dl>")[0])
    for words in ("actor ann", "reason none given", "skipped 2: 2 changed meanwhile", "to reports", "requeued false"):
        assert words in told
    assert re.findall(r'href="/console/task/(\d+)"', html) == ["17", "18"]
    assert 'href="/console/audit?by=ann"' in html


def test_all_of_a_list_can_be_saved(operator):
    record("=ann", reason="-1+2")
    record("bob")
    answer = operator.get(f"{PAGE}/export", {"format": "csv", "by": "=ann"})
    assert answer.headers["Content-Disposition"] == 'attachment; filename="audit.csv"'
    [head, row] = answer.getvalue().decode().splitlines()
    assert head.startswith("\ufeffid,at,by,action,group,")
    assert ",'=ann,requeue,mail,all failed tasks,'-1+2,1,0,0," in row
    assert operator.get(f"{PAGE}/export", {"format": "xls"}).status_code == 400


def test_what_takes_too_long_is_said_so(operator, monkeypatch):
    def out_of_time(*_, **__):
        raise TookTooLong

    monkeypatch.setattr(audited, "at_most", out_of_time)
    assert "akes too long to search: name a person" in page(operator, status=400, reason="x")
