"""To a token for some groups an id whose task lies in another one looks like an id of which nothing is known."""

import re

import pytest

from tasks_app.bulk import Purge, Selection
from tasks_app.models import EndedTask, Scope, Task
from taskstore.types.tasks import NewTask

from ..console.store import change_all
from ..jobs_store.jobs import failed, succeeded
from ..rest_api.api import Api

pytestmark = [pytest.mark.once, pytest.mark.django_db]

TASKS = [
    ("GET", "/task/{}", None),
    ("GET", "/tasks/{}", None),
    ("POST", "/tasks", '{{"ids": [{}]}}'),
    ("GET", "/history/{}", None),
    ("GET", "/search?q=id:{}", None),
    ("GET", "/jobs/{}", None),
    ("DELETE", "/jobs/{}", None),
    ("POST", "/jobs/{}/requeue", "{{}}"),
    ("GET", "/commands/nightly/lists/{}", None),
    ("GET", "/operations/{}", None),
    ("GET", "/operations/{}/items", None),
    ("POST", "/operations/{}/undo", "{{}}"),
    ("POST", "/operations/{}/cancel", "{{}}"),
    ("POST", "/update", '{{"clientid": 1, "deletes": [{}]}}'),
    ("POST", "/update", '{{"clientid": 1, "updates": [{{"id": {}, "keep": true}}]}}'),
    # What the request says of the group counts for nothing: the stored one does.
    ("POST", "/update", '{{"clientid": 1, "updates": [{{"id": {}, "group": "mail"}}]}}'),
    ("POST", "/update", '{{"clientid": 1, "adds": [{{"group": "mail"}}], "depends": [{}]}}'),
    ("POST", "/claim", '{{"clientid": 1, "group": "mail", "depends": [{}]}}'),
    ("POST", "/bulk/preview", '{{"verb": "purge", "ids": [{}]}}'),
]


@pytest.fixture
def foreign() -> dict[str, int]:
    """Ids that exist: of a task that anybody may take, of one that is leased, of one that has ended, of others."""
    new = [NewTask(group="payroll"), NewTask(group="payroll", timespec_ms=-60_000), NewTask(group="payroll")]
    ready, leased, gone = Task.objects.commit(owner=2, adds=new)
    Task.objects.commit(owner=2, deletes=[gone.id])
    done, broken = succeeded(queue="payroll"), failed(queue="payroll")
    [purged] = Task.objects.commit(owner=2, adds=[NewTask(group="wages")])
    operation = change_all(Purge, Selection(group="wages"), typed="wages")
    jobs = {"done": done, "broken": broken}
    return {
        "ready": ready.id,
        "leased": leased.id,
        "gone": gone.id,
        "purged": purged.id,
        **jobs,
        "operation": operation.id,
    }


@pytest.fixture
def unknown() -> int:
    """An id that was given out in a group of the token's own, so long ago that its trail is gone."""
    [task] = Task.objects.commit(owner=2, adds=[NewTask(group="mail")])
    Task.objects.commit(owner=2, deletes=[task.id])
    EndedTask.objects.all().delete()
    return task.id


@pytest.mark.parametrize(("method", "path", "body"), TASKS)
@pytest.mark.parametrize("scope", [Scope.OPERATE, Scope.COMMANDS])
def test_it_looks_like_one_of_which_nothing_is_known(unknown, foreign, scope, method, path, body):
    api = Api(scope, ("mail", "pay", "wage/*"))
    before = list(Task.objects.order_by("id").values())
    expected = answer_about(api, unknown, method, path, body)
    for kind, number in foreign.items():
        assert answer_about(api, number, method, path, body) == expected, kind
    assert list(Task.objects.order_by("id").values()) == before


def answer_about(api, number, method, path, body):
    """With the number written as a star."""
    answer = api.http.generic(method, path.format(number), body.format(number) if body else b"", "application/json")
    # When it was asked is another moment each time.
    text = re.sub(r'"(took_ms|as_of|at|bound)":\d+', r'"\1":0', answer.getvalue().decode())
    # An id may be as large as the number of days.
    return answer.status_code, re.sub(rf"\b{number}\b(?! days)", "*", text)
