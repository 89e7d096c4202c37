"""`manage.py demo wordcount`: the right counts, whatever happens to its workers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from lab.demo import wordcount_worker as worker
from lab.demo.wordcount import ENOUGH, chunks, differences, pieces_of, sample_text
from lab.management.commands.demo import Command

from .harness import Server, Store, empty
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
def rest(server: Server, store: Store) -> Iterator[worker.Store]:
    with worker.Store(server.url, store.token) as rest:
        yield rest
    empty(server, store.token)


def test_it_counts_the_words_of_files_and_leaves_nothing_behind(store, rest, tmp_path):
    done = store.manage("demo", "wordcount", str(write_text(tmp_path, 60)), str(write_text(tmp_path, 60)))
    assert (done.returncode, done.stderr) == (0, "")
    assert "120 of 120 lines counted" in done.stdout
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
    assert {word: count for letter in found for word, count in letter.items()} == Counter(
        worker.words_of(file.read_text())
    )
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
    assert done.stderr.startswith("taskstore: POST /claim was answered 401: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("limits", [["--scope", "read"], ["--scope", "work", "--groups", "mail"]])
def test_a_token_that_may_not_do_this_is_told(store, server, limits):
    token = store.manage("token", "create", "demo", *limits).stdout.strip()
    done = store.manage("demo", "wordcount", "--url", server.url, "--token", token)
    assert done.returncode == 2
    assert done.stderr.startswith("taskstore: POST /claim was answered 403: ")
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


@pytest.mark.parametrize("number", ["0", "65", "-1", "two"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(number):
    with pytest.raises(CommandError, match="must be a number between 1 and 64"):
        call_command("demo", "wordcount", f"--workers={number}")


def test_a_mapper_whose_lease_was_taken_over_changes_nothing(rest, server, store, monkeypatch):
    rest.commit(adds=[{"group": "mail/map", "data": "to be or not to be"}])
    monkeypatch.setattr(worker, "LEASE_MS", 0)
    taken_over = []
    claim: Any = rest.claim

    def claim_and_be_slow(group: str, limit: int) -> Any:
        lines = claim(group, limit)
        with worker.Store(server.url, store.token) as other:
            taken_over.extend(other.claim(group, limit))
        return lines

    monkeypatch.setattr(rest, "claim", claim_and_be_slow)
    assert worker.map_lines(rest, "mail") == 0
    assert rest.groups() == ["mail/map"]
    assert worker.ids(rest.tasks("mail/map")) == worker.ids(taken_over)


def test_a_letter_with_very_many_counts_is_added_up_step_by_step(rest, monkeypatch):
    monkeypatch.setattr(worker, "COUNTS_AT_ONCE", 3)
    rest.commit(adds=[{"group": "mail/words/b", "data": f'{{"be": {count}, "by": 1}}'} for count in range(1, 8)])
    rest.commit(adds=[{"group": "mail/reduce", "data": "b"}])
    finished = [worker.reduce_letter(rest, "mail") for _ in range(4)]
    assert finished == [0, 0, 0, 1]
    assert [task["data"] for task in rest.tasks("mail/output")] == ['{"be": 28, "by": 7}']
    assert rest.groups() == ["mail/output"]


def test_a_request_that_was_interrupted_does_not_spoil_the_next_one(rest, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(rest._connection, "getresponse", interrupt)
        with pytest.raises(KeyboardInterrupt):
            rest.groups()
    assert rest.groups() == []


def interrupt() -> None:
    raise KeyboardInterrupt


def test_counts_that_differ_are_told_with_exit_code_1(capsys):
    with pytest.raises(SystemExit) as ended:
        Command().compare(Counter(be=2, ghost=1), Counter(be=2, to=1))
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "2 words have a different count from that of a simple count:",
        "    ghost: 1 instead of 0",
        "    to: 0 instead of 1",
    ]


@pytest.mark.parametrize(
    ("found", "expected", "wrong"),
    [
        ({"be": 2}, {"be": 2}, []),
        ({"be": 2}, {"be": 3}, ["be"]),
        ({}, {"be": 1}, ["be"]),
        ({"be": 1}, {}, ["be"]),
    ],
)
def test_a_difference_is_found(found, expected, wrong):
    assert differences(Counter(found), Counter(expected)) == wrong


LINES = st.text(
    st.sampled_from("ab'\N{RIGHT SINGLE QUOTATION MARK} .é\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"), max_size=3_000
)


@given(LINES)
def test_a_line_is_cut_between_words(line):
    pieces = list(pieces_of(line))
    assert [word for piece in pieces for word in worker.words_of(piece)] == worker.words_of(line)
    assert all(len(piece) <= worker.LONGEST_LINE for piece in pieces)
    assert all(worker.words_of(piece) for piece in pieces)


@given(st.text())
def test_a_word_makes_a_name_of_a_group(text):
    assert all(0 < len(f"wordcount/123456/words/{word[0]}") <= 255 for word in worker.words_of(text))


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_001, 2_500])
def test_chunks_hold_everything_once(count):
    assert [number for chunk in chunks(range(count)) for number in chunk] == list(range(count))
    assert all(0 < len(chunk) <= 1_000 for chunk in chunks(range(count)))


def test_there_is_a_megabyte_of_text_on_this_machine():
    text = sample_text()
    assert len(text) >= ENOUGH
    assert len(set(worker.words_of(text))) > 1_000
