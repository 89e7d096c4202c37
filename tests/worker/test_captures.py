"""What is kept of an output."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import hypothesis
import pytest
from hypothesis import strategies as st

from taskstore.worker import outputs
from taskstore.worker.outputs import Capture, CopiedLines, ProgressLines, StandardError

pytestmark = pytest.mark.once


def captured(*pieces, most):
    ours, theirs = os.pipe()
    capture = Capture(ours, most // 2, most // 2)
    try:
        for piece in pieces:
            os.write(theirs, piece)
            assert capture.read()
        os.close(theirs)
        assert not capture.read()
    finally:
        os.close(ours)
    return capture


@hypothesis.given(st.lists(st.binary(min_size=1, max_size=50)), st.integers(0, 60))
def test_the_beginning_and_the_end_are_kept_and_the_rest_is_counted(pieces, most):
    written = b"".join(pieces)
    out = captured(*pieces, most=most).output()
    assert len(out.kept) + out.missing == len(written)
    assert written.startswith(out.kept[: out.cut_at])
    assert written.endswith(out.kept[out.cut_at :])
    # At most a character is lost on each side of the gap.
    assert len(out.kept) <= most
    assert out.missing == 0 or len(out.kept) >= most // 2 * 2 - 6


def test_text_stays_text_where_it_is_cut():
    out = captured("€€€€€€€€".encode(), most=10).output()
    assert (out.text, out.cut_at, out.missing) == ("€€", 3, 18)


def test_its_end_is_shown_while_it_grows():
    capture = captured(b"one two ", b"three", most=1_000)
    assert (capture.end(5).text, capture.end(5).missing) == ("three", 8)
    assert (capture.end(100).text, capture.end(100).missing) == ("one two three", 0)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (b"::progress 0.42 page 7 of 20\n", (0.42, "page 7 of 20")),
        (b"::progress 0.42\r\n", (0.42, "")),
        (b"begin\n::progress\t1\t all  done \nend\n", (1.0, "all  done")),
        (b"::progress 0.1\n::progress 0.2\n::progress 1.5\n", (0.2, "")),
        (b"::progress 0.1\n::progress nan\n::progress half\n::progress\n::progressing 1\n", (0.1, "")),
        (b"::progress 0.1\nsay ::progress 0.2\n", (0.1, "")),
        (b"::progress 0.1 " + b"x" * 300 + b"\n", (0.1, "x" * 255)),
        (b"::progress 0.1 \xff\0\n", (0.1, "\ufffd\ufffd")),
        (b"::progress 0.1 never ended", None),
        (b"x" * 5_000 + b"::progress 0.1\n", None),
        (b"::progress 0.1 " + b"x" * 5_000 + b"::progress 0.2\n", None),
        (b"", None),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 64, 2**16])
def test_lines_with_progress_are_found_however_they_arrive(written, found, size):
    lines = ProgressLines()
    for start in range(0, len(written), size):
        lines.take(written[start : start + size])
    assert lines.latest == found


def copied(prefix, *pieces):
    """What is on standard error, a pipe that is read in the end."""
    ours, theirs = os.pipe()
    to = StandardError(theirs)
    lines = CopiedLines(prefix, to)
    for piece in pieces:
        lines.take(piece)
    lines.end()
    written = b""
    while to.is_behind:
        written += os.read(ours, 2**20)
        to.flush()
    os.close(theirs)
    with open(ours, "rb") as rest:
        return written + rest.read()


def test_lines_are_copied_whole_and_in_order_after_their_prefix():
    assert copied(b"job 1: ", b"one\ntw", b"o\n\nthr", b"ee") == b"job 1: one\njob 1: two\njob 1: \njob 1: three\n"
    many = [f"line {number}\n".encode() for number in range(50_000)]
    assert copied(b"1 ", *many) == b"".join(b"1 " + line for line in many)


def test_a_long_line_is_cut_so_that_others_can_not_come_between():
    line = copied(b"job 1: ", "€".encode() * 30_000 + b"\n")
    assert len(line) <= 4_096
    assert line.startswith("job 1: €€€".encode())
    assert line.endswith("€ ... (90000 bytes in all)\n".encode())
    assert copied(b"", b"x" * 100_000) == b"x" * 100_000 + b"\n"


def test_a_long_line_that_comes_in_pieces_is_one_line():
    pieces = [b"x" * 50_000] * 20 + [b"\nlast"]
    first, last = copied(b"job 1: ", *pieces).splitlines()
    assert len(first) <= 4_096
    assert first.endswith(b"x ... (1000000 bytes in all)")
    assert last == b"job 1: last"
    assert copied(b"", *pieces) == b"x" * 1_000_000 + b"\nlast\n"


def test_at_the_end_the_rest_is_written_for_who_reads_it_slowly(monkeypatch):
    monkeypatch.setattr(outputs, "UNREAD_MS", 300)

    def read_by(pause_s, number):
        ours, theirs = os.pipe()
        with ThreadPoolExecutor(1) as thread, open(ours, "rb") as reader:
            to = StandardError(theirs)
            to.add([b"%d\n" % line for line in range(100_000)])

            def read():
                some = b""
                for _ in range(number):
                    some += os.read(ours, 2**16)
                    time.sleep(pause_s)
                return some

            reading = thread.submit(read)
            to.end(5)
            os.close(theirs)
            return reading.result() + reader.read()

    assert read_by(0.01, 10) == b"".join(b"%d\n" % line for line in range(100_000))
    some = read_by(1, 1)  # It reads no more until this end is closed.
    assert some == b"".join(b"%d\n" % line for line in range(100_000))[: len(some)]
    assert len(some) < 200_000


def test_nobody_waits_for_a_standard_error_that_is_not_read(monkeypatch):
    monkeypatch.setattr(outputs, "MOST_UNWRITTEN", 200_000)
    written = copied(b"1 ", *[b"x" * 98 + b"\n"] * 5_000).splitlines()
    assert 1_900 < len(written) < 3_000
    assert written[-1] == b"taskstore: %d lines are left out: standard error was read too slowly" % (
        5_000 - len(written) + 1
    )
