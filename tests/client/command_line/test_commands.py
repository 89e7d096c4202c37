"""Commands about shell commands. That a worker runs them is in tests/commands."""

import os

import pytest
from msgspec.structs import replace

from tasks_app.commands import make_lists
from tasks_app.control import batches
from tasks_app.models import Batch, Scope, Task
from taskstore.cli import commands_read
from taskstore.cli.made import all_of
from taskstore.types.command_record import CommandList, CommandStatus
from taskstore.types.tasks import Change, NewTask

from ...command_lists.commands import commands_in
from ...command_lists.stages import completed, heard, is_in, open_list, run, running_list, writes

pytestmark = pytest.mark.once


@pytest.fixture
def commands(command, token_of, settings):
    """What comes of a part of `commands`."""
    settings.TASKSTORE_COMMANDS = True
    secret = token_of(Scope.COMMANDS)

    def run_here(*arguments, **more):
        return command("commands", *arguments, token=secret, **more)

    return run_here


# ---- Submit


def test_a_line_is_submitted(commands):
    told = commands("submit", "echo 'A'; sleep 2; echo 'B'")
    [made] = commands_in("default", CommandStatus.NEW)
    assert (told.out, made.cmd) == (
        f"submitted command {made.id} to project default\n", "echo 'A'; sleep 2; echo 'B'",
    )  # fmt: skip


@pytest.mark.parametrize("way", ["file", "standard input", "a dash"])
def test_each_line_of_a_file_is_a_command_unless_it_is_blank_or_a_comment(commands, tmp_path, way):
    text = "\ufeffecho 1\n\n# nothing\n  # 2\r\necho ä"
    (tmp_path / "lines").write_text(text, newline="")
    arguments = {"file": ["--file", str(tmp_path / "lines")], "standard input": ["--file", "-"], "a dash": ["-"]}
    told = commands("submit", *arguments[way], stdin=text)
    made = commands_in("default", CommandStatus.NEW)
    assert [each.cmd for each in made] == ["echo 1", "  # 2", "echo ä"]
    assert told.out == f"submitted 3 commands to project default, the last one as {made[-1].id}\n"


def test_lines_that_are_not_utf8_are_kept_byte_by_byte(commands, tmp_path):
    """Those of a file, and arguments, in which Python escapes such bytes."""
    (tmp_path / "lines").write_bytes(b"cat caf\xe9\ncat caf\xc3\xa9\n")
    commands("submit", "--file", str(tmp_path / "lines"))
    commands("submit", os.fsdecode(b"cat na\xefve"), "--then", os.fsdecode(b"\xff"))
    made = commands_in("default", CommandStatus.NEW)
    assert [each.line for each in made] == [b"cat caf\xe9", "cat café".encode(), b"cat na\xefve"]
    assert [each.cmd for each in made] == [r"cat caf\xe9", "cat café", r"cat na\xefve"]
    assert [bool(each.cmd_base64) for each in made] == [True, False, True]
    assert commands("submit", "\ud800").err.count("must be valid UTF-8") == 1


def test_what_comes_then_waits_for_all_lines_of_a_file(commands, monkeypatch):
    monkeypatch.setattr("taskstore.cli.files.MOST_LINES", 2)
    told = commands("submit", "-", "--then", "echo all", stdin="true\n" * 5)
    assert told.code == 0
    [batch] = Batch.objects.counted()
    assert "they belong to batch" in told.out
    assert (batch.told().open, batch.told().hold, batch.steps) == (5, False, 1)
    commands("submit", "true", "true", "--batch", str(batch.pk))
    assert Batch.objects.counted().get().told().open == 7
    assert commands("submit", "true", "--batch", str(batch.pk), "--then", "true").code == 2
    assert "batch 99 does not exist" in commands("submit", "true", "--batch", "99").err


def test_what_comes_after_a_batch_is_submitted_when_that_has_closed(commands):
    made, _ = Task.objects.create_batch(owner=1, name="import", hold=True)
    told = commands("submit", "echo after", "--after", str(made.id))
    assert told.out == f"project default gets 1 command once batch {made.id} has succeeded\n"
    assert commands_in("default", CommandStatus.NEW) == []
    assert commands("submit", "true", "--after", "99").err.count("batch 99 does not exist") == 1
    assert commands("submit", "true", "--after", str(made.id), "--then", "true").code == 2
    batches.release(made.id)
    assert [each.cmd for each in commands_in("default", CommandStatus.NEW)] == ["echo after"]


def test_thousands_go_in_pieces_and_what_is_wrong_is_named_by_its_line(commands):
    lines = ["true"] * 1_200 + ["", "x" * 70_000]
    told = commands("submit", "-", stdin="\n".join(lines))
    assert (told.code, len(commands_in("default", CommandStatus.NEW))) == (2, 1_000)
    assert "1 000 commands were submitted; continue with --from-line 1001" in told.err
    assert "line 1202: cmd" in told.err
    told = commands("submit", "-", "--from-line", "1001", stdin="\n".join(lines[:-1]))
    assert (told.code, len(commands_in("default", CommandStatus.NEW))) == (0, 1_200)


@pytest.mark.parametrize(
    ("arguments", "stdin", "why"),
    [
        ([], None, "either LINEs"),
        (["a", "--file", "-"], "b", "either LINEs"),
        (["-", "a"], "b", "either LINEs"),
        (["a", "--from-line", "2"], None, "--from-line needs"),
        (["-"], "\n\n", "at least one line"),
        (["-"], "\ufeff# a\n", "neither blank nor begins with #"),
        ([""], None, "line 1: cmd"),
        (["a", "--until", "soon"], None, "must be a time such as"),
        (["a", "--expected", "5"], None, "must be a duration such as"),
        (["a", "--max-fails", "0"], None, "max-fails"),
        (["a", "--project", "a/b"], None, "project"),
    ],
)
def test_what_is_typed_wrongly_is_told(commands, arguments, stdin, why):
    told = commands("submit", *arguments, stdin=stdin)
    assert (told.code, why in told.err) == (2, True)
    assert commands_in("default", CommandStatus.NEW) == []


def test_a_server_that_takes_no_commands_says_how_it_would(command, token_of, settings):
    settings.TASKSTORE_COMMANDS = False
    for token in (token_of(Scope.COMMANDS), token_of(Scope.OPERATE)):
        told = command("commands", "submit", "true", token=token)
        assert (told.code, "token" in told.err) == (4, False)
        assert "start it with `up --commands` or `serve --commands`, or set TASKSTORE_COMMANDS=1" in told.err


# ---- Look


def test_a_status_shows_how_far_a_project_is(commands):
    completed(duration_ms=2_000)
    task, made = running_list()
    heard()
    task = writes(task, made, 1)
    words = commands("status").words
    assert "running 1 1 running on a worker" in words
    assert "completed 1 succeeded" in words
    assert "time left about 2 s" in words
    assert "recent runs 1, of which 0 failed" in words
    assert any(line.startswith(f"{made.name} {task.id} bob 1 2 ") for line in words)
    [seen] = commands("status", "--json").records
    assert (seen["counts"]["running"], seen["running"][0]["ownerid"]) == (1, 2)
    assert [line.split()[:4] for line in commands("projects").words[1:]] == [["default", "0", "0", "1"]]


def test_where_nothing_is_it_says_so(commands):
    for arguments in (["status"], ["lists"], ["list", "1"], ["results"], ["results", "17_0"], ["projects"]):
        told = commands(*arguments)
        assert (told.code, told.out) == (1, "")


def test_lists_and_a_list_with_its_commands(commands):
    task, made = running_list()
    task = writes(task, made, 1, out=b"one\nlast line\n\n")
    open_list()
    assert len(commands("lists").words) == 3
    [seen] = commands("lists", "--status", "running", "--json").records
    assert (seen["task"], seen["name"]) == (task.id, made.name)
    words = commands("list", str(task.id)).words
    assert {"project default", f"task {task.id}", "status running"} <= {*words}
    assert "done 1 of 2" in words
    assert f"{made.commands[1].id} running echo 1 last line" in words
    [whole] = commands("list", str(task.id), "--json").records
    assert [each["cmd"] for each in whole["commands"]] == ["echo 1"]


def test_results_are_listed(commands):
    _, good = completed(out=b"fine\n")
    _, bad = is_in(CommandStatus.FAILED_COUNT, cmd="false", run=run(failed=True, err=b"oh\x1b[31m"))
    listed = commands("results").words[1:]
    assert [line.split()[:3] for line in listed] == [
        [bad.id, "failed_count", "false"], [good.id, "completed", "true"],
    ]  # fmt: skip
    assert listed[0].endswith(r"oh\x1b[31m")
    is_in(CommandStatus.FAILED_TIME, run=run(failed=True, err=b"no such file\nended with 1\n"))
    assert commands("results", "--status", "failed_time").words[1].endswith(" no such file")
    assert [each["id"] for each in commands("results", "--status", "completed", "--json").records] == [good.id]
    assert [each["id"] for each in commands("results", "--text", "FALSE", "--json").records] == [bad.id]
    assert len(commands("results", "--limit", "1", "--json").records) == 1


def test_all_results_are_listed_page_by_page(commands, monkeypatch):
    monkeypatch.setattr("taskstore.cli.made.PAGE", 2)
    ids = [completed()[1].id for _ in range(5)]
    assert [each["id"] for each in commands("results", "--limit", "0", "--json").records] == ids[::-1]
    assert [each["id"] for each in commands("results", "--limit", "3", "--json").records] == ids[:1:-1]


def test_what_a_command_wrote_is_written_as_it_is(commands):
    _, made = completed(out=b"A\nB\n", err=b"\x1b[31mred")
    told = commands("results", made.id)
    assert (told.out, told.err) == ("A\nB\n", "\x1b[31mred")
    [whole] = commands("results", made.first_id, "--json").records
    assert whole["newest"]["run"]["out"]["text"] == "A\nB\n"


def test_what_is_not_finished_says_so(commands):
    task, made = running_list()
    told = commands("results", made.commands[0].id)
    assert (told.code, "is running and has not been run" in told.err) == (1, True)
    writes(task, made)
    told = commands("results", made.commands[0].id)
    assert (told.out, "still running" in told.err) == ("so far", True)


def test_on_a_terminal_it_is_written_without_what_a_terminal_obeys():
    ours, terminal = os.openpty()
    with open(ours, "rb") as screen, open(terminal, "w") as output:
        commands_read.write(output, b"a\x1b]0;gone\x07\n\xff\n")
        assert [screen.readline(), screen.readline()] == [b"a\\x1b]0;gone\\x07\r\n", "\ufffd\r\n".encode()]


def test_the_run_before_a_new_try_is_shown(commands):
    _, bad = is_in(CommandStatus.FAILED_ARCHIVE, run=run(failed=True, err=b"oh"))
    is_in(CommandStatus.NEW, id=bad.duplicate.id, fails=1)
    told = commands("results", bad.first_id)
    assert told.err == f"ohshows the run {bad.id}; {bad.duplicate.id} is new\n"


# ---- Change


def test_finished_commands_run_again(commands):
    _, bad = is_in(CommandStatus.FAILED_COUNT)
    _, good = completed()
    assert commands("retry", good.id).out == "1 command queued again\n"
    assert commands("retry", "--status", "completed").out == "0 commands queued again\n"
    assert commands("retry", "--all", "--reason", "fixed").out == "1 command queued again\n"
    assert len(commands_in("default", CommandStatus.NEW)) == 2
    assert bad.id not in {each.id for each in commands_in("default", CommandStatus.NEW)}


def test_what_waits_is_parked_and_goes_on(commands):
    _, waiting = is_in(CommandStatus.NEW)
    task, made = open_list()
    assert commands("stash", waiting.id, "--list", str(task.id)).out == "2 commands or lists stashed\n"
    assert commands("unstash", "--all", "--json").records == [{"changed": 2}]
    told = commands("stash", made.commands[0].id)
    assert (told.code, "is in list" in told.err) == (1, True)


def test_what_is_completed_is_put_away(commands):
    completed()
    assert commands("archive", "--all").out == "1 command archived\n"


def test_a_list_whose_worker_is_dead_is_opened(commands):
    task, _ = running_list()
    assert commands("reopen", str(task.id)).out == "1 list open again\n"
    [seen] = commands("lists", "--json").records
    assert seen["status"] == "open"
    told = commands("reopen", str(seen["task"]))
    assert (told.code, "not running" in told.err) == (1, True)
    assert commands("reopen", "99999").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["retry"],
        ["stash"],
        ["unstash"],
        ["archive"],
        ["stash", "1_0", "--all"],
        ["retry", "1_0", "--status", "completed"],
        ["results", "1_0", "--text", "a"],
    ],
)
def test_it_has_to_be_said_which(commands, arguments):
    assert commands(*arguments).code == 2


# ---- Files


def files(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_project_goes_into_directories_and_back(commands, tmp_path):
    _, done = completed(out=b"\xff\n")
    is_in(CommandStatus.NEW_STASHED)
    _, made = open_list()
    assert commands("export", str(tmp_path / "a")).out == f"{tmp_path / 'a'}: 4 commands\n"
    assert f"completed/{done.id}.out" in files(tmp_path / "a")
    assert f"open/{made.name}/{made.commands[0].id}.task" in files(tmp_path / "a")
    told = commands("import", str(tmp_path / "a"), "--project", "daily")
    assert told.out == "imported 3 commands and lists\n"
    assert commands("export", str(tmp_path / "b"), "--project", "daily", "--json").records == [{"commands": 4}]
    assert files(tmp_path / "b") == files(tmp_path / "a")
    told = commands("import", str(tmp_path / "a"), "--project", "daily", "--json")
    assert told.records == [{"imported": 0, "skipped": 3}]


def test_an_import_that_is_repeated_adds_nothing_though_the_commands_have_moved_on(commands, tmp_path, settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=1/1h/0s"
    is_in(CommandStatus.NEW)
    commands("export", str(tmp_path / "a"))
    commands("import", str(tmp_path / "a"), "--project", "daily")
    assert make_lists("daily") == 1
    told = commands("import", str(tmp_path / "a"), "--project", "daily")
    assert told.out == "imported 0 commands and lists; already there: 1\n"
    assert commands_in("daily", CommandStatus.NEW) == []


def test_a_running_list_is_exported_with_its_worker_and_what_is_no_command_is_left_out(commands, tmp_path):
    task, made = running_list()
    Task.objects.commit(owner=0, adds=[NewTask(group="commands/default/new", data=b"no")])
    told = commands("export", str(tmp_path / "a"))
    assert told.code == 0
    assert "of the group commands/default/new is left out: invalid record of a command" in told.err
    [directory] = (tmp_path / "a" / "running").iterdir()
    assert directory.name == f"{made.name}_client_{task.owner}_{task.leased_since_ms // 1_000}"


def test_a_list_that_is_closed_during_an_export_is_a_closed_one(commands, tmp_path, monkeypatch):
    running_list()

    def look_and_close(*asked, **more):
        found = list(all_of(*asked, **more))
        [task] = Task.objects.group("commands/default/open", owned=True)
        made = CommandList.decode(task.data)
        ended = replace(made, worker="w", started=1, finished=2, commands=[replace(made.commands[0], run=run())])
        change = Change(id=task.id, group="commands/default/closed", data=ended.encode())
        Task.objects.commit(owner=task.owner, updates=[change])
        return found

    monkeypatch.setattr("taskstore.cli.commands_change.all_of", look_and_close)
    told = commands("export", str(tmp_path / "a"))
    assert (told.code, told.err) == (0, "")
    assert len(list((tmp_path / "a" / "closed").iterdir())) == 1


def test_all_that_is_wrong_with_files_is_told_and_nothing_is_imported(commands, tmp_path):
    (tmp_path / "new").mkdir()
    for number in range(102):
        (tmp_path / "new" / f"{number:03}_0.task").write_text("x\n")
    told = commands("import", str(tmp_path))
    lines = told.err.splitlines()
    assert told.code == 1
    assert lines[0] == "new/000_0.task: must have 7 lines, or 10 after a run, not 1"
    assert lines[-2:] == ["and 2 more", "taskstore: nothing was imported: 102 problems"]
    assert commands("status").code == 1
    told = commands("import", str(tmp_path / "nowhere"))
    assert (told.code, "No such file or directory" in told.err) == (1, True)


def test_an_import_that_is_refused_says_how_to_go_on(commands, tmp_path, settings):
    _, made = is_in(CommandStatus.NEW)
    commands("export", str(tmp_path / "a"))
    settings.TASKSTORE_COMMANDS = False
    told = commands("import", str(tmp_path / "a"), "--project", "daily")
    assert told.code == 4
    assert "TASKSTORE_COMMANDS=1" in told.err
    settings.TASKSTORE_COMMANDS = True
    settings.TASKSTORE_MAX_DATA_BYTES = 10
    told = commands("import", str(tmp_path / "a"), "--project", "daily")
    assert told.code == 2
    assert told.err == f"taskstore: new/{made.id}: data: must have at most 10 bytes, not 179\n"


def test_an_export_writes_all_or_nothing(commands, tmp_path):
    is_in(CommandStatus.NEW)
    _, broken = is_in(CommandStatus.NEW, cmd="a")
    is_in(CommandStatus.NEW, id=broken.id, cmd="b")
    told = commands("export", str(tmp_path / "a"))
    assert told.code == 1
    assert f"new/{broken.id}: must have a unique id: another command has the same" in told.err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").write_text("x")
    told = commands("export", str(tmp_path))
    assert (told.code, "must be a new or an empty directory" in told.err) == (1, True)
    told = commands("export", str(tmp_path / "no" / "where"))
    assert (told.code, "No such file or directory" in told.err) == (1, True)


def test_results_are_written_to_files(commands, tmp_path):
    made = [completed(out=b"x" * 20_000)[1] for _ in range(60)]
    _, bad = is_in(CommandStatus.FAILED_COUNT, run=run(failed=True, err=b"no\n"))
    told = commands("results", "--to", str(tmp_path / "all"))
    assert told.out == f"{tmp_path / 'all'}: 61 commands\n"
    written = files(tmp_path / "all")
    assert len(written) == 61 * 2
    assert written[f"{made[0].id}.out"] == b"x" * 20_000
    assert written[f"{bad.id}.err"] == b"no\n"
    commands("results", "--to", str(tmp_path / "some"), "--status", "completed", "--limit", "2")
    assert len(files(tmp_path / "some")) == 4
    commands("results", bad.id, "--to", str(tmp_path / "one"))
    assert files(tmp_path / "one").keys() == {f"{bad.id}.task", f"{bad.id}.err"}


def test_a_result_that_can_be_no_file_is_told_and_the_others_are_written(commands, tmp_path):
    _, good = completed()
    is_in(CommandStatus.COMPLETED, run=run(), id="../a")
    told = commands("results", "--to", str(tmp_path / "all"))
    assert (told.code, "../a: must consist of letters" in told.err) == (1, True)
    assert files(tmp_path / "all").keys() == {f"{good.id}.task"}
