"""The commands that ask a server, as whoever types them on its machine notices: real processes."""

import gc
import os
import pty
import re
import shlex
import subprocess
import sys

import pytest

from lab.testing import PROJECT
from taskstore_project.__main__ import main
from taskstore_project.command_table import names
from taskstore_project.program import unknown_variables

from .harness import Store

pytestmark = pytest.mark.once


def on_terminal(store, *arguments, **variables):
    """What a command writes to a terminal of 80 columns."""
    leader, follower = pty.openpty()
    environment = {**store._environment, "TERM": "xterm-256color", "COLUMNS": "80", **variables}
    command = [sys.executable, "manage.py", *arguments]
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdin=follower, stdout=follower, stderr=follower):
        os.close(follower)
        told = b"".join(pieces_of(leader))
    os.close(leader)
    return told.decode()


def pieces_of(leader):
    try:
        while piece := os.read(leader, 10_000):
            yield piece
    except OSError:  # Linux says so that nobody else has it open.
        return


def test_they_find_the_server_of_this_machine(store):
    with store.up():
        assert store.manage("add", "mail", "x" * 200).stdout == "added task 1 to mail\n"
        assert store.manage("groups").stdout == "mail\n"
        seen = on_terminal(store, "ls", "mail")
        assert "\x1b[" in seen
        plain = on_terminal(store, "ls", "mail", NO_COLOR="1")
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain)
        assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", plain).splitlines())) <= 80
        completion = {"_TASKSTORE_COMPLETE": "bash_complete", "COMP_WORDS": "taskstore ls m", "COMP_CWORD": "2"}
        assert store.manage(**completion).stdout == "plain,mail\n"
        completion |= {"COMP_WORDS": "taskstore to", "COMP_CWORD": "1"}
        assert store.manage(**completion).stdout == "plain,token\n"
    away = store.manage("groups", "--url", "http://127.0.0.1:1")
    assert (away.returncode, away.stdout, away.stderr.count("\n")) == (3, "", 1)


def test_help_lists_the_commands_of_this_program(empty_place):
    told = empty_place.manage("--help")
    assert (told.returncode, told.stderr) == (0, "")
    for command in names():
        assert re.search(rf"^  {command}  +[A-Z]", told.stdout, re.MULTILINE), command
    assert "migrate" not in told.stdout
    assert "`python3 manage.py help --commands`" in told.stdout
    assert "\nmigrate\n" in empty_place.manage("help", "--commands").stdout
    assert empty_place.manage().stdout == empty_place.manage("help").stdout == told.stdout
    assert "Usage: python3 manage.py claim" in empty_place.manage("help", "claim").stdout
    assert "usage:" in empty_place.manage("help", "token").stdout
    assert empty_place.manage("completion", "fish").stdout.startswith("function ")
    assert empty_place.manage("--version").stdout.startswith("taskstore 0.")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("adn", "add"), ("help adn", "add"), ("sreve", "serve"), ("migarte", "migrate"), ("frobnicate", "")],
)
def test_a_mistyped_command_is_told_with_the_one_that_is_like_it(monkeypatch, capsys, typed, meant):
    monkeypatch.setattr(sys, "argv", ["manage.py", *typed.split()])
    monkeypatch.setattr(gc, "disable", lambda: None)
    with pytest.raises(SystemExit) as refused:
        main()
    name = typed.split()[-1]
    guess = f' Did you mean "{meant}"?' if meant else ""
    why = f"taskstore: unknown command: {name}.{guess} `python3 manage.py --help` lists all commands\n"
    told = capsys.readouterr()
    assert (refused.value.code, told.out, told.err) == (2, "", why)


@pytest.mark.parametrize("command", [["token", "list"], ["groups"]])
def test_a_misspelt_variable_is_told(empty_place, command):
    told = empty_place.manage(
        *command, TASKSTORE_PUBLIC_ULR="http://x", TASKSTORE_TOKENN="x", TASKSTORE_WORKERS_OF_ANN="1", TASKSTORE_URL=""
    )
    assert told.stderr.splitlines()[:-1] == [
        "taskstore: the environment variable TASKSTORE_PUBLIC_ULR has no effect: did you mean TASKSTORE_PUBLIC_URL?",
        "taskstore: the environment variable TASKSTORE_TOKENN has no effect: did you mean TASKSTORE_TOKEN?",
        "taskstore: the environment variable TASKSTORE_WORKERS_OF_ANN has no effect: no setting has this name",
    ]


def copied(store, text):
    """What comes of a shown command that is copied into a shell that knows nothing of the data directory."""
    environment = {name: value for name, value in store._environment.items() if name != "TASKSTORE_DATA"}
    command = text.replace("python3", shlex.quote(sys.executable))
    return subprocess.run(
        ["sh", "-c", command], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )


def test_commands_that_are_shown_name_the_data_folder(empty_place):
    store = Store(empty_place.folder.parent / "other data")
    data = f"--data '{store.folder}'"
    with store.up() as server:
        assert store.manage("add", "mail", "hello").returncode == 0
        claimed = store.manage("claim", "mail", *shlex.split(data), TASKSTORE_DATA="").stderr
        assert data in claimed
        assert copied(store, claimed.partition("when it is done: ")[2]).stdout == "deleted task 2\n"
        refused = store.manage("ls", "mail", "--token", "", *shlex.split(data), TASKSTORE_DATA="").stderr
        made = refused.split("`")[1].replace("NAME", "ann")
        assert made == f"python3 manage.py token create ann --scope read {data}"
        assert copied(store, made).stdout.startswith("ts_")
        shown = server.ask("GET", "/groups", copied(store, made.replace("ann", "bob")).stdout.strip())
        assert shown.json() == []
    told = store.manage("demo", "wordcount")
    assert f"`python3 manage.py up {data}`" in told.stderr


def test_every_variable_that_is_read_is_known():
    code = [*(PROJECT / "tasks_app").rglob("*.py"), *(PROJECT / "taskstore_project").rglob("*.py")]
    read = {name for file in code for name in re.findall(r'"(TASKSTORE_[A-Z_]+)"', file.read_text())}
    assert list(unknown_variables(dict.fromkeys(read - {"TASKSTORE_NO_AUTH"}, "1"))) == []


def test_what_a_command_wrote_reaches_a_terminal_escaped_and_a_pipe_as_it_is(store, tmp_path):
    folder = tmp_path / "files"
    (folder / "completed").mkdir(parents=True)
    (folder / "completed/1_0.task").write_text("1_0\n1\n2\n1\n1\n0\ntrue\nann\n1\n2\n")
    (folder / "completed/1_0.out").write_bytes(b"\x1b[2Jred\n")
    with store.up("--commands"):
        assert store.manage("commands", "import", str(folder)).returncode == 0
        assert on_terminal(store, "commands", "results", "1_0") == "\\x1b[2Jred\r\n"
        assert store.manage("commands", "results", "1_0").stdout == "\x1b[2Jred\n"
