"""The Django project of docs/migrating.md: what Celery is used for most."""

import pytest

from lab.testing import PROJECT
from tasks_app.core.limits import GroupLimit
from tasks_app.jobs import queues as job_queues
from tasks_app.jobs.queues import Wanted
from tasks_app.models import Task
from tasks_app.schedules import verbs
from taskstore.types.job_record import JobStatus
from tests.docs.pages import blocks

from .shop import Shop, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = PROJECT / "docs" / "migrating.md"
BLOCKS = [block.text for block in blocks(PAGE) if block.marks.get("not run") == "in a project of its own"]
IMPORT = "from django.tasks import task  # Django 5.2: from django_tasks import task"


@pytest.fixture
def shop(tmp_path):
    """Has the files of the page, of which each names itself in its first line."""
    shop = Shop(tmp_path)
    texts = {text.splitlines()[0].split()[1].rstrip(","): text for text in BLOCKS if text.startswith("# ")}
    assert texts.keys() == {"shop/settings.py", "shop/tasks.py", "shop/orders.py"}
    with (tmp_path / "settings.py").open("a") as settings:
        settings.write(texts.pop("shop/settings.py"))
    for path, text in texts.items():
        (tmp_path / path).write_text(text.replace(IMPORT, "from tests.task_framework.framework import task"))
    return shop


def test_the_program_does_what_celery_is_used_for(shop):
    with shop.worker("--schedules"):
        said = shop.run("from shop.orders import run; run()").splitlines()
        wait_until(lambda: "publish" in by_function() and by_function()["publish"].is_finished)
    assert said[0].startswith("receipt of order 7 of 20")
    assert said[1:] == ["0", "1", "2"]
    found = by_function()
    assert {name: (job.status, job.result) for name, job in found.items() if name in ("bind", "publish")} == {
        "bind": (JobStatus.SUCCEEDED, "book has 3 pages"),
        "publish": (JobStatus.SUCCEEDED, "book has 3 pages and is published"),
    }
    assert found["bind"].id < found["publish"].id
    receipts = {job.args[0]: job for job in job_queues.list_jobs(Wanted(queue="mail")).jobs}
    assert [attempt.how for attempt in receipts[7].attempts] == ["failed", "succeeded"]
    assert (receipts[7].options.max_attempts, receipts[7].options.timeout_ms) == (6, 60_000)
    assert (receipts[8].status, receipts[8].priority) == (JobStatus.CANCELLED, 10)
    assert "withdrawn" in str(receipts[8].error)
    assert Task.objects.limits() == [GroupLimit("jobs/mail", None, 100, 60_000, "function")]
    assert [each.name for each in verbs.schedules()] == ["@shop.tasks.clean_up"]


def by_function():
    return {job.function.rpartition(".")[2]: job for job in job_queues.list_jobs(Wanted()).jobs}
