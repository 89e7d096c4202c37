"""What a runner makes of the lines that it is given: real shells."""

import os
import signal
from pathlib import Path

import pytest

from taskstore.commands.descendants import marked
from taskstore.commands.messages import Order, Ran
from taskstore.commands.runner_link import MARK, RunnerDied
from tests.jobs.workers import eventually

from .lines import CLOCK, LATER, LIMIT_S, command

pytestmark = pytest.mark.once


def test_it_keeps_what_a_line_writes(lines):
    run = lines.run("echo 'A'; sleep 0.1; echo 'B'")
    assert (run.out.content, run.err.content, run.exit_code, run.worker) == (b"A\nB\n", b"", 0, "ann")
    assert run.duration_ms >= 100
    assert run.started <= run.ended
    assert not run.failed


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("exit 3", 3, "ended with 3\n"),
        ("printf oh >&2; exit 3", 3, "oh\nended with 3\n"),
        ("kill -9 $$", 137, "killed by signal 9\n"),
        ("echo oh >&2", 0, "oh\n"),
    ],
)
def test_it_says_in_the_error_output_how_a_line_failed(lines, line, code, said):
    run = lines.run(line)
    assert (run.exit_code, run.err.text, run.failed) == (code, said, True)


def test_a_line_that_never_ends_is_killed_with_all_that_it_started(lines, tmp_path):
    run = lines.run("trap '' TERM INT HUP; (setsid sleep 1000 & echo $! >other); sleep 1000", limit_s=1)
    assert (run.exit_code, run.err.text) == (137, "took longer than 1 s and was killed\n")
    assert run.duration_ms >= 1_000
    assert not is_alive(int((tmp_path / "other").read_text()))


def test_what_a_line_leaves_behind_is_killed_and_told(lines, tmp_path):
    ran = lines.ran("setsid sh -c 'echo $$ >daemon; exec sleep 1000' >/dev/null 2>&1 & echo begun")
    assert (ran.run.out.text, ran.run.exit_code, ran.left) == ("begun\n", 0, 1)
    assert not is_alive(int((tmp_path / "daemon").read_text()))


def test_what_a_line_leaves_behind_may_come_to_its_end(lines):
    """As with bash, which does not wait for `>(gzip > file)`."""
    ran = lines.ran("(sleep 0.1; echo late) & echo early")
    assert (ran.run.out.text, ran.left) == ("early\nlate\n", 0)


def test_a_line_that_starts_ever_more_processes_is_killed(lines, tmp_path):
    line = "f() { [ $1 -gt 0 ] && for i in 1 2 3; do f $(($1 - 1)) & done; exec sleep 1000; }; f 4"
    ran = lines.ran(line, limit_s=2)
    assert ran.run.err.text.endswith("took longer than 2 s and was killed\n")
    assert not any("sleep\0" + "1000" in text(pid, "cmdline") and cwd(pid) == str(tmp_path) for pid in all_pids())


def test_of_a_line_that_writes_much_the_beginning_and_the_end_are_kept(lines):
    out = lines.run("echo begin; head -c 200000000 /dev/zero; echo end").out
    assert out.missing == 200_000_010 - 2_000
    assert (len(out.kept), out.cut_at) == (2_000, 1_000)
    assert (out.kept[:7], out.kept[-5:]) == (b"begin\n\0", b"\0end\n")


def test_characters_are_not_cut_in_two(lines):
    out = lines.run("yes ü | head -c 500001").out
    assert set(out.text) == {"ü", "\n"}
    assert len(out.kept) + out.missing == 500_001


def test_binary_data_is_kept_as_it_is(lines):
    run = lines.run(r"printf '\000\377\376'; printf '\201' >&2")
    assert (run.out.content, run.err.content) == (b"\0\xff\xfe", b"\x81")


def test_a_line_that_closes_its_outputs_is_waited_for(lines):
    run = lines.run("echo a; exec >&- 2>&-; sleep 0.7; exit 4")
    assert (run.out.text, run.err.text, run.exit_code) == ("a\n", "ended with 4\n", 4)
    assert run.duration_ms >= 700


def test_a_line_that_writes_without_end_is_killed_in_time(lines):
    run = lines.run("yes", limit_s=1)
    assert run.err.text == "took longer than 1 s and was killed\n"
    assert run.out.missing > 0


def test_a_line_that_reads_finds_nothing(lines):
    assert lines.run("cat; echo read").out.text == "read\n"


def test_a_line_that_needs_too_much_memory_is_killed(lines):
    hungry = "python3 -c 'import time; some = bytearray(200 << 20); time.sleep(1000)'"
    run = lines.run(hungry, memory_bytes=100 * 2**20)
    assert (run.exit_code, run.err.text) == (137, "used more than 100 MiB and was killed\n")


def test_the_memory_of_all_processes_of_a_line_counts(lines):
    hungry = "python3 -c 'import time; some = bytearray(60 << 20); time.sleep(1000)'"
    run = lines.run(f"{hungry} & setsid {hungry} & wait", memory_bytes=100 * 2**20)
    assert run.err.text == "used more than 100 MiB and was killed\n"


def test_a_line_has_signals_as_elsewhere(lines):
    """Python ignores SIGPIPE: `yes` would complain then, and that would be a failure."""
    assert not lines.run("yes | head -1").failed


def test_a_line_runs_where_and_with_what_it_is_told_to(lines, tmp_path):
    run = lines.run("pwd; echo $COLOUR", env={"COLOUR": "red"})
    assert run.out.text == f"{tmp_path}\nred\n"


def test_a_line_has_no_files_but_its_own(lines):
    """With the socket of its runner it could say that it succeeded."""
    files = lines.run("for file in /proc/$$/fd/*; do readlink $file; done").out.text
    assert files.count("pipe:") == 2
    assert "socket:" not in files


def test_a_line_that_can_not_be_started_says_why(lines):
    run = lines.run("echo", shell="/no/such/shell")  # noqa: S604 - not the one of subprocess.
    assert run.exit_code == 126
    assert run.err.text.startswith("could not be started: ")


def test_a_line_that_is_late_is_not_run(lines, tmp_path):
    commands = [(command("echo early", until=LATER), LIMIT_S), (command("touch late", until=1), LIMIT_S)]
    told = [message for message in lines.link().run(commands, CLOCK) if message]
    assert [message.place for message in told] == [0]
    assert not (tmp_path / "late").exists()


def test_a_list_is_over_when_its_outputs_are_large(lines):
    told = lines.messages(*["head -c 2000 /dev/zero"] * 5, most_bytes=20_000)
    # A NUL takes six characters of JSON.
    assert [message.place for message in told] == [0, 1]


def test_it_tells_what_a_line_has_written_so_far(lines):
    first, *_ = lines.wrote("echo begun; sleep 1.5")
    assert (first.out.text, first.err.text) == ("begun\n", "")


def test_it_finishes_what_is_begun_when_told_to(lines):
    told = ordered(lines.link(), Order.FINISH, "sleep 2; echo a", "echo b")
    assert [(message.place, message.run.out.text) for message in told] == [(0, "a\n")]


def test_it_kills_what_is_begun_when_told_to(lines, tmp_path):
    assert ordered(lines.link(), Order.STOP, "echo $$ >pid; sleep 1000", "echo b") == []
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_line_may_kill_its_runner_and_takes_all_with_it(lines, tmp_path):
    """The next list has another runner."""
    link = lines.link()
    with pytest.raises(RunnerDied, match="-9"):
        list(link.run([(command("setsid sleep 1000 & echo $! >other; kill -9 $PPID; sleep 1000"), LIMIT_S)], CLOCK))
    assert eventually(lambda: not is_alive(int((tmp_path / "other").read_text())))
    assert [message.run.out.text for message in link.run([(command("echo a"), LIMIT_S)], CLOCK) if message] == ["a\n"]


def test_a_runner_whose_worker_has_gone_kills_what_runs(lines, tmp_path):
    link = lines.link()
    messages = link.run([(command("setsid sleep 1000 & echo $! >other; sleep 1000"), LIMIT_S)], CLOCK)
    assert eventually(lambda: next(messages))
    link.end()
    assert not is_alive(int((tmp_path / "other").read_text()))


def test_a_line_bears_the_mark_of_its_runner(lines):
    """By which all is found that it started, when the runner is killed."""
    run = lines.run(f"echo ${MARK}")
    assert len(run.out.text.strip()) == 16
    assert list(marked(f"{MARK}={run.out.text.strip()}")) == []


def ordered(link, order, *told):
    """What came of the lines when this was ordered while the first was running."""
    ran = []
    for message in link.run([(command(line, number), LIMIT_S) for number, line in enumerate(told)], CLOCK):
        if isinstance(message, Ran):
            ran.append(message)
        elif message:
            link.order(order)
    return ran


def is_alive(pid):
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    return text(pid, "stat").rpartition(")")[2].split()[:1] not in (["Z"], [])


def all_pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def text(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def cwd(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
