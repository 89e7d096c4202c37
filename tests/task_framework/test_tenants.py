"""A project with many tenants: each task has its tenant as a label, each tenant a limit, and can be cancelled alone."""

import json
import time
from itertools import pairwise

import pytest

from tasks_app.jobs import queues
from tasks_app.models import Task
from taskstore.types.job_record import JobStatus

from .shop import Shop, wait_until
from .test_work import job

pytestmark = pytest.mark.django_db(transaction=True)

TENANTS = """
from tests.task_framework.framework import task

@task(queue_name="mail", labels={"app": "shop"})
def build(tenant, seconds):
    import os, time
    with open("spans", "a") as spans:
        begun = time.time()
        time.sleep(seconds)
        spans.write(f"{tenant} {begun} {time.time()}\\n")
    return tenant
"""

ENQUEUE = """
import json
from django.db import transaction
from tasks_app.models import Task
from tenants import build

Task.objects.set_limits("jobs/mail", running=1, by="tenant")
with transaction.atomic():
    made = {
        tenant: [build.using(labels={"tenant": tenant}).enqueue(tenant, 0.15).id for _ in range(count)]
        for tenant, count in {"acme": 30, "bolt": 4, "crag": 4}.items()
    }
print(json.dumps(made))
"""

CANCEL = """
from tasks_app.models import Task

of_acme = Task.objects.get_queryset().bearing("tenant", "acme")
print(len(Task.objects.cancel(of_acme.values_list("id", flat=True), reason="moved")))
"""


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    (tmp_path / "tenants.py").write_text(TENANTS)
    settings = tmp_path / "settings.py"
    options = '"OPTIONS": {'
    settings.write_text(settings.read_text().replace(options, f'{options}"modules": ["tenants"], '))
    return shop


def test_each_tenant_has_its_limit_and_its_cancel(shop):
    made = json.loads(shop.run(ENQUEUE))
    waiting = Task.objects.get_queryset().bearing("tenant", "acme").bearing("app", "shop")
    assert waiting.count() == 30
    begun_s = time.monotonic()
    with shop.worker("--queue", "mail", "--processes", "3"), shop.worker("--queue", "mail", "--processes", "3"):
        small = [int(each) for tenant in ("bolt", "crag") for each in made[tenant]]
        wait_until(lambda: all(job(each).is_finished for each in small))
        took_s = time.monotonic() - begun_s
        ended = sum(job(int(each)).is_finished for each in made["acme"])
        assert ended < 30, "the small tenants waited for the large one"
        cancelled = int(shop.run(CANCEL))
        assert 0 < cancelled <= 30 - ended
        wait_until(lambda: all(job(int(each)).is_finished for each in made["acme"]))
    states = [job(int(each)).status for each in made["acme"]]
    assert states.count(JobStatus.CANCELLED) == cancelled
    assert states.count(JobStatus.SUCCEEDED) == 30 - cancelled
    assert all(job(each).status is JobStatus.SUCCEEDED for each in small)
    assert all(found.labels == {"app": "shop", "tenant": "bolt"} for found in map(job, map(int, made["bolt"])))
    spans = [line.split() for line in (shop.folder / "spans").read_text().splitlines()]
    for tenant in made:
        of_tenant = sorted((float(begun), float(end)) for name, begun, end in spans if name == tenant)
        assert all(end <= begun + 0.02 for (_, end), (begun, _) in pairwise(of_tenant)), tenant
    assert took_s < 30
    assert queues.queues() == ["mail"]
