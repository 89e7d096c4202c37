"""A small project of somebody else, that installs the app: on the database of the tests, in a folder of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from lab.testing import PROJECT

SETTINGS = """
DATABASES = {{"default": {database!r}}}
SECRET_KEY = "a secret"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "tasks_app", "shop"]
TASKS = {{
    "default": {{
        "BACKEND": "tasks_app.tasks_backend.TaskStoreBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {{"backoff": 0, "queues": {{"mail": {{"max_attempts": 2}}}}}},
    }}
}}
"""

APPS = """
import json, os
from django.apps import AppConfig

class Shop(AppConfig):
    name = "shop"

    def ready(self):
        from tasks_app.tasks_backend.framework import task_finished, task_started
        from tasks_app.tasks_backend import task_retried
        from .models import Visit

        Visit.objects.count()  # A connection that no copy of this process may use.
        task_started.connect(self.note("started"), weak=False)
        task_finished.connect(self.note("finished"), weak=False)
        task_retried.connect(self.note("retried"), weak=False)

    def note(self, event):
        def receive(sender, task_result, **_):
            line = [event, task_result.task.name, task_result.status, task_result.attempts, os.getpid()]
            with open("events", "a") as events:
                events.write(json.dumps(line) + "\\n")
        return receive
"""

MODELS = "from django.contrib.auth.models import User as Visit\n"

TASKS = """
import os, signal, time
from tests.task_framework.framework import task

@task
def add(a, b):
    return a + b

@task
async def count():
    from .models import Visit
    return await Visit.objects.acount()

@task(takes_context=True)
def who(context):
    return [context.task_result.id, context.attempt, os.getpid()]

@task(queue_name="mail")
def fail(address):
    print("hello", address)
    raise KeyError(address)

@task
def crash():
    os.kill(os.getpid(), signal.SIGKILL)

@task
def sleep(seconds):
    time.sleep(seconds)

@task
def wait():
    open(f"begun-{os.getpid()}", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)

@task
def unsay():
    return {1, 2}
"""


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = ("ENGINE", "NAME", "HOST", "PORT", "USER", "PASSWORD")
        database = {name: str(connection.settings_dict[name]) for name in kept}
        if connection.vendor == "sqlite":
            database["OPTIONS"] = connection.settings_dict["OPTIONS"]
        (folder / "shop").mkdir()
        (folder / "settings.py").write_text(SETTINGS.format(database=database))
        for name, text in {"__init__": "", "apps": APPS, "models": MODELS, "tasks": TASKS}.items():
            (folder / "shop" / f"{name}.py").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        variables = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": f"{self.folder}:{PROJECT}"}
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=variables, stdout=subprocess.PIPE, text=True)

    @contextmanager
    def worker(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """One that works, until it is told to stop."""
        worker = self.start("-m", "django", "work", *options)
        try:
            assert worker.stdout
            assert any("works for" in line for line in worker.stdout)
            yield worker
            worker.terminate()
            assert worker.wait(timeout=30) in (0, -signal.SIGKILL)
        finally:
            worker.kill()
            worker.communicate()

    def run(self, script: str) -> str:
        """What a script of the project prints."""
        process = self.start("-c", f"import django; django.setup()\n{script}")
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return printed

    @property
    def events(self) -> str:
        path = self.folder / "events"
        return path.read_text() if path.exists() else ""


def wait_until(is_so):
    for _ in range(3_000):
        if found := is_so():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come to be so")
