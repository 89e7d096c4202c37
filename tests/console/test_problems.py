"""What the console says when something goes wrong."""

import pytest
from django.db import OperationalError
from django.template.loader import get_template

from tasks_app import bulk
from tasks_app.console import groups
from tasks_app.errors import CommitUnknown, StoreBusy, StoreUnavailable
from tasks_app.models import AuditEntry

from .store import add

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("error", [OperationalError("no connection to 10.0.0.7"), StoreUnavailable("no database")])
def test_it_says_that_the_database_does_not_answer(operator, monkeypatch, error):
    monkeypatch.setattr(groups, "counts_of", raising(error))
    answer = operator.get("/console/group?name=mail")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
    page = answer.content.decode()
    assert "The database does not answer" in page
    assert "10.0.0.7" not in page


@pytest.mark.parametrize(
    ("error", "words"),
    [(StoreBusy("locked"), "The store is busy"), (CommitUnknown("lost"), "It is not known whether this happened")],
)
@pytest.mark.parametrize("kind", ["partial", "full"])
def test_it_says_how_a_change_ended(operator, monkeypatch, error, words, kind):
    [task] = add()
    monkeypatch.setattr(bulk, "start", raising(error))
    form = {"name": "mail", "id": task.id, "expected": 1, "bound": task.id}
    answer = operator.post("/console/purge", form, headers={"HX-Request-Type": kind})
    assert answer.status_code == 503
    assert words in answer.content.decode()
    assert ("<html" in answer.content.decode()) is (kind == "full")
    assert not AuditEntry.objects.exists()


def raising(error):
    def fail(*args, **kwargs):
        raise error

    return fail


@pytest.mark.parametrize("name", ["400", "403", "403_csrf", "404", "500"])
def test_it_has_a_page_for_errors_that_needs_no_database(name, django_assert_num_queries):
    with django_assert_num_queries(0):
        page = get_template(f"{name}.html").render({"detail": "<b>why</b>", "request_id": "1f2e"})
    assert "Go to the overview" in page
    assert "<b>why</b>" not in page
    assert name != "500" or "<code>1f2e</code>" in page


def test_it_shows_the_error_page_to_browsers_alone(operator):
    for accept, kind in (("text/html,*/*", "text/html"), ("application/json", "application/json")):
        answer = operator.get("/console/nothing", headers={"Accept": accept})
        assert answer.status_code == 404
        assert answer.headers["Content-Type"].startswith(kind)
