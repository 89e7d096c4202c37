"""A project of somebody else, as `startproject` makes it, with the built wheel and people of a model of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.db import connection

from tests.behaviour.databases import on_the_server

SETTINGS = """
import os

DEBUG = False
ALLOWED_HOSTS = ["*"]
AUTH_USER_MODEL = "people.Person"
INSTALLED_APPS += ["people", "tasks_app"]
DATABASES = {{"default": {database!r}}}
DATABASES["default"]["NAME"] += os.environ.get("ANOTHER", "")
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ROOT_URLCONF = os.environ.get("URLS", ROOT_URLCONF)
if "SESSIONS" in os.environ:
    SESSION_ENGINE = os.environ["SESSIONS"]
    SESSION_LONGEST_S = 3_600
if "NO_MIGRATIONS" in os.environ:
    MIGRATION_MODULES = {{"tasks_app": None}}
"""

# They have no username, and a key that is no number.
PEOPLE = """
import uuid

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models


class People(BaseUserManager):
    def create_user(self, email, password=None, **more):
        person = self.model(email=email, **more)
        person.set_password(password)
        person.save(using=self._db)
        return person

    def create_superuser(self, email, password=None):
        return self.create_user(email, password, is_staff=True, is_superuser=True)


class Person(AbstractBaseUser, PermissionsMixin):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    email = models.EmailField(unique=True)
    department = models.CharField(max_length=20, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    objects = People()
    USERNAME_FIELD = "email"
"""

URLS = """
from django.contrib import admin
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.urls import include, path


def forbidden(request):
    raise PermissionDenied


def bad(request):
    raise SuspiciousOperation


urlpatterns = [
    path("admin/", admin.site.urls),
    path("bad", bad),
    path("forbidden", forbidden),
    path("failing", lambda request: 1 / 0),
]
"""

# The same with the console, for the pages that show people.
WITH_CONSOLE = """
from .urls import *

urlpatterns += [path("console/", include("tasks_app.console.urls"))]
"""

TESTS = """
from django.contrib.auth.models import Group
from django.test import TestCase, TransactionTestCase

from tasks_app.access import audit
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, Task
from taskstore.types.tasks import NewTask


class Same:
    def leave_something(self):
        assert not Task.objects.exists()
        assert not AuditEntry.objects.exists()
        assert Group.objects.filter(name="operator").exists()
        Task.objects.commit(owner=1, adds=[NewTask(group="mail", data=b"x")])
        [held] = Task.objects.claim("mail", owner=2)
        audit.record(Actor("ann"), "purge", group="mail", selection="all", done=1)

    def test_once(self):
        self.leave_something()

    def test_twice(self):
        self.leave_something()


class Undone(Same, TestCase):
    pass


class Flushed(Same, TransactionTestCase):
    pass
"""


class Project:
    """Its folder, and its databases on the server of the tests: its own, and one that the variable ANOTHER chooses."""

    def __init__(self, folder: Path, installed: Path) -> None:
        self.folder, self.installed = folder, installed
        folder.mkdir()
        self.call("-m", "django", "startproject", "shop", ".")
        self.call("manage.py", "startapp", "people")
        kept = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD")
        database: dict[str, object] = {name: str(connection.settings_dict[name]) for name in kept}
        self.name, options = f"foreign_{uuid4().hex}", {}
        if connection.vendor == "sqlite":
            database["ENGINE"], options = "django.db.backends.sqlite3", {"transaction_mode": "IMMEDIATE"}
        database |= {"NAME": self.name, "OPTIONS": options}
        if connection.vendor == "postgresql":
            for name in (self.name, f"{self.name}_copy"):
                on_the_server(f"CREATE DATABASE {name}")
        settings = folder / "shop" / "settings.py"
        settings.write_text(settings.read_text() + SETTINGS.format(database=database))
        (folder / "shop" / "urls.py").write_text(URLS)
        (folder / "shop" / "with_console.py").write_text(WITH_CONSOLE)
        (folder / "people" / "models.py").write_text(PEOPLE)
        (folder / "people" / "tests.py").write_text(TESTS)
        self.manage("makemigrations", "people")

    def remove(self) -> None:
        if connection.vendor == "postgresql":
            for name in (self.name, f"{self.name}_copy", f"test_{self.name}"):
                on_the_server(f"DROP DATABASE IF EXISTS {name}")

    def call(
        self, *arguments: str, typed: str = "", complaint: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter in the project, where only the wheel and its packages are found.

        `complaint`: it has to fail, and to say this.
        """
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(("TASKSTORE", "DJANGO"))}
        theirs |= {"PYTHONPATH": f"{self.folder}:{self.installed}", "DJANGO_SETTINGS_MODULE": "shop.settings"}
        called = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**theirs, **variables},
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(called.returncode) is bool(complaint), called.stdout + called.stderr
        assert complaint in called.stderr
        return called

    def manage(self, *arguments: str, **variables: str) -> str:
        return self.call("manage.py", *arguments, **variables).stdout

    def run(self, script: str, **variables: str) -> Any:
        """What a script of the project prints as JSON."""
        begin = "import django, json\ndjango.setup()\n"
        printed = self.call("-c", begin + script, **variables).stdout
        return json.loads(printed) if printed else None
