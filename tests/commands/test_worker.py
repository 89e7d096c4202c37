"""A worker of commands: real shells, a real server."""

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from tasks_app.commands import make_lists, reopen
from tasks_app.core.actors import Actor
from tasks_app.models import Task as StoredTask
from taskstore.commands import executor, work
from taskstore.commands.worker import CommandWorker
from taskstore.errors import CommitRefused, InvalidInput, StoreUnavailable
from taskstore.types.command_record import Command, CommandStatus, NotACommand, group_of, members_of
from taskstore.types.tasks import Ending, NewTask
from taskstore.worker.children import Children, NotPrepared
from tests.client.fakes import FakeStore
from tests.client.patience import wait_for_last_requests
from tests.command_files.test_round_trip import files
from tests.jobs.workers import eventually
from tests.server.harness import wait_for
from tests.worker.children import is_alive

from .projects import NAME

pytestmark = pytest.mark.once

DAY_S = 86_400


class Elsewhere:
    """A store whose clock is so many days ahead of the one of this machine."""

    def __init__(self, store, days):
        self._store, self._ahead_ms = store, days * DAY_S * 1_000

    def __getattr__(self, name):
        return getattr(self._store, name)

    def claim(self, *args, **kwargs):
        claimed = self._store.claim(*args, **kwargs)
        return [replace(task, available_at_ms=task.available_at_ms + self._ahead_ms) for task in claimed]


OPEN, CLOSED = CommandStatus.OPEN, CommandStatus.CLOSED


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("exit 3", 3, "ended with 3\n"),
        ("printf oh >&2; exit 3", 3, "oh\nended with 3\n"),
        ("kill -9 $$", 137, "killed by signal 9\n"),
        ("echo oh >&2", 0, "oh\n"),
        ("sleep 1000", 137, "took longer than 1 s and was killed\n"),
        (
            f"python3 -c 'import time; some = bytearray({200 << 20}); time.sleep(1000)'",
            137,
            "used more than 100 MiB and was killed\n",
        ),
    ],
)
def test_it_says_in_the_error_output_how_a_line_failed(project, line, code, said):
    project.add_list(line, expected_duration=0)
    patience_s = 1 if "took longer" in said else 10  # Python may start slowly.
    with project.worker(least_timeout_s=patience_s, memory_bytes=100 * 2**20):
        [closed] = project.closed()
    [command] = closed.commands
    assert (command.run.exit_code, command.run.err.text, command.run.failed) == (code, said, True)


def test_a_line_that_is_not_utf8_is_run_byte_by_byte(project, tmp_path):
    name = b"caf\xe9 \xff"
    with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
        file.write(b"found")
    project.add_list("true", **members_of(b"cat '" + name + b"'; printf '\xfe'"))
    with project.worker(cwd=str(tmp_path)):
        [command] = project.ended()
    assert (command.run.exit_code, command.run.out.kept) == (0, b"found\xfe")
    assert command.cmd == r"cat 'caf\xe9 \xff'; printf '\xfe'"


@pytest.mark.parametrize("cmd_base64", ["!", "6Q==", "dHJ1ZQ"])
def test_a_line_is_not_run_that_is_another_one_than_is_shown(cmd_base64):
    with pytest.raises(NotACommand, match="cmd_base64 must be Base64 of the line that cmd shows"):
        Command.decode(f'{{"id": "1_0", "cmd": "true", "cmd_base64": "{cmd_base64}"}}'.encode())


def test_what_is_late_is_not_run_and_fails(project, tmp_path):
    project.add_list("touch late", until=1)
    with project.worker(cwd=str(tmp_path)):
        project.closed()
    [(status, command)] = project.settled()
    assert (status, command.run) == (CommandStatus.FAILED_TIME, None)
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize(("days", "is_run"), [(1, False), (-1, True)])
def test_the_clock_of_the_store_says_what_is_late(project, days, is_run):
    """It is a day ahead of this machine, or behind. What is to be started within half a day is late there, or not."""
    project.add_list("true", until=int(time.time()) + days * DAY_S // 2)
    store = Elsewhere(project.store, days)
    with project.worker(store):
        [closed] = project.closed()
    assert bool(closed.commands[0].run) is is_run
    assert abs(closed.finished - time.time() - days * DAY_S) < DAY_S / 4


def test_it_shows_what_a_line_has_written_so_far(project):
    project.add_list("true", "echo begun; sleep 1000", expected_duration=600)
    with project.worker():
        assert eventually(lambda: [live.out.text for live in project.live()] == ["begun\n"])
        [live] = project.live()
        assert (live.list, live.command, live.done) == ("1000", "1001_0", 1)
        assert live.at < live.due <= live.at + 600
        [task] = project.tasks(OPEN)
        assert live.task == task.origin
    assert project.live() == []


def test_the_output_of_a_list_that_somebody_deleted_goes_too(project):
    """The worker learns of the deletion when it gives the list back."""
    project.add_list("echo begun; sleep 1000")
    with project.worker():
        assert eventually(project.live)
        assert eventually(lambda: is_deleted(project))
    assert project.live() == []


def test_a_renewal_that_is_refused_costs_the_worker_only_the_list(project, monkeypatch, tmp_path):
    monkeypatch.setattr(executor, "CHECK_EVERY_S", 600)
    project.add_list("echo $$ >>pids; exec sleep 1000")
    with project.worker(least_lease_s=3, cwd=str(tmp_path)):
        assert eventually(lambda: pids(tmp_path) and project.live())
        assert eventually(lambda: is_deleted(project))
        assert eventually(lambda: not is_alive(pids(tmp_path)[0]))
        project.add_list("echo next")
        [command] = project.ended()
    assert command.run.out.text == "next\n"


def is_deleted(project):
    """Delete the list that runs, between two renewals."""
    [task] = project.tasks(OPEN)
    try:
        StoredTask.objects.commit(owner=0, deletes=[task.id], operator=Actor("olaf").operator(Ending.DELETED))
    except CommitRefused:
        return False
    return True


def test_a_longer_output_is_cut_and_everybody_says_so(project, caplog):
    caplog.set_level("INFO", logger="taskstore")
    project.add_list("yes | head -c 100000; exit 0")
    with project.worker(output_bytes=10_000):
        [command] = project.ended()
    assert (len(command.run.out.kept), command.run.out.missing, command.run.missing) == (10_000, 90_000, 90_000)
    assert "90000 bytes of its output exceed the output limit and are not kept" in caplog.text
    project.settled()
    assert project.store.commands.status(NAME).cut == 1


@pytest.mark.parametrize("is_allowed", [True, False])
def test_what_is_written_to_stderr_is_a_reason_unless_it_is_allowed(project, is_allowed, caplog):
    caplog.set_level("INFO", logger="taskstore")
    project.add_list("echo oh >&2")
    with project.worker(allow_stderr=is_allowed):
        [command] = project.ended()
    assert command.run.failed is not is_allowed
    assert f"s {'succeeded' if is_allowed else 'failed: wrote to stderr: oh'}" in caplog.text
    assert command.run.complaint == ("" if is_allowed else "wrote to stderr: oh")
    [(status, _)] = project.settled()
    assert status == (CommandStatus.COMPLETED if is_allowed else CommandStatus.FAILED_COUNT)


def test_outputs_that_the_store_does_not_take_are_shortened(project, settings):
    settings.TASKSTORE_MAX_DATA_BYTES = 100_000
    project.add_list("head -c 200000 /dev/urandom; echo; echo end")
    with project.worker():
        [closed] = project.closed()
    [command] = closed.commands
    assert command.run.out.kept.endswith(b"\nend\n")
    assert 100_000 < command.run.missing < 160_000


def test_what_is_no_list_is_laid_aside(project):
    project.store.commit(adds=[NewTask(group=group_of(NAME, OPEN), data=b"no list")])
    with project.worker():
        assert eventually(lambda: project.tasks(CommandStatus.OPEN_STASHED))
    [task] = project.tasks(CommandStatus.OPEN_STASHED)
    assert task.error.startswith("invalid list of commands: ")
    assert task.data == b"no list"


def test_a_line_that_kills_its_runner_has_failed(project):
    project.add_list("echo a", "kill -9 $PPID; sleep 1000", "echo b")
    with project.worker():
        first, second, third = (command.run for command in project.ended(3))
    assert (first.out.text, third.out.text) == ("a\n", "b\n")
    assert second.exit_code == 137
    assert second.err.text.startswith("the process that runs the commands was killed")


# ---- Leases


def test_what_is_done_is_kept_when_the_lease_ends(project, monkeypatch):
    """And the rest is open at once."""
    monkeypatch.setattr(work, "MARGIN_S", 0)
    project.add_list("sleep 3; echo a", "sleep 1000", "echo b")
    with project.worker(least_lease_s=6, least_timeout_s=6, renew=False):
        [closed] = project.closed()
    assert [command.run.out.text for command in closed.commands] == ["a\n"]
    [rest] = project.lists(OPEN)
    assert [command.cmd for command in rest.commands] == ["sleep 1000", "echo b"]


def test_when_its_lease_is_over_it_kills_what_runs_and_goes_on(project, monkeypatch, tmp_path):
    """The list is open again by itself, and the next lease is longer."""
    monkeypatch.setattr(work, "MARGIN_S", -4)
    project.add_list("echo $$ >>pids; sleep 1000")
    with project.worker(least_lease_s=2, least_timeout_s=6, renew=False, cwd=str(tmp_path)):
        [closed] = project.closed()
    first, *_, last = pids(tmp_path)
    assert first != last
    assert closed.commands[0].run.err.text == "took longer than 6 s and was killed\n"
    assert not is_alive(first)


def test_it_gives_up_a_list_that_was_taken_away(project, tmp_path):
    project.add_list("echo $$ >>pids; sleep 1000")
    with project.worker(cwd=str(tmp_path)):
        assert eventually(lambda: project.live())
        [task] = project.tasks(OPEN)
        assert reopen(NAME, task.id)
        assert eventually(lambda: len(pids(tmp_path)) == 2)
        first, second = pids(tmp_path)
        assert not is_alive(first)
        assert is_alive(second)


# ---- The end


def test_at_its_end_it_kills_what_runs_and_gives_back_what_is_not_done(project, tmp_path):
    project.add_list("echo a", "echo $$ >pids; sleep 1000", "echo b")
    with project.worker(cwd=str(tmp_path)):
        assert eventually(lambda: pids(tmp_path))
    assert not is_alive(*pids(tmp_path))
    [closed] = project.lists(CLOSED)
    [rest] = project.lists(OPEN)
    assert [command.run.out.text for command in closed.commands] == ["a\n"]
    assert [command.id for command in rest.commands] == ["1001_0", "1002_0"]
    assert project.store.claim(group_of(NAME, OPEN))


# ---- The store


def test_a_list_is_open_at_once_when_no_runner_can_be_started(project, monkeypatch):
    def fail(self):
        raise OSError("no memory")

    monkeypatch.setattr(Children, "new", fail)
    project.add_list("echo a")
    with pytest.raises(NotPrepared, match=r"no memory \(3 times in a row\)"):
        CommandWorker(project.store, [NAME], wait_ms=100, least_lease_s=1_000).run()
    wait_for_last_requests()
    [task] = project.tasks(OPEN)
    assert task.owner == 0
    assert left_s(project) <= 0


def test_a_line_is_not_told_the_token_of_the_worker(project, monkeypatch):
    monkeypatch.setenv("TASKSTORE_TOKEN", "secret")
    monkeypatch.setenv("COLOUR", "red")
    project.add_list("echo $COLOUR $SHAPE $TASKSTORE_TOKEN")
    with project.worker(env={"SHAPE": "round"}):
        [closed] = project.closed()
    assert closed.commands[0].run.out.text == "red round\n"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"projects": []}, "projects"),
        ({"projects": ["a/b"]}, r"projects\[0\]"),
        ({"name": "ann/bob"}, "name"),
        ({"name": "ann\n"}, "name"),
        ({"shell": "/no/such/shell"}, "shell"),
        ({"cwd": "/no/such/folder"}, "cwd"),
        ({"output_bytes": 2**31}, "output_bytes"),
        ({"lists_at_once": 0}, "lists_at_once"),
    ],
)
def test_nonsense_is_refused(wrong, named):
    with pytest.raises(InvalidInput, match=named):
        CommandWorker(FakeStore(), **{"projects": [NAME], **wrong})


def left_s(project):
    [task] = project.tasks(OPEN)
    return (task.available_at_ms - project.store.stats().at_ms) / 1_000


def pids(folder):
    file = folder / "pids"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_what_a_command_writes_of_its_progress_is_not_that_of_the_next_one(project):
    task_id = project.add_list("echo begin; echo '::progress 0.42 page 7 of 20'; sleep 5", "echo next; sleep 30")
    commands = project.store.commands
    with project.worker():
        assert eventually(lambda: commands.list(NAME, task_id).list.progress)
        seen = commands.get(NAME, "1000")
        assert (seen.newest.progress.done, seen.newest.progress.text) == (0.42, "page 7 of 20")
        assert commands.get(NAME, "1001").newest.progress is None
        assert seen.tail.out.text == "begin\n::progress 0.42 page 7 of 20\n"  # It is what it wrote.
        assert eventually(lambda: (found := commands.get(NAME, "1001")).tail and found.tail.due)
        assert commands.get(NAME, "1001").newest.progress is None


def test_a_worker_that_ends_with_the_work_waits_for_lists_but_not_for_ever(project, caplog, monkeypatch):
    """Nobody but this test makes lists here, and nobody settles them. The store is away when it is asked first."""
    search, asked = project.store.search, []

    def away_at_first(*args, **more):
        asked.append(args)
        if len(asked) == 1:
            raise StoreUnavailable("away")
        return search(*args, **more)

    monkeypatch.setattr(project.store, "search", away_at_first)
    project.store.commands.submit(NAME, ["echo a"])
    ann = CommandWorker(project.store, [NAME], name="ann")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(ann.run, until_empty=True, burst_wait_s=2)
        assert eventually(lambda: make_lists(NAME) == 1)
        running.result()
    [command] = project.ended()
    assert command.run.out.text == "a\n"
    assert ["has new commands in no list yet" in left for left in ann.left] == [True]
    assert len(asked) < 120  # It rests between two looks.


def test_a_worker_that_ends_with_the_work_does_not_wait_for_commands_that_come_much_later(project):
    project.store.commands.submit(NAME, ["echo a"])
    [new] = project.store.search(f'group:"commands/{NAME}/new"').tasks
    later = NewTask(group=new.group, data=new.data, data_type=new.data_type, timespec_ms=-3_600_000)
    project.store.commit(deletes=[new.id], adds=[later])
    ann = CommandWorker(project.store, [NAME], name="ann")
    began_s = time.monotonic()
    ann.run(until_empty=True)
    assert time.monotonic() - began_s < 30  # It would wait for a minute.
    assert ["has new commands in no list yet" in left for left in ann.left] == [True]


# ---- `taskstore commands worker`, as whoever types it notices: real processes


SEEDS_EXAMPLE = "echo 'A'; sleep 2; echo 'B'"


@pytest.fixture
def begin(store):
    """Commands under way."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*arguments):
        begun.append(store.begin("commands", "worker", *arguments))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def results(store):
    """Exit code 1: there is none yet."""
    told = store.manage("commands", "results", "--json")
    assert told.returncode in (0, 1), told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_from_submit_to_results(store, begin):
    with store.up("--commands"):
        worker = begin("default", "--name", "ann", "--env", "COLOUR=red")
        assert store.manage("commands", "submit", SEEDS_EXAMPLE, "echo $COLOUR").returncode == 0
        wait_for(lambda: len(results(store)) == 2, "the end of the commands")
        outputs = {result["cmd"]: result["run"]["out"]["text"] for result in results(store)}
        assert outputs == {SEEDS_EXAMPLE: "A\nB\n", "echo $COLOUR": "red\n"}
        worker.send_signal(signal.SIGTERM)
        said, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert said.startswith("This worker runs shell commands of the project default as the user ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a/b"], "projects[0]: must not be empty or contain / or NUL"),
        (["a", "--name", "b/c"], "--name: must have 1 to 100 characters"),
        (["a", "--shell", "/no/such/shell"], "--shell: must be an executable program, not /no/such/shell"),
        (["a", "--cwd", "/no/such/folder"], "--cwd: must be an existing directory, not /no/such/folder"),
        (["a", "--memory", "3"], "must be a size such as 256KiB, 512MiB or 2GiB, not 3"),
        (["a", "--output-limit", "2GiB"], "--output-limit: must be between 1024 and 67108864"),
    ],
)
def test_what_makes_no_sense_is_told(store, arguments, said):
    told = store.manage("commands", "worker", *arguments)
    assert (told.returncode, told.stdout) == (2, "")
    assert said in told.stderr


# ---- The example of TDF2's README on its whole way: submitted, in a list, run, and as files that are as documented


PATIENCE_S = 120
LINE = "echo 'A'; sleep 2; echo 'B'"


def test_the_example_goes_from_submit_to_files_and_back(store, tmp_path):
    with store.up("--commands", TASKSTORE_COMMAND_LISTS="*=2/1h/1h"):
        [submitted] = told(store, "submit", LINE, "--expected", "120s", "--max-fails", "5")
        told(store, "export", str(tmp_path / "before"))
        [failing] = told(store, "submit", "printf '\\377'; echo no >&2", "--max-fails", "1")
        worker = store.begin("commands", "worker", "default", "--name", "worker_123")
        try:
            assert eventually(lambda: len(finished(store)) == 2, PATIENCE_S)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=PATIENCE_S)
        runs = {each["id"]: each["run"] for each in finished(store)}
        told(store, "export", str(tmp_path / "after"))
        told(store, "results", "--to", str(tmp_path / "results"))
        told(store, "import", str(tmp_path / "after"), "--project", "again")
        told(store, "export", str(tmp_path / "again"), "--project", "again")

    id, created, until = submitted["id"], submitted["created"], submitted["until"]
    seven = f"{id}\n{created}\n{until}\n120\n5\n0\n{LINE}\n"
    assert files(tmp_path / "before") == {f"new/{id}.task": seven.encode()}
    run = runs[id]
    assert run["ended"] - run["started"] >= 1  # The clock may be anywhere within its second.
    ten = f"{seven}worker_123\n{run['started']}\n{run['ended']}\n"
    written = files(tmp_path / "after")
    assert written.keys() == {
        f"completed/{id}.task",
        f"completed/{id}.out",
        f"failed_count/{failing['id']}.task",
        f"failed_count/{failing['id']}.out",
        f"failed_count/{failing['id']}.err",
    }
    assert written[f"completed/{id}.task"] == ten.encode()
    assert written[f"completed/{id}.out"] == b"A\nB\n"
    assert written[f"failed_count/{failing['id']}.out"] == b"\xff"
    assert written[f"failed_count/{failing['id']}.err"] == b"no\n"
    assert files(tmp_path / "again") == written
    assert files(tmp_path / "results") == {path.split("/")[1]: content for path, content in written.items()}


def finished(store):
    """Those that have a result; the list of none is a failure."""
    done = store.manage("commands", "results", "--json", patience_s=PATIENCE_S)
    return [json.loads(line) for line in done.stdout.splitlines()]


def told(store, *arguments):
    done = store.manage("commands", *arguments, "--json", patience_s=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
