"""`manage.py demo wordcount`: the right counts, whatever happens to its workers."""

import random
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from lab.management.commands.demo import Command

from .harness import wait_for
from .rest import Rest

WORDS = ("the", "quick", "brown", "fox", "doesn't", "don\N{RIGHT SINGLE QUOTATION MARK}t", "ÜBER", "été", "слово")
# A client over HTTP like any other: what the database does under contention, chaos tries on both.
pytestmark = pytest.mark.once


@pytest.fixture
def rest(store):
    with store.up() as server, Rest(server.url, store.token) as rest:
        yield rest


def test_it_counts_the_words_of_files_and_leaves_nothing_behind(store, rest, tmp_path):
    file = tmp_path / "letters"
    file.write_text("\n".join(" ".join([word] * number) for number, word in enumerate("abcdefghijkl", start=100)))
    done = store.manage("demo", "wordcount", str(file), str(write_text(tmp_path, 60)), "--workers", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"all {len(WORDS) + 12} words have the same count" in done.stdout
    shown = re.findall(r"^ +(\d+)  (\w)$", done.stdout, re.MULTILINE)
    assert shown == [(str(number), word) for number, word in reversed(list(enumerate("cdefghijkl", start=102)))]
    assert rest.groups() == []


def test_killed_workers_change_nothing(store, rest, tmp_path):
    done = store.manage("demo", "wordcount", str(write_text(tmp_path, 20_000)), "--kill-workers", "--workers", "4")
    assert (done.returncode, done.stderr) == (0, "")
    [killed] = re.findall(r"(\d+) workers were killed", done.stdout)
    assert int(killed) > 0
    assert rest.groups() == []


@pytest.mark.parametrize("is_asked", [True, False])
def test_its_workers_end_with_it(store, rest, tmp_path, is_asked):
    demo = store.begin("demo", "wordcount", str(write_text(tmp_path, 30_000)), "--workers", "2")
    wait_for(lambda: any("/words/" in group for group in rest.groups()), "the first count")
    [run] = {group.rpartition("/words/")[0] for group in rest.groups() if "/words/" in group}
    demo.send_signal(signal.SIGINT) if is_asked else demo.kill()
    output, _ = demo.communicate(timeout=60)
    wait_for(lambda: not processes_of(run), "the end of the workers")
    if is_asked:
        assert demo.returncode == 130
        assert "Traceback" not in output
        assert rest.groups() == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "can't read {file}: No such file or directory"),
        ("1 2 3\n...", "this text contains no words: name another file"),
        ("words", "no server runs on this data directory: start one with `python3 manage.py up --data {data}`"),
    ],
)
def test_what_is_no_use_is_told(sqlite_store, tmp_path, content, complaint):
    file = tmp_path / "text"
    if content is not None:
        file.write_text(content)
    done = sqlite_store.manage("demo", "wordcount", str(file))
    assert done.returncode == 2
    assert done.stderr == f"taskstore: {complaint.format(file=file, data=sqlite_store.folder)}\n"


def test_counts_that_differ_are_told_with_exit_code_1(capsys):
    with pytest.raises(SystemExit) as ended:
        Command().compare(Counter(be=2, ghost=1), Counter(be=2, to=1))
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "2 words have a different count from that of a simple count:",
        "    ghost: 1 instead of 0",
        "    to: 0 instead of 1",
    ]


def write_text(folder, lines):
    """A file of lines of nine words each."""
    chance = random.Random(1)
    file = folder / "text"
    file.write_text("\n".join(" ".join(chance.choices(WORDS, k=9)) + "." for _ in range(lines)))
    return file


def processes_of(run):
    return [process for process in Path("/proc").glob("[0-9]*/cmdline") if run.encode() in read_bytes(process)]


def read_bytes(file):
    try:
        return file.read_bytes()
    except OSError:  # The process has gone meanwhile.
        return b""
