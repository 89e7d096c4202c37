"""The limits of groups in Django's admin, which go through the store."""

import pytest

from tasks_app.models import AuditEntry, GroupLimit, LimitedTask, Task

from .pages import add, claim

LIMITS = "/admin/tasks_app/grouplimit/"


def test_one_is_added_changed_and_deleted(administrator):
    add("mail")
    claim("mail")
    asked = {"name": "mail", "running": "2", "claims": "100", "per_ms": "1000", "by": "tenant", "reason": "slow"}
    assert administrator.post(f"{LIMITS}add/", asked).status_code == 302
    [limit] = Task.objects.limits()
    assert limit == ("mail", 2, 100, 1_000, "tenant")
    assert LimitedTask.objects.count() == 1
    shown = administrator.get(f"{LIMITS}mail/change/").content.decode()
    assert 'name="name"' not in shown
    assert administrator.post(f"{LIMITS}mail/change/", {"running": "3"}).status_code == 302
    assert Task.objects.limits()[0] == ("mail", 3, None, None, "")
    assert "mail" in administrator.get(LIMITS).content.decode()
    assert administrator.post(f"{LIMITS}mail/delete/", {"post": "yes"}).status_code == 302
    assert not GroupLimit.objects.exists()
    assert not LimitedTask.objects.exists()
    entries = AuditEntry.objects.order_by("id").values_list("actor", "action", "reason")
    assert list(entries) == [("ada", "set limits", "slow"), ("ada", "set limits", ""), ("ada", "remove limits", "")]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "Is required, unless rate is given."),
        ({"running": "0"}, "Must be between 1 and 1000000, not 0."),
        ({"claims": "3"}, "Must be between 1 and 3600000, not 0."),
        ({"running": "1", "by": "x" * 256}, "Must have at most 255 characters, not 256."),
    ],
)
def test_what_is_wrong_is_told_at_its_field(administrator, asked, told):
    answer = administrator.post(f"{LIMITS}add/", {"name": "mail"} | asked)
    assert (answer.status_code, told in answer.content.decode()) == (200, True)
    assert not GroupLimit.objects.exists()
