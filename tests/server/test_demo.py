"""`manage.py demo wordcount`: the right counts, whatever happens to its workers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from lab.demo.wordcount import words_of
from lab.management.commands.demo import Command

from .harness import Server, Store, empty
from .rest import Rest
from .texts import WORDS, write_text

# A client over HTTP like any other: what the database does under contention, chaos tries on both.
pytestmark = pytest.mark.once


@pytest.fixture
def store(lasting_store: Store) -> Store:
    return lasting_store


@pytest.fixture
def server(lasting_server: Server) -> Server:
    return lasting_server


@pytest.fixture
def rest(server: Server, store: Store) -> Iterator[Rest]:
    with Rest(server.url, store.token) as rest:
        yield rest
    empty(server, store.token)


def test_it_counts_the_words_of_files_and_leaves_nothing_behind(store, rest, tmp_path):
    done = store.manage("demo", "wordcount", str(write_text(tmp_path, 60)), str(write_text(tmp_path, 60)))
    assert (done.returncode, done.stderr) == (0, "")
    assert "108 of 108 pieces of the text counted" in done.stdout
    assert f"all {len(WORDS)} words have the same count" in done.stdout
    assert rest.groups() == []


def test_the_ten_most_frequent_words_are_shown(store, server, tmp_path):
    file = tmp_path / "text"
    file.write_text("\n".join(" ".join([word] * number) for number, word in enumerate("abcdefghijkl", start=1)))
    done = store.manage("demo", "wordcount", str(file), "--workers", "2")
    shown = re.findall(r"^ +(\d+)  (\w)$", done.stdout, re.MULTILINE)
    assert shown == [(str(number), word) for number, word in reversed(list(enumerate("abcdefghijkl", start=1))[2:])]


def test_its_output_stays_when_it_is_to_be_kept(store, rest, tmp_path):
    file = write_text(tmp_path, 30)
    store.manage("demo", "wordcount", str(file), "--keep", "--workers", "2")
    [group] = rest.groups()
    found = [json.loads(task["data"]) for task in rest.tasks(group)]
    assert re.fullmatch("wordcount/[0-9a-f]{6}/output", group)
    assert {word: count for letter in found for word, count in letter.items()} == Counter(words_of(file.read_text()))
    assert len(found) == len({word[0].lower() for word in WORDS})


def test_killed_workers_change_nothing(store, rest, tmp_path):
    done = store.manage("demo", "wordcount", str(write_text(tmp_path, 12_000)), "--kill-workers", "--workers", "4")
    assert (done.returncode, done.stderr) == (0, "")
    killed = re.search(r"(\d+) workers were killed", done.stdout)
    assert killed
    assert int(killed[1]) > 0
    assert rest.groups() == []


def test_a_token_that_is_not_valid_is_told(store, server):
    done = store.manage("demo", "wordcount", "--url", server.url, "--token", "ts_wrong")
    assert done.returncode == 2
    assert done.stderr.startswith("taskstore: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("limits", [["--scope", "read"], ["--scope", "work", "--groups", "mail"]])
def test_a_token_that_may_not_do_this_is_told(store, server, limits):
    token = store.manage("token", "create", "demo", *limits).stdout.strip()
    done = store.manage("demo", "wordcount", "--url", server.url, "--token", token)
    assert done.returncode == 2
    assert done.stderr.startswith("taskstore: ")
    assert done.stderr.count("\n") == 1


def test_the_token_of_this_machine_is_not_sent_elsewhere(store, server):
    done = store.manage("demo", "wordcount", "--url", server.url)
    assert done.returncode == 2
    assert done.stderr == f"taskstore: name a token for {server.url} with --token\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "can't read {file}: No such file or directory"), ("1 2 3\n...", "this text contains no words")],
)
def test_a_file_that_is_no_use_is_told(sqlite_store, tmp_path, content, complaint):
    file = tmp_path / "text"
    if content is not None:
        file.write_text(content)
    done = sqlite_store.manage("demo", "wordcount", str(file))
    assert done.returncode == 2
    assert complaint.format(file=file) in done.stderr


def test_counts_that_differ_are_told_with_exit_code_1(capsys):
    with pytest.raises(SystemExit) as ended:
        Command().compare(Counter(be=2, ghost=1), Counter(be=2, to=1))
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "2 words have a different count from that of a simple count:",
        "    ghost: 1 instead of 0",
        "    to: 0 instead of 1",
    ]
