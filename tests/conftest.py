"""What every test has: settings with a data directory of their own, servers, the browser, the selection by marks."""

import asyncio
import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import django
import hypothesis
import pytest
from _pytest.assertion import rewrite
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.management import get_commands, load_command_class
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from pytest_django import DjangoDbBlocker
from pytest_django.live_server_helper import LiveServer
from pytest_rerunfailures import StatusDB  # type: ignore[import-untyped]

from lab.testing import PROJECT
from lab.testing.environment import clean_environment, data_place

# The tests must not touch the data of a server that runs here. Each process that runs them has a folder of its own.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
DATA_FOLDER = (
    Path(os.environ["TASKSTORE_DATA"], WORKER)
    if WORKER
    else Path(tempfile.mkdtemp(prefix="taskstore-test-", dir=data_place()))
)
DATA_FOLDER.mkdir(exist_ok=True)
os.environ["TASKSTORE_DATA"] = str(DATA_FOLDER)
os.environ["DJANGO_SETTINGS_MODULE"] = "taskstore_project.settings"
django.setup()

# They need the settings.
from django.contrib.auth.models import User  # noqa: E402

from tasks_app.access import request_limits  # noqa: E402
from tasks_app.database.outage import HOUSEKEEPING, POOL, WRITER, outage  # noqa: E402
from tasks_app.offload import helper_process  # noqa: E402
from taskstore_project import environment  # noqa: E402

from .chromium import browser, chromium, context, started  # noqa: E402, F401 - fixtures
from .emptying import empty  # noqa: E402
from .people import make_user, one_of_each_role, signed_in  # noqa: E402
from .served import daphne, grpc_channel, lasting_channel, served, served_by_uvicorn, uvicorn  # noqa: E402, F401 - fixtures
from .server.prepared import end_forker  # noqa: E402

os.environ.pop("PYTHONUNBUFFERED", None)  # The programs of users keep lines back, too.

# Each of Django's test clients has a handler of its own, which would look through all files that whitenoise serves.
# What `served` starts has its application by now, and looks once, as in production.
settings.WHITENOISE_AUTOREFRESH = True

# The process of large bodies stays until the end: tests that need it are minutes apart.
helper_process.IDLE_S = 3_600.0

if connection.vendor == "sqlite":
    # A file as in production: in memory SQLite knows neither a write-ahead log nor waiting for a lock.
    connection.settings_dict["TEST"]["NAME"] = connection.settings_dict["NAME"].with_name("test.sqlite3")
else:
    # Several runs share a server. pytest-django adds the name of the process.
    connection.settings_dict["TEST"]["NAME"] = f"test_{(DATA_FOLDER.parent if WORKER else DATA_FOLDER).name}"
    # A busy machine may take longer to let somebody in than a user would wait.
    connection.settings_dict["OPTIONS"]["pool"] = {**environment.POOL, "timeout": 60}

# Hundreds of tests wait for threads, servers or a browser, and a busy machine can be too slow for one of them. A test
# that fails is run once more, and the summary names it. A run with more of these than this fails.
MOST_RETRIED = 3

# Time limits of single examples say more about the machine than about the code.
hypothesis.settings.register_profile("usual", deadline=None, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, print_blob=True, max_examples=20)
hypothesis.settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=1_000)
hypothesis.settings.load_profile("usual")


def pytest_sessionstart(session: pytest.Session) -> None:
    if WORKER:  # It would ask the main process about each test, byte by byte, for the case that a process is replaced.
        session.config.failures_db.sock.close()  # type: ignore[attr-defined]
        session.config.failures_db = StatusDB()  # type: ignore[attr-defined]
    elif session.config.getoption("numprocesses", None):
        # Or the processes that run the tests would read the settings before this file, with the folder of this one.
        del os.environ["DJANGO_SETTINGS_MODULE"]
        compile_tests(session.config)


def compile_tests(config: pytest.Config) -> None:
    """Compile all tests. In a fresh clone each process would otherwise do it, all at the same time."""
    for file in Path(__file__).parent.rglob("test_*.py"):
        compiled = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
        rewrite.try_makedirs(compiled.parent)
        if not rewrite._read_pyc(file, compiled):
            source, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, compiled)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    of_a_browser = {item.path for item in items if item.get_closest_marker("browser")}

    def weight(item: pytest.Item) -> tuple[bool, bool]:
        return item.path in of_a_browser, bool(item.get_closest_marker("servers"))

    # Those of a browser together, as they share one. What takes long and mostly waits comes first on SQLite and last on
    # PostgreSQL, which runs beside it.
    items.sort(key=weight, reverse=connection.vendor == "sqlite")
    for item in items:
        if not item.get_closest_marker("stress"):  # A promise broken under load is broken.
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish() -> None:
    # Thousands of tests that stay: looking for garbage among them took a tenth of the time.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    started.end_before(item)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    started.end()
    end_forker()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    retried = reporter.stats.get("rerun", []) if reporter else []
    if len(retried) > MOST_RETRIED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    retried = len(terminalreporter.stats.get("rerun", []))
    if retried > MOST_RETRIED:
        terminalreporter.section("too many retries", red=True)
        terminalreporter.line(f"{retried} tests failed once and passed when run again; at most {MOST_RETRIED} may.")


def pytest_unconfigure() -> None:
    if not WORKER:
        shutil.rmtree(DATA_FOLDER, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database. At the end nobody is left in it, who would keep it from being dropped."""
    yield
    # The thread of an event loop that has ended keeps its connection until the collector comes by.
    if connection.vendor == "postgresql":
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined] # Or it would open others meanwhile.
        with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s",
                [connection.settings_dict["NAME"]],
            )


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database without a transaction around the test, and empty again after it.

    In place of pytest-django's, which flushes all tables and makes all permissions anew: ten times slower.
    """
    with django_db_blocker.unblock():
        yield
        empty()


@pytest.fixture
def people(db) -> dict[str, User]:
    return one_of_each_role()


@pytest.fixture
def viewer(db) -> Client:
    return signed_in(make_user("vera", "viewer"))


@pytest.fixture
def operator(db) -> Client:
    """May change tasks and see what they hold."""
    return signed_in(make_user("olaf", "operator", "see payloads"))


@pytest.fixture
def commands_are_on(settings) -> None:
    settings.TASKSTORE_COMMANDS = True


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder for databases: not pytest's own, as PostgreSQL may run as another user, who has to reach it."""
    folder = Path(tempfile.mkdtemp(prefix="taskstore-test-disk-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def lab_command(tmp_path: Path, disk: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command that makes its databases on that disk."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "manage.py", name, "--folder", str(disk), *arguments]
        environment = clean_environment(tmp_path / "data")
        return subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    return run


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command of Django, run in this process, writes to standard error before it ends with exit code 2."""

    def run(name: str, *words: str) -> str:
        command = load_command_class(get_commands()[name], name)
        command._called_from_command_line = True  # type: ignore[attr-defined]
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with pytest.raises(SystemExit) as refused:
                command.execute(**vars(command.create_parser("manage.py", name).parse_args(words)))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        told = capsys.readouterr()
        assert (refused.value.code, told.out) == (2, "")
        return told.err

    return run


@pytest.fixture(autouse=True)
def nothing_is_known_of_other_tests() -> None:
    for allowance in request_limits.ALL:  # All tests come from one address.
        allowance.forget()
    for part in (WRITER, HOUSEKEEPING, POOL):
        outage.worked(part)


@pytest.fixture
def rollback_journal(transactional_db: None, tmp_path: Path) -> Iterator[None]:
    """SQLite as a project has it that chooses nothing: while somebody commits, nobody can read.

    A copy of the test database, as one that is open elsewhere keeps its write-ahead log.
    """
    chosen, file = connection.settings_dict, tmp_path / "without_wal.sqlite3"
    with closing(sqlite3.connect(chosen["NAME"])) as database, closing(sqlite3.connect(file)) as copy:
        database.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
    asyncio.run(sync_to_async(connections.close_all)())  # Of the thread beside an event loop.
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(chosen, "NAME", str(file))
        patch.setitem(chosen["OPTIONS"], "init_command", "PRAGMA journal_mode = DELETE")
        yield
        connection.close()


@pytest.fixture(scope="session")
def live_server(live_server: LiveServer) -> Iterator[LiveServer]:
    """Django's, whose files a browser may keep, as it may those of our servers: each page has twenty."""
    serve = StaticFilesHandler.serve

    def kept(handler: StaticFilesHandler, request: HttpRequest) -> HttpResponseBase:
        # The live numbers need a server with sockets; tests/server has their tests.
        is_live = request.path.endswith("/js/live.js")
        response = HttpResponse(content_type="text/javascript") if is_live else serve(handler, request)
        response["Cache-Control"] = "max-age=600"
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StaticFilesHandler, "serve", kept)
        yield live_server
