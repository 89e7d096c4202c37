"""The processes of workers: each ends as it should, leaves nothing behind, and takes nobody with it."""

import os
import select
import shlex
import signal
import socket
import time

import pytest

from lab.testing.processes import family, signal_all
from taskstore.worker import children
from taskstore.worker import process_tree as tree
from taskstore.worker.children import Gone, News, NotPrepared, Why
from tests.jobs.workers import eventually

from .children import PATIENCE_S, SAMPLE, Functions, Shells, answer_of, is_alive, within

pytestmark = pytest.mark.once

FORK_SERVER = "taskstore.worker.runner"
HUNGRY = "python3 -c 'import time; some = bytearray({} << 20); time.sleep(1000)'"


@pytest.fixture
def shells(tmp_path):
    with Shells(tmp_path) as shells:
        yield shells


@pytest.fixture(scope="module")
def functions():
    with Functions() as functions:
        yield functions


@pytest.fixture(params=["process per job", "reuse", "spawn"])
def any_functions(request):
    jobs = 100 if request.param == "reuse" else 1
    with Functions(jobs=jobs, spawn=request.param == "spawn") as functions:
        yield functions


# ---- Shells


def test_it_keeps_what_a_line_writes(shells):
    over = shells.run("echo A; sleep 0.1; echo B; echo oh >&2; exit 3")
    assert (over.out.text, over.err.text, over.code, over.why) == ("A\nB\n", "oh\n", 3, None)
    assert over.took_s >= 0.1


def test_a_line_that_never_ends_is_killed_with_all_that_it_started(shells, tmp_path):
    over = shells.run("trap '' TERM INT HUP; (setsid sleep 1000 & echo $! >other); sleep 1000", limit_s=0.5)
    assert (over.why, over.code) == (Why.TIME, -9)
    assert over.took_s >= 0.5
    assert not is_alive((tmp_path / "other").read_text().strip())


def test_what_a_line_leaves_behind_is_killed_and_told(shells, tmp_path):
    over = shells.run("setsid sh -c 'echo $$ >daemon; exec sleep 1000' >/dev/null 2>&1 & echo begun")
    assert (over.out.text, over.code, over.left) == ("begun\n", 0, 1)
    assert not is_alive((tmp_path / "daemon").read_text().strip())


def test_what_a_line_leaves_behind_may_come_to_its_end(shells):
    """As with bash, which does not wait for `>(gzip > file)`."""
    over = shells.run("(sleep 0.1; echo late) & echo early")
    assert (over.out.text, over.left) == ("early\nlate\n", 0)


def test_a_line_that_starts_ever_more_processes_is_killed(shells, tmp_path):
    line = "f() { [ $1 -gt 0 ] && for i in 1 2 3; do f $(($1 - 1)) & done; echo $$ >>pids; exec sleep 1000; }; f 4"
    assert shells.run(line, limit_s=2).why is Why.TIME
    assert not any(map(is_alive, (tmp_path / "pids").read_text().split()))


def test_of_a_line_that_writes_much_the_beginning_and_the_end_are_kept(shells):
    out = shells.run("echo begin; head -c 200000000 /dev/zero; echo end").out
    assert out.missing == 200_000_010 - 2_000
    assert (len(out.kept), out.cut_at) == (2_000, 1_000)
    assert (out.kept[:7], out.kept[-5:]) == (b"begin\n\0", b"\0end\n")


def test_characters_are_not_cut_in_two(shells):
    out = shells.run("yes ü | head -c 500001").out
    assert set(out.text) == {"ü", "\n"}
    assert len(out.kept) + out.missing == 500_001


def test_a_line_that_writes_without_end_is_killed_in_time(shells):
    over = shells.run("yes", limit_s=1)
    assert over.why is Why.TIME
    assert over.out.missing > 0


def test_the_memory_of_all_processes_of_a_line_counts(shells):
    line = f"{HUNGRY.format(60)} & setsid {HUNGRY.format(60)} & wait"
    assert shells.run(line, memory_bytes=100 * 2**20).why is Why.MEMORY
    assert shells.run(f"timeout 1 {HUNGRY.format(60)}; true", memory_bytes=100 * 2**20).why is None


def test_a_line_has_signals_as_elsewhere(shells):
    """Python ignores SIGPIPE: `yes` would complain then, and that would be a failure."""
    over = shells.run("yes | head -1")
    assert (over.code, over.err.text) == (0, "")


def test_a_line_runs_where_and_with_what_it_is_told_to(tmp_path):
    with Shells(tmp_path, COLOUR="red") as shells:
        assert shells.run("pwd; echo $COLOUR; cat").out.text == f"{tmp_path}\nred\n"


def test_a_line_has_no_files_but_its_own(shells):
    """With the socket of its runner it could say that it succeeded."""
    files = shells.run("for file in /proc/$$/fd/*; do readlink $file; done").out.text
    assert files.count("pipe:") == 2
    assert "socket:" not in files


@pytest.mark.parametrize(
    ("program", "line", "why"),
    [("/no/such/shell", "echo", "No such file or directory"), ("/bin/sh", "echo \0", "embedded null byte")],
)
def test_a_line_that_can_not_be_started_says_why(shells, program, line, why):
    over = shells.run(line, program=program)
    assert (over.why, over.pid) == (Why.NOT_STARTED, 0)
    assert why in over.text
    assert shells.run("echo a").out.text == "a\n"


def test_it_tells_what_a_line_has_written_so_far(shells):
    shells.begin(shells.work("echo begun; echo '::progress 0.5 half'; sleep 1.5"))
    news = shells.hear(News)
    assert news.out.text == "begun\n::progress 0.5 half\n"
    assert news.progress == (0.5, "half")
    assert shells.hear().code == 0


def test_a_line_is_killed_when_its_owner_says_so(shells, tmp_path):
    number = shells.begin(shells.work("echo $$ >pid; sleep 1000"))
    assert eventually((tmp_path / "pid").exists)
    shells.child.stop(number, only_waiting=True)
    shells.child.stop(number)
    assert shells.hear().why is Why.STOPPED
    shells.child.stop(number)  # Too late for it, and not meant for the next one.
    assert shells.run("echo a").out.text == "a\n"


def test_work_waits_for_the_one_before_and_can_be_taken_back(shells, functions):
    first, second, third = (shells.begin(shells.work(f"sleep 0.5; echo {name}")) for name in "abc")
    shells.child.stop(second, only_waiting=True)
    overs = [shells.hear() for _ in range(3)]
    assert [(over.number, over.why, over.out.text) for over in overs] == [
        (second, Why.NOT_BEGUN, ""),
        (first, None, "a\n"),
        (third, None, "c\n"),
    ]
    for number in range(3):
        functions.begin(functions.work("add", number))
    assert [answer_of(functions.hear())["result"] for _ in range(3)] == [0, 1, 2]


# ---- Python functions


def test_it_brings_back_what_a_function_returns(any_functions):
    assert any_functions.answer("add", 1, kwargs={"b": 2}) == {"how": "succeeded", "result": 3}
    assert any_functions.answer("add_later", 1, 2)["result"] == 3
    assert any_functions.run("end_itself", 7).code == 7
    assert any_functions.answer("add", 1, 2)["result"] == 3


def test_each_job_has_a_process_of_its_own_unless_it_may_run_several(functions):
    pids = [functions.answer("who_am_i", job_id=7)["result"]["pid"] for _ in range(2)]
    assert len({os.getpid(), *pids}) == 3
    with Functions(jobs=2) as reused:
        first, second, third = (reused.answer("who_am_i")["result"]["pid"] for _ in range(3))
    assert first == second != third


def test_it_says_what_went_wrong_and_where_in_the_jobs_own_code(functions):
    over = functions.run("fail", "no such address \ud800")
    error = answer_of(over)["error"]
    assert (error["type"], error["message"]) == ("ValueError", "no such address \\ud800")
    assert "in fail\n" in error["traceback"]
    assert "taskstore" not in error["traceback"].replace("/taskstore/", "")
    assert over.out.text == "about to fail\n"
    assert functions.answer("add")["error"]["message"].endswith("missing 1 required positional argument: 'a'")


def test_a_function_that_is_no_job_is_not_run(functions):
    error = functions.answer("no_such_job")["error"]
    assert error["type"] == "UnknownFunction"
    assert "this worker does not run" in error["message"]


def test_a_process_that_is_killed_has_no_answer(functions):
    functions.begin(functions.work("sleep", 600))
    os.kill(functions.hear(News).pid, signal.SIGKILL)
    over = functions.hear()
    assert (over.answer, over.code, over.was_signalled) == (b"", -9, False)


def test_a_process_that_crashes_says_where(functions):
    over = functions.run("crash")
    assert over.code == -11
    assert " in crash" in over.out.text


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_person_may_end_a_job_by_its_process(functions, end):
    functions.begin(functions.work("sleep", 600))
    os.kill(functions.hear(News).pid, end)
    over = functions.hear()
    assert (over.why, over.was_signalled) == (Why.SIGNAL, False)


def test_a_job_that_takes_too_long_is_told_so_and_can_clean_up(any_functions, tmp_path):
    # A new interpreter can't be told before it has imported the function.
    over = any_functions.run("clean_up_when_told", str(tmp_path), limit_s=3, kill_after_s=PATIENCE_S)
    assert over.why is Why.TIME
    assert "time.sleep(600)" in answer_of(over)["error"]["traceback"]
    assert (tmp_path / "cleaned").exists()
    assert any_functions.answer("add", 1, 2)["result"] == 3


def test_a_job_that_does_not_listen_is_killed(functions):
    over = functions.run("ignore_everything", 600, limit_s=0.2)
    assert (over.why, over.answer, over.code) == (Why.TIME, b"", -9)
    assert over.took_s < 10


def test_memory_that_is_used_counts_and_not_memory_that_is_reserved(functions):
    over = functions.run("eat_memory", memory_bytes=200 * 2**20)
    assert over.why is Why.MEMORY
    assert functions.answer("sleep_in_threads", 40, memory_bytes=200 * 2**20)["result"] == 40


def test_a_job_that_allocates_much_at_once_ends_only_itself(functions):
    assert functions.run("allocate", 2 * 2**30, memory_bytes=200 * 2**20).why is Why.MEMORY
    assert functions.answer("own_oom_score")["result"] == 1_000
    assert functions.answer("add", 1, 2)["result"] == 3


def test_the_end_of_what_it_wrote_is_kept(functions):
    out = functions.run("say", "x" * 99, 20_000).out
    assert out.kept.endswith(b"x\n\xff\xfe\n")
    assert len(out.kept) <= 2**16 < out.missing


def test_what_a_job_started_ends_with_it(functions):
    pid = functions.answer("leave_somebody_behind")["result"]
    assert not is_alive(pid)


def test_a_process_pool_of_a_job_works_and_its_workers_can_be_terminated(functions):
    answer = functions.answer("use_a_pool")
    assert answer["result"] == {"squares": [0, 1, 4], "broken": "BrokenProcessPool", "exitcode": -15}


# ---- What a job leaves running


def test_threads_and_exit_handlers_of_a_job_come_to_their_end(functions, tmp_path):
    assert functions.answer("leave_a_thread", str(tmp_path), 0.5)["result"] == "left"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["exit", "thread"]


def test_threads_are_waited_for_where_processes_are_used_again(tmp_path):
    with Functions(jobs=100) as functions:
        assert functions.answer("leave_a_thread", str(tmp_path), 0.5)["result"] == "left"
        assert [file.name for file in tmp_path.iterdir()] == ["thread"]
    assert eventually((tmp_path / "exit").exists)


@pytest.mark.parametrize("jobs", [1, 100])
def test_threads_that_do_not_end_in_time_fail_the_job_by_name(tmp_path, jobs):
    with Functions(jobs=jobs) as functions:
        over = functions.run("leave_a_thread", str(tmp_path), 600, limit_s=0.5, kill_after_s=5)
        error = answer_of(over)["error"]
        assert (error["type"], over.took_s < 4) == ("ThreadsLeft", True)
        assert "sleepy" in error["message"]
        assert functions.answer("add", 1, 2)["result"] == 3


def test_an_exit_handler_that_hangs_does_not_succeed(functions):
    over = functions.run("hang_at_exit", limit_s=0.5)
    assert over.why is Why.TIME


# ---- Signals to all processes


def test_a_signal_to_all_processes_is_no_failure_of_the_work(shells, tmp_path):
    shells.begin(shells.work("echo $$ >pid; sleep 1000"))
    assert eventually((tmp_path / "pid").exists)
    signal_all(shells.children._server.pid, signal.SIGTERM)
    over = shells.hear()
    assert over.code in (-15, 128 + 15)  # Of the shell, or of what it ran.
    assert (over.was_signalled, over.why) == (True, None)


def test_a_job_goes_on_when_all_processes_get_a_signal(any_functions):
    any_functions.begin(any_functions.work("sleep", 2.5))
    while "I sleep" not in any_functions.hear(News).out.text:
        """A new interpreter takes a while to begin."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal_all(any_functions.children._server.pid, number)
    over = any_functions.hear()
    assert (answer_of(over)["result"], over.was_signalled) == ("slept", True)
    assert any_functions.answer("add", 1, 2)["result"] == 3


# ---- The end of a runner, of the fork server and of the owner


def test_what_kills_its_runner_takes_all_of_its_own_with_it(shells, tmp_path):
    shells.begin(shells.work("setsid sleep 1000 & echo $! >other; kill -9 $PPID; sleep 1000"))
    assert shells.hear(Gone)
    assert eventually(lambda: not is_alive((tmp_path / "other").read_text().strip()))
    shells.child = shells.children.new()
    assert shells.run("echo a").out.text == "a\n"


def test_runners_go_on_without_the_fork_server(functions):
    with Functions() as functions:
        assert functions.answer("add", 1, 2)["result"] == 3
        server = functions.children._server
        server.kill()
        server.wait()
        assert functions.answer("add", 1, 2)["result"] == 3
        functions.child = functions.children.new()
        assert functions.answer("add", 1, 2)["result"] == 3


def test_who_waits_hears_of_the_end_though_another_file_has_its_number_by_then(shells, monkeypatch):
    child, new_poller = shells.child, select.poll
    others: list[socket.socket] = []

    class Late:
        def __init__(self):
            self.poller = new_poller()
            self.register = self.poller.register

        def poll(self, patience_ms):
            if not others:  # What another thread may do just before.
                shells.children.discard(child)
                others.extend(socket.socketpair())
            return self.poller.poll(patience_ms)

    monkeypatch.setattr(select, "poll", Late)
    [event] = child.wait()
    assert isinstance(event, Gone)
    for other in others:
        other.close()


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_process_of_the_next_job_is_there_before_it_comes(is_killed):
    with Functions() as functions:
        first = functions.run("add", 1, 2)
        (runner,) = tree.children(functions.children._server.pid)
        assert eventually(lambda: [*tree.children(runner)])
        (waiting,) = tree.children(runner)
        if is_killed:
            os.kill(waiting, signal.SIGKILL)
            assert eventually(lambda: not [*tree.children(runner)])
        second = functions.run("add", 1, 2)
        assert answer_of(second) == answer_of(first)
        assert first.pid != second.pid
        assert (second.pid == waiting) is not is_killed
        assert is_killed or not is_alive(waiting)  # It has run its job and left.


@pytest.mark.parametrize("way", ["end", "kill", "end, the runner is stopped", "end, all are stopped"])
def test_everything_ends_with_the_owner(tmp_path, way):
    with Shells(tmp_path) as shells:
        shells.begin(shells.work("setsid sleep 1000 & echo $! $$ >pids; sleep 1000"))
        assert eventually(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
        everything = family(shells.children._server.pid)
        if "runner" in way:
            os.kill(next(iter(tree.children(shells.children._server.pid))), signal.SIGSTOP)
        if "all" in way:
            signal_all(shells.children._server.pid, signal.SIGSTOP)
        if way == "kill":
            for channel in (shells.child.channel, shells.children._control):
                channel.end.close()  # As the system does.
            assert eventually(lambda: not any(map(is_alive, everything)))
    assert eventually(lambda: not any(map(is_alive, everything)))


def test_limits_hold_while_the_owner_is_stopped(shells):
    """It reads nothing of what the command writes."""
    shells.begin(shells.work("while true; do head -c 9000 /dev/zero; sleep 0.3; done", limit_s=3))
    time.sleep(4)
    assert shells.hear().took_s < 3.5


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start processes of other users")
def test_a_process_of_another_user_is_told_and_hinders_no_other(tmp_path, monkeypatch):
    """It can't be killed, so another runner goes on."""
    powerless = [
        *shlex.split("setpriv --bounding-set=-kill --inh-caps=-kill"),
        *children.interpreter(FORK_SERVER, "main"),
    ]
    monkeypatch.setattr(children, "interpreter", lambda *_: powerless)
    with Shells(tmp_path) as shells:
        over = shells.run("setpriv --reuid=65534 --clear-groups sleep 1000 & echo $! >other; sleep 0.3; echo a")
        other = int((tmp_path / "other").read_text())
        try:
            assert (over.out.text, over.code, over.left, over.others) == ("a\n", 0, 0, (other,))
            shells.hear(Gone)
            shells.child = shells.children.new()
            for _ in range(3):
                assert shells.run("echo b").took_s < 1
        finally:
            os.kill(other, signal.SIGKILL)


def test_no_file_stays_open(tmp_path):
    """A server starts its helper again and again."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with Shells(tmp_path) as shells, Functions() as functions:
            assert shells.run("echo a").out.text == "a\n"
            assert functions.answer("add", 1)["result"] == 1
    assert len(os.listdir("/proc/self/fd")) == before


# ---- The start


@pytest.mark.parametrize(
    ("module", "text", "spawn"),
    [
        ("no_such_module", r"^ModuleNotFoundError: No module named 'no_such_module'$", False),
        ("no_such_module", r"^ModuleNotFoundError: No module named 'no_such_module'$", True),
        ("tests.jobs.broken", r"^NameError: .*broken.py, line 3\)$", False),
        ("json", r"^no function in json is a job: decorate functions with @job$", False),
        ("tests.jobs.breaking_off", r"^its process ended with code 3 before .*\nI can't be imported$", True),
        ("tests.jobs.breaking_off", r"has ended or does not respond$", False),
    ],
)
def test_it_says_why_there_is_nothing_to_run(module, text, spawn):
    with pytest.raises(NotPrepared, match=text):
        Functions(module, spawn=spawn)


def test_modules_that_start_threads_are_imported_by_each_process(caplog):
    with Functions("tests.jobs.threaded", jobs=2) as functions:
        pids = {functions.answer("who_am_i")["result"]["pid"] for _ in range(2)}
        assert len(pids) == 1
    assert "each process is a new interpreter" in caplog.text


def test_a_worker_starts_though_a_thread_of_a_module_does_not_end(caplog):
    began_s = time.monotonic()
    with Functions("tests.jobs.busy"):
        assert time.monotonic() < began_s + 30
    assert "each process is a new interpreter" in caplog.text


def test_a_module_may_replace_standard_output():
    with Functions("tests.jobs.rewrapping") as functions:
        assert [text in functions.run("say", text.decode()).out.kept for text in (b"one", b"two")] == [True, True]


def test_what_a_job_changes_does_not_keep_the_next_one_from_being_interrupted():
    with Functions(jobs=5) as functions:
        functions.answer("ignore_interrupts")
        number = functions.child.run(*functions.work("sleep", 60, kill_after_s=50))
        time.sleep(0.5)
        functions.child.stop(number)
        assert answer_of(within(20, functions.hear))["error"]["type"] == "Stopped"


def test_of_a_job_that_forks_and_returns_twice_one_result_counts():
    with Functions(jobs=5) as functions:
        assert functions.answer("fork_and_return")["result"] == "parent"
        assert functions.answer("add", 1, 2)["result"] == 3


def begin_all(functions, *texts):
    works = [functions.work("add", text, "", limit_s=None) for text in texts]
    functions.child.run_all([(work, messages) for work, *messages in works])


def test_an_owner_and_a_runner_that_send_much_at_once_do_not_wait_for_each_other():
    texts = ["x" * 300_000] * 4
    with Functions(jobs=1_000) as functions:
        begin_all(functions, *texts)
        time.sleep(0.5)  # Until the runner can't send more of the answers.
        within(PATIENCE_S, lambda: begin_all(functions, *texts))
        assert [answer_of(functions.hear())["result"] for _ in texts * 2] == texts * 2


def test_a_runner_that_is_stopped_stops_nobody_who_sends():
    with Functions(jobs=10) as functions:
        functions.answer("add", 1, 2)
        (runner,) = tree.children(functions.children._server.pid)
        os.kill(runner, signal.SIGSTOP)
        within(PATIENCE_S, lambda: begin_all(functions, "x" * 2_000_000, "y" * 2_000_000))
        assert functions.child.wait(0.2) == []
        os.kill(runner, signal.SIGCONT)
        assert [len(answer_of(functions.hear())["result"]) for _ in range(2)] == [2_000_000] * 2


def test_limits_hold_while_a_process_takes_nothing_of_what_it_is_sent():
    with Functions(jobs=10) as functions:
        pid = functions.run("add", 1, 2).pid
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        over = within(PATIENCE_S, lambda: functions.run("add", "x" * 2_000_000, "", limit_s=0.5))
        assert (over.why, over.pid) == (Why.TIME, pid)
        assert time.monotonic() - begun < 10
        assert functions.answer("add", 1, 2)["result"] == 3


def test_an_import_that_hangs_has_a_time_limit_however_much_is_sent(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    waits = "import os, time\nwhile os.path.exists(os.environ['SLOW']): time.sleep(1)\n"
    (tmp_path / "slow_to_import.py").write_text(waits)
    monkeypatch.setenv("SLOW", str(tmp_path / "slow"))
    with Functions("slow_to_import", SAMPLE, spawn=True) as functions:
        (tmp_path / "slow").touch()
        over = within(PATIENCE_S, lambda: functions.run("add", "x" * 2_000_000, "", limit_s=0.5))
        assert over.why is Why.TIME
