"""What `manage.py up` can't work with: one line on standard error that says what to do, and exit code 2."""

import socket

import pytest

from taskstore_project.base_command import CannotRun
from taskstore_project.serving.listening import resolve
from taskstore_project.serving.starting import refuse_strangers

pytestmark = pytest.mark.once

PUBLIC = {"TASKSTORE_PUBLIC_URL": "https://tasks.example.org"}


@pytest.fixture
def refusal(sqlite_store):
    """The line with which `up` refuses."""

    def refuse(*arguments, **variables):
        told = sqlite_store.manage("up", "--port", "0", "--grpc-port", "0", *arguments, **variables)
        assert (told.returncode, told.stdout) == (2, "")
        assert told.stderr.startswith("taskstore: ")
        assert told.stderr.count("\n") == 1
        return told.stderr

    return refuse


def test_it_refuses_a_port_that_is_in_use(refusal):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        line = refusal("--port", port)
    assert f"port {port} of 127.0.0.1 (Address already in use)" in line
    assert "--port" in line


def test_it_refuses_a_folder_that_can_not_be_made(refusal):
    assert "TASKSTORE_DATA or --data: can't keep data in /dev/null/data: " in refusal("--data", "/dev/null/data")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - just that.
def test_it_refuses_to_let_other_machines_in_without_a_public_address(settings, host):
    with pytest.raises(CannotRun, match="set TASKSTORE_PUBLIC_URL"):
        refuse_strangers(resolve(host, 0), no_auth=False)
    settings.TASKSTORE_PUBLIC_URL = "https://tasks.example.org"
    refuse_strangers(resolve(host, 0), no_auth=False)


@pytest.mark.parametrize(
    ("host", "public_url"),
    [
        ("0.0.0.0", "https://tasks.example.org"),  # noqa: S104
        ("127.0.0.1", "https://tasks.example.org"),  # A proxy lets others in.
    ],
)
def test_it_drops_tokens_for_this_machine_alone(settings, host, public_url):
    settings.TASKSTORE_PUBLIC_URL = public_url
    with pytest.raises(CannotRun, match="--no-auth can't be used with"):
        refuse_strangers(resolve(host, 0), no_auth=True)


def test_it_refuses_a_host_that_does_not_exist():
    with pytest.raises(CannotRun, match=r"--host nowhere\.invalid must be an address of this machine"):
        resolve("nowhere.invalid", 0)


def test_it_refuses_a_host_that_is_another_machine():
    with pytest.raises(CannotRun, match=r"can't listen on port 0 of 192\.0\.2\.1"):
        resolve("192.0.2.1", 0).bind()


def test_it_refuses_a_file_that_is_no_database(refusal, sqlite_store):
    sqlite_store.folder.mkdir()
    (sqlite_store.folder / "taskstore.sqlite3").write_text("This is a letter to Bob. " * 100)
    assert "taskstore.sqlite3" in refusal()


def test_it_refuses_a_database_that_it_cannot_reach(refusal):
    line = refusal(DATABASE_URL="postgresql://ann:geheim@127.0.0.1:1/tasks")
    assert "can't open the database tasks on" in line
    assert "geheim" not in line


def test_serve_refuses_sqlite(sqlite_store):
    told = sqlite_store.manage("serve", "--port", "0")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == (
        "taskstore: serve needs PostgreSQL, because SQLite allows only one server process: set DATABASE_URL, or use "
        f"`python3 manage.py up --data {sqlite_store.folder}`\n"
    )
