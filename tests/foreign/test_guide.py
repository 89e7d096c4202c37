"""docs/django.md, line by line: from an empty folder to a task that has run, its page, and tests that pass."""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
import venv
from contextlib import closing, contextmanager
from uuid import uuid4

import django
import httpx
import pytest
from django.db import connection
from websockets.sync.client import connect
from websockets.typing import Origin

from lab.testing import PROJECT
from tests.behaviour.databases import on_the_server
from tests.docs.pages import blocks
from tests.packages import PACKAGES, closure, places_of
from tests.served import free_port

pytestmark = [pytest.mark.foreign, pytest.mark.servers, pytest.mark.django_db]

IS_OLD = django.VERSION < (6, 0)
WITHOUT_EXTRA = {"click", "httpx", "msgspec", "rich"}
EXTRA = {"Django", "channels", "cronsim", "django-tasks", "orjson", "protobuf", "tzdata"}
# What the page installs besides.
BESIDES = {"psycopg", "psycopg-binary", "pytest", "pytest-django", "uvicorn", "websockets"}
PREFIX = "/tasks/"
BLOCKS = [
    block for block in blocks(PROJECT / "docs" / "django.md") if block.marks.get("not run") == "in a project of its own"
]
FILE = re.compile(r"# (?P<path>[\w/]+\.py)(?P<end>, at the end)?$")


class Guide:
    """Does what the page says, in a folder of its own, with the packages that it installs and no others."""

    def __init__(self, folder, installed):
        self.folder, self.installed = folder / "project", installed
        self.folder.mkdir()
        venv.create(folder / "environment", symlinks=True)
        self.python = folder / "environment" / "bin" / "python"
        self.packages = folder / "packages"
        self.packages.mkdir()
        for place in places_of(WITHOUT_EXTRA | EXTRA | BESIDES):
            (self.packages / place).symlink_to(PACKAGES / place)
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": f"{self.folder}:{installed}:{self.packages}",
        }
        self.said = []

    def follow(self, block):
        if block.language == "console":
            for line in block.text.splitlines():
                self.type(line.removeprefix("$ "))
            return
        first, _, text = block.text.partition("\n")
        file = FILE.match(first)
        assert file, f"{block}: which file?"
        path = self.folder / file["path"]
        if IS_OLD:
            text = text.replace('"shop"]  # Django 5.2: also "django_tasks"', '"shop", "django_tasks"]')
            text = re.sub(r"^from django.tasks import task  # Django 5.2: (.*)$", r"\1", text, flags=re.M)
        path.write_text((path.read_text() if file["end"] else "") + text)

    def type(self, line):
        """A command line of the page, but for what does not end or needs the network."""
        words = shlex.split(line)
        variables = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if words[0] == "pip" or "runserver" in words:
            return
        words = {"python": [], "django-admin": ["-m", "django"]}[words[0]] + words[1:]
        self.said.append(self.call(*words, **variables))

    def call(self, *words, complaint="", **variables):
        called = subprocess.run(
            [self.python, *words],
            cwd=self.folder,
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(called.returncode) is bool(complaint), called.stdout + called.stderr
        assert complaint in called.stderr
        return called.stdout

    @contextmanager
    def served(self, *words):
        """A server on a free port, by which the address of the pages ends."""
        port = free_port()
        command = [self.python, *(word.format(port=port) for word in words)]
        log = (self.folder / "server.log").open("w+")
        server = subprocess.Popen(command, cwd=self.folder, env=self.variables, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True) as browser:
                until_s = time.monotonic() + 30
                while True:
                    try:
                        browser.get(PREFIX)
                        break
                    except httpx.TransportError:
                        assert time.monotonic() < until_s, (self.folder / "server.log").read_text()
                        time.sleep(0.1)
                yield browser
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=30)
            log.close()


@pytest.fixture(scope="module")
def guide(installed, tmp_path_factory, django_db_setup, django_db_blocker):
    """The page up to its end, for which the database is SQLite, or PostgreSQL where the tests use it."""
    guide = Guide(tmp_path_factory.mktemp("guide"), installed)
    name = f"guide_{uuid4().hex}"
    for block in BLOCKS:
        guide.follow(block)
        if connection.vendor == "postgresql" and "DATABASES" in block.text:
            kept = {each: str(connection.settings_dict[each]) for each in ("HOST", "PORT", "USER", "PASSWORD")}
            kept |= {"ENGINE": "django.db.backends.postgresql", "NAME": name}
            with django_db_blocker.unblock():
                on_the_server(f"CREATE DATABASE {name}")
            with (guide.folder / "shop" / "settings.py").open("a") as settings:
                settings.write(f"DATABASES = {{'default': {kept!r}}}\n")
    yield guide
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock():
            for each in (name, f"test_{name}"):
                on_the_server(f"DROP DATABASE IF EXISTS {each} WITH (FORCE)")


@pytest.mark.once
def test_the_start_in_the_readme_is_enough(installed, tmp_path):
    """Its lines say where they belong. The project is what `startproject` makes."""
    own = BLOCKS[0].marks
    [start] = [each for each in blocks(PROJECT / "README.md") if each.marks == own]
    settings, task, view = re.split(r"^(?=.*  # In )", start.text, flags=re.M)[1:]
    imported = "from django.tasks import task"
    assert f"below `{imported}`; Django 5.2: django_tasks" in task
    if IS_OLD:
        settings = settings.replace('"tasks_app"]', '"tasks_app", "django_tasks"]')
        imported = "from django_tasks import task"
    guide = Guide(tmp_path, installed)
    guide.type("django-admin startproject shop .")
    with (guide.folder / "shop" / "settings.py").open("a") as file:
        file.write(f"{settings}INSTALLED_APPS += ['shop']\n")
    (guide.folder / "shop" / "tasks.py").write_text(f"{imported}\n\n{task}")
    guide.type("python manage.py migrate")
    given = "from types import SimpleNamespace as Order; order = Order(id=7); from shop.tasks import send_receipt"
    guide.call("manage.py", "shell", "-c", f"{given}\nprint({view.partition('  #')[0]}.id)")
    guide.type("python manage.py work --burst")
    seen = guide.call("manage.py", "shell", "-c", f"{given}\nprint(send_receipt.get_result('1').status)")
    assert "SUCCESSFUL" in seen


def sign_in(browser):
    page = browser.get(f"{PREFIX}login")
    form = {"username": "ann", "password": "change-me", "csrfmiddlewaretoken": browser.cookies["csrftoken"], "next": ""}
    signed_in = browser.post(f"{PREFIX}login", data=form, headers={"Referer": str(page.url)})
    assert (signed_in.status_code, signed_in.url.path) == (200, PREFIX)
    return signed_in.text


def test_what_is_said_is_what_one_expects(guide):
    said = "\n".join(guide.said)
    assert "System check identified no issues (0 silenced)." in said
    assert "{'order': 7, 'sent': 2}" in said
    assert "@shop.tasks.clean_up: 0 3 * * * (Europe/Berlin)" in said
    assert re.search(r"^\.\s+\[100%\]$", said, re.M)


def test_its_pages_are_there_without_live_numbers_from_runserver(guide):
    with guide.served("manage.py", "runserver", "--noreload", "{port}") as browser:
        assert browser.get(PREFIX).url.path == f"{PREFIX}login"
        assert 'data-live-status=""' in sign_in(browser)
        job = browser.get(f"{PREFIX}jobs/1").text
        assert "shop.tasks.send_receipt" in job
        assert "succeeded" in job
        assert f'href="{PREFIX}jobs"' in job
        assert "/console/" not in job
        assert "Sign out everywhere" not in job  # Which sessions in a table can't.
        for static in re.findall(r'"(/static/[^"]+)"', job):
            assert browser.get(static).status_code == 200, static
        assert browser.get(f"{PREFIX}live").status_code == 426
        assert browser.get("/admin/tasks_app/task/").status_code == 200


def test_numbers_are_live_under_asgi_for_pages_of_the_site(guide):
    with guide.served("-m", "uvicorn", "shop.asgi:application", "--port", "{port}") as browser:
        assert f'data-live-status="{PREFIX}live"' in sign_in(browser)
        site = str(browser.base_url).rstrip("/")
        address, cookie = (
            f"{site.replace('http', 'ws')}{PREFIX}live",
            "; ".join(f"{k}={v}" for k, v in browser.cookies.items()),
        )
        with connect(address, origin=Origin(site), additional_headers={"Cookie": cookie}, proxy=None) as socket:
            socket.send(json.dumps({"type": "full", "groups": ["jobs/mail/succeeded"]}))
            while "full" not in (heard := json.loads(socket.recv(timeout=10))):
                pass
            assert heard["full"]["groups"]["jobs/mail/succeeded"]
        with pytest.raises(Exception, match="403"):
            connect(address, origin=Origin("http://evil.example"), additional_headers={"Cookie": cookie}, proxy=None)


def test_in_a_language_with_other_numbers_they_mean_the_same(guide):
    settings = guide.folder / "shop" / "settings.py"
    kept = settings.read_text()
    settings.write_text(kept + "LANGUAGE_CODE = 'de'\nUSE_THOUSAND_SEPARATOR = True\n")
    try:
        fill = "from tasks_app.models import Task; from taskstore.types.tasks import NewTask; "
        guide.call(
            "manage.py", "shell", "-c", f"{fill}Task.objects.commit(owner=1, adds=[NewTask(group='many')] * 1_500)"
        )
        with guide.served("manage.py", "runserver", "--noreload", "{port}") as browser:
            sign_in(browser)
            page = browser.get(f"{PREFIX}confirm", params={"verb": "purge", "name": "many", "all": "1"}).text
    finally:
        settings.write_text(kept)
    assert '<input type="hidden" name="expected" value="1500">' in page


def test_the_store_may_have_a_database_of_its_own(guide):
    settings = guide.folder / "shop" / "settings.py"
    kept = settings.read_text()
    name, mode = "str(BASE_DIR / 'store.sqlite3')", "{'transaction_mode': 'IMMEDIATE'}"
    second = f"{{'ENGINE': 'django.db.backends.sqlite3', 'NAME': {name}, 'OPTIONS': {mode}}}"
    settings.write_text(f"{kept}\nDATABASES['store'] = {second}\nDATABASE_ROUTERS = ['shop.routers.StoreRouter']\n")
    tests = guide.folder / "shop" / "tests.py"
    of_one = tests.read_text()
    named = "class ReceiptsInTheStore(TestCase):\n"
    tests.write_text(of_one.replace(named, f'{named}    databases = {{"default", "store"}}\n'))
    try:
        for line in ("migrate", "migrate --database store", "check", "work --schedules --burst", "test shop.tests"):
            guide.type(f"python manage.py {line}")
        with closing(sqlite3.connect(guide.folder / "store.sqlite3")) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert tables - {name for name in tables if name.startswith(("tasks_app_", "sqlite_"))} == {"django_migrations"}
        guide.type("python manage.py shell -c 'from shop.tasks import send_receipt; send_receipt.enqueue(8)'")
        guide.type("python manage.py work --burst")
        with guide.served("manage.py", "runserver", "--noreload", "{port}") as browser:
            sign_in(browser)
            paths = [
                "",
                "jobs",
                "workers",
                "schedules",
                "operations",
                "audit",
                "failed",
                "settings",
                "settings/people",
                "settings/limits",
            ]
            assert {path: browser.get(f"{PREFIX}{path}").status_code for path in paths} == dict.fromkeys(paths, 200)
            assert "succeeded" in browser.get(f"{PREFIX}jobs").text
    finally:
        settings.write_text(kept)
        tests.write_text(of_one)


def test_a_server_on_the_database_of_a_project_adds_nothing_unasked(guide, tmp_path):
    if connection.vendor == "postgresql":
        pytest.skip("the file is SQLite's")
    copy = tmp_path / "db.sqlite3"
    copy.write_bytes((guide.folder / "db.sqlite3").read_bytes())
    variables = {**os.environ, "DATABASE_URL": f"sqlite:///{copy}", "TASKSTORE_DATA": str(tmp_path / "data")}
    up = [sys.executable, "manage.py", "up", "--port", "0", "--grpc-port", "0"]
    refused = subprocess.run(up, cwd=PROJECT, env=variables, capture_output=True, text=True, check=False, timeout=60)
    for said in ("belongs to a Django project; this server would add tables or columns of axes", "--add-tables"):
        assert said in refused.stderr
    with subprocess.Popen(
        [*up, "--add-tables"], cwd=PROJECT, env=variables, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        assert server.stdout.readline().startswith("Task Store is ready: ")  # And nothing of a first user.
        server.terminate()
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT username FROM auth_user").fetchall() == [("ann",)]


def test_it_installs_little():
    """Beyond Django: not what the interpreter compiles of it."""
    files = [
        file for each in closure(WITHOUT_EXTRA | EXTRA) if each.name.lower() != "django" for file in each.files or ()
    ]
    places = {place.parts[0] for place in files}
    assert not places & {"grpc", "twisted", "daphne", "rest_framework"}
    size = sum(file.size or 0 for file in files if file.suffix != ".pyc")
    own = sum(
        path.stat().st_size
        for folder in ("taskstore", "tasks_app", "taskstore_project", "templates", "static", "docs")
        for path in (PROJECT / folder).rglob("*")
        if path.suffix != ".pyc"
    )
    assert size + own < 25_000_000
