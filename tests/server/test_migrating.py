"""The programs and commands of docs/migrating.md, as somebody runs them who comes from elsewhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from lab.testing import PROJECT
from lab.testing.environment import clean_environment
from taskstore.masstasker.masstasker_pb2 import DebugRequest, Task, UpdateRequest
from taskstore.masstasker.masstasker_pb2_grpc import MassTaskerStub

from .conftest import new_store
from .deployed import taskstore_in
from .harness import END_SECONDS, START_SECONDS, Server, free_port, wait_for
from .original import original

pytestmark = pytest.mark.once

HOUR_NS = 3_600 * 10**9
PAGE = (PROJECT / "docs" / "migrating.md").read_text()
# Its Django project has a test of its own, tests/task_framework/test_migrating.py.
PAGE = re.sub(r"^<!-- not run: .*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
PARTS = re.split(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
# Each program has the name that was said last before it.
PROGRAMS = {re.findall(r"`(\w+\.py)`", said)[-1]: text for said, text in zip(PARTS[::2], PARTS[1::2], strict=False)}


def commands(containing: str) -> str:
    """The block of the page with this in it."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [found] = [text for text in blocks if containing in text]
    return str(found)


class Desk:
    """A folder with the programs of the page, and a shell in it that knows where the store is."""

    def __init__(self, folder: Path, server: Server, token: str) -> None:
        self.folder = folder
        taskstore_in(folder)
        for name, text in PROGRAMS.items():
            (folder / name).write_text(text)
        self._environment = clean_environment(folder / "unused") | {
            "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(PROJECT),
            "TASKSTORE_URL": server.url,
            "TASKSTORE_TOKEN": token,
            "TOKEN": token,
        }

    def run(self, script: str, **variables: str) -> str:
        done = subprocess.run(["bash", "-euc", script], **self._here(variables), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def run_until(self, said: str, script: str) -> None:
        """For what goes on until Ctrl-C: it gets it when this line was said."""
        # As at a terminal, where Ctrl-C reaches all that was started.
        pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "start_new_session": True}
        with subprocess.Popen(["bash", "-uc", script], **self._here({}), **pipe) as process:
            assert process.stdout
            try:
                assert said in (line.strip() for line in process.stdout)
            finally:
                os.killpg(process.pid, signal.SIGTERM)

    def _here(self, variables: dict[str, str]) -> dict[str, Any]:
        return {"cwd": self.folder, "env": self._environment | variables, "text": True}


@pytest.fixture
def grpc_port():
    return str(free_port())


@pytest.fixture
def server(store, grpc_port):
    with store.up("--commands", "--grpc-port", grpc_port) as server:
        yield server


@pytest.fixture
def desk(tmp_path, server, store):
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(folder, server, store.token)


def test_each_program_is_known_by_its_name():
    assert PROGRAMS.keys() == {"copy_tasks.py", "copy_masstasker.py", "encoding.py", "mails.py"}
    assert PAGE.count("```python") == len(PROGRAMS)
    assert PAGE.count("```sh") == 5  # Each is run below.


def test_tasks_of_the_original_are_moved_once_they_are_available(desk, server, store):
    names = ["mail", "pay/eu %2F ü"]
    with original() as old:
        for number in range(150):
            for name in names:
                old.add(name, f"{number} ü\0")
        old.add("mail", "later", duration=-HOUR_NS)
        script = commands("OLD_URL=").replace("http://127.0.0.1:8047", old.url)
        with pytest.raises(AssertionError, match="Not available yet, run this again later: mail"):
            desk.run(script)
        assert [task.data for task in old.tasks.values()] == ["later"]
        old.passed_ns = 2 * HOUR_NS
        assert desk.run(script).splitlines() == ["mail: 1"]
        assert old.tasks == {}
        assert desk.run(script) == ""
    found = {
        name: [task["data"] for task in server.ask("GET", "/group", store.token, params={"name": name}).json()]
        for name in names
    }
    texts = [f"{number} ü\0" for number in range(150)]
    assert sorted(found["mail"]) == sorted([*texts, "later"])
    assert sorted(found["pay/eu %2F ü"]) == sorted(texts)


def test_what_could_not_be_added_here_stays_in_the_original(desk):
    with original() as old:
        old.add("x" * 256, "no group has such a name here")
        with pytest.raises(AssertionError, match=r"adds\[0\].group"):
            desk.run(commands("OLD_URL=").replace("http://127.0.0.1:8047", old.url))
        assert [task.data for task in old.tasks.values()] == ["no group has such a name here"]


def test_tasks_of_masstasker_are_copied(desk, store, grpc_port, tmp_path):
    task = Task(
        group="mail", data=AnyMessage(type_url="example.org/mail", value=b"\xff"), labels={"a": "b"}, error="no"
    )
    (tmp_path / "old").mkdir()
    with ExitStack() as stack:
        old_store, old_port = stack.enter_context(new_store(tmp_path / "old")), str(free_port())
        stack.enter_context(old_store.up("--no-auth", "--grpc-port", old_port))
        old, new = (stub_of(stack, port) for port in (old_port, grpc_port))
        old.Update(UpdateRequest(created=[task]), wait_for_ready=True, timeout=START_SECONDS)
        script = commands("OLD=127").replace("127.0.0.1:50054", f"127.0.0.1:{old_port}")
        assert desk.run(script, NEW=f"127.0.0.1:{grpc_port}") == "1 tasks\n"
        token = [("authorization", f"Bearer {store.token}")]
        [copied] = new.Debug(DebugRequest(), metadata=token, timeout=START_SECONDS).tasks
    assert [copied.group, copied.data, copied.labels, copied.error] == [task.group, task.data, task.labels, task.error]


def stub_of(stack: ExitStack, port: str) -> Any:
    return MassTaskerStub(stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}")))


def test_a_task_of_blueque_runs_as_a_job(desk):
    desk.run_until("A.MOV", commands("encoding"))


def test_a_task_of_celery_runs_as_a_job(desk, server, store):
    desk.run_until("15", commands("mails"))
    jobs = server.ask("GET", "/jobs", store.token, params={"queue": "mail"}).json()["jobs"]
    assert sorted((job["status"], job["args"]) for job in jobs) == [
        ("scheduled", ["bob@example.org"]),
        ("succeeded", ["ann@example.org"]),
    ]
    assert {job["options"]["max_attempts"] for job in jobs} == {6}


def test_directories_of_tdf2_are_imported_and_run(desk, server, store):
    lines = ["1448978609795035000_0", "1448978609", "253402300799", "120", "5", "0", "echo A"]
    (desk.folder / "tdf2" / "new").mkdir(parents=True)
    (desk.folder / "tdf2" / "new" / "1448978609795035000_0.task").write_text("\n".join(lines) + "\n")
    importing, working = commands("commands import").splitlines()
    assert "1" in desk.run(importing)

    def is_done() -> bool:
        found = server.ask("GET", "/commands/nightly/results", store.token).json()
        return [each["status"] for each in found["commands"]] == ["completed"]

    with subprocess.Popen(["bash", "-uc", f"exec {working}"], **desk._here({})) as worker:
        try:
            wait_for(is_done, "the command")
        finally:
            worker.terminate()
            worker.wait(2 * END_SECONDS)
