"""The files for the workers of a Django project: a worker runs as they say, reports that it is alive, and drains."""

import re
import shlex
import signal
import time
from pathlib import Path

import pytest
import yaml
from django.core.management import load_command_class
from django.db import connection

from lab.testing import PROJECT
from taskstore.types.job_record import JobStatus

from .shop import Shop, wait_until
from .test_work import job

pytestmark = pytest.mark.django_db(transaction=True)

FILES = PROJECT / "docs" / "deployment"
UNIT = (FILES / "django-worker@.service").read_text()
COMPOSE = yaml.safe_load((FILES / "django-compose.yaml").read_text())["services"]
DEPLOYMENT, SCALER = yaml.safe_load_all((FILES / "django-kubernetes.yaml").read_text())
[CONTAINER] = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
MOST_CONNECTIONS = 8  # Of a worker itself, as docs/django-deployment.md says.


def of_unit(name):
    [value] = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


def seconds(text):
    return int(str(text).removesuffix("s"))


COMMANDS = {
    "systemd": (shlex.split(of_unit("ExecStart"))[3:], seconds(of_unit("TimeoutStopSec"))),
    "compose": (COMPOSE["worker"]["command"][3:], seconds(COMPOSE["worker"]["stop_grace_period"])),
    "kubernetes": (CONTAINER["command"][3:], DEPLOYMENT["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]),
}


def options_of(words):
    command = load_command_class("tasks_app", "work")
    return command.create_parser("manage.py", "work").parse_args(words)


@pytest.mark.parametrize("way", COMMANDS)
def test_a_worker_has_time_to_drain_before_it_is_killed(way):
    words, most_s = COMMANDS[way]
    options = options_of(words)
    assert most_s >= options.grace + 15
    if way == "systemd":
        assert (of_unit("KillMode"), of_unit("OOMPolicy")) == ("mixed", "continue")


def test_what_the_files_name_exists():
    started = [COMPOSE[name]["command"] for name in ("migrate", "web", "worker")]
    [tables] = DEPLOYMENT["spec"]["template"]["spec"]["initContainers"]
    for words in (shlex.split(of_unit("ExecStartPre")), tables["command"]):
        assert words[1:] == ["manage.py", "check", "--database", "default"]
    django = ["python", "manage.py"]
    assert [words[:2] for words in started] == [django, ["uvicorn", "shop.asgi:application"], django]
    limit_mb = int(CONTAINER["resources"]["limits"]["memory"].removesuffix("Mi"))
    options = options_of(COMMANDS["kubernetes"][0])
    assert limit_mb >= options.processes * options.memory_mb + 300
    assert CONTAINER["startupProbe"]["exec"]["command"] == ["test", "-f", options.alive]
    assert options.alive in CONTAINER["livenessProbe"]["exec"]["command"][-1]
    [trigger] = SCALER["spec"]["triggers"]
    assert f'group="jobs/{options.queue[0]}"' in trigger["metadata"]["query"]
    assert int(trigger["metadata"]["threshold"]) == options.processes
    assert SCALER["spec"]["scaleTargetRef"]["name"] == DEPLOYMENT["metadata"]["name"]


def test_a_file_that_can_not_be_touched_is_told_at_the_start(tmp_path):
    shop = Shop(tmp_path)
    worker = shop.start("-m", "django", "work", f"--alive={tmp_path}/nowhere/alive")
    worker.communicate(timeout=30)
    assert worker.returncode


@pytest.mark.parametrize("way", COMMANDS)
def test_a_worker_started_as_the_file_says_finishes_its_tasks_when_it_is_told_to_stop(tmp_path, way):
    shop, alive = Shop(tmp_path), tmp_path / "alive"
    words = [word.replace("%I", "mail").replace("$(POD_NAME)", "pod-1") for word in COMMANDS[way][0]]
    words = [word for word in words if not word.startswith("--alive=")]
    before = connections()
    made = shop.run("from shop.tasks import *; print(*[wait.using(queue_name='mail').enqueue().id for _ in range(4)])")
    if way == "compose":  # It works for every queue.
        made += " " + shop.run("from shop.tasks import *; print(add.enqueue(1, 2).id)")
    ids = [int(each) for each in made.split()]
    with shop.worker(*words, f"--alive={alive}") as worker:
        # Those that have not begun in their processes are given back at once.
        wait_until(lambda: len([*Path(shop.folder).glob("begun-*")]) == 4)
        wait_until(alive.exists)
        assert time.time() - alive.stat().st_mtime < 30
        assert connections() - before <= MOST_CONNECTIONS + 4
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        later = int(shop.run("from shop.tasks import *; print(add.using(queue_name='mail').enqueue(1, 2).id)"))
        Path(shop.folder / "go").touch()
        assert worker.wait(30) == 0
    assert [job(each).status for each in ids[:4]] == [JobStatus.SUCCEEDED] * 4
    assert job(later).status is JobStatus.PENDING, "it claims nothing more"


def connections():
    if connection.vendor == "sqlite":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        [count] = cursor.fetchone()
    return count
