"""`manage.py demo seed`: a store full of plausible work."""

import pytest
from django.core.management import CommandError, call_command

from lab.demo.seed import Seed
from tasks_app.models import Level, Task
from tasks_app.writer.totals import numbers_of_all
from taskstore.types.job_record import JobStatus

ASKED = ("demo", "seed", "--tasks", "3000", "--groups", "10", "--workers", "25")


@pytest.fixture
def seeded(store):
    done = store.manage(*ASKED)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("done in ")
    return store


@pytest.mark.once
def test_it_has_tasks_in_every_state_with_history_and_rates_and_is_filled_once(seeded):
    with seeded.up() as server:
        every = server.ask("GET", "/stats", seeded.token).json()["groups"]
        stats = [group for group in every if not group["group"].startswith(("jobs/", "schedules"))]
        assert len(stats) == 10
        assert sum(group["paused"] for group in stats) == 2
        sums = {state: sum(group[state] for group in stats) for state in STATES}
        assert all(sums.values())
        assert 2_500 < sums["ready"] + sums["claimed"] + sums["expired"] + sums["scheduled"] <= 3_000
        workers = server.ask("GET", "/clients", seeded.token).json()
        assert len(workers) == 25
        assert max(worker["age"] for worker in workers) > 1_000_000
        done = {worker["name"]: worker["done_per_minute"] for worker in workers}
        assert done["worker-1"] == done["worker-21"] == 0 < sum(done.values())
        for status in JobStatus:
            assert server.ask("GET", f"/jobs?status={status}&limit=1", seeded.token).json()["jobs"]
        [failed] = server.ask("GET", "/search?q=state:failed&limit=1", seeded.token).json()["tasks"]
        assert failed["error"]
        steps = server.ask("GET", f"/history/{failed['id']}", seeded.token).json()["steps"]
        assert steps[-1]["id"] == failed["id"]
    again = seeded.manage(*ASKED)
    assert again.returncode == 2
    assert again.stderr == "taskstore: this store holds tasks: fill an empty one, for example with --data DIR\n"


@pytest.mark.once
@pytest.mark.django_db
def test_its_levels_lead_to_what_there_is():
    began = Task.objects.now_ms() // 60_000
    Seed(tasks=300, groups=3, workers=21, tell=lambda *_: None).sow()
    *_, last = levels = list(Level.objects.order_by("minute"))
    assert len(levels) == 1_440
    assert began - 1 <= last.minute < Task.objects.now_ms() // 60_000
    assert last.ready == pytest.approx(numbers_of_all().ready, rel=0.3)
    assert (levels[0].workers, last.workers) == (21, 19)


STATES = ("ready", "claimed", "expired", "scheduled", "failed")


@pytest.mark.once
@pytest.mark.parametrize(
    ("option", "value", "told"),
    [("--tasks", "0", "must be a number between 1 and 10000000"), ("--groups", "x", "between 1 and 10000")],
)
def test_a_wrong_number_is_named(option, value, told):
    with pytest.raises(CommandError, match=told):
        call_command("demo", "seed", option, value)
