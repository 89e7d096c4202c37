"""A file is there whole or not at all, and what is no regular file is not replaced."""

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from lab.testing import PROJECT
from taskstore.whole_files import whole_file
from taskstore_project import backup
from taskstore_project.backup.file import opened

pytestmark = pytest.mark.once


@pytest.fixture(params=["nameless", "named"])
def place(request, tmp_path, monkeypatch):
    if request.param == "named":  # As on file systems without nameless files.
        monkeypatch.delattr(os, "O_TMPFILE")
    return tmp_path


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def read_beside(pipe, work):
    """What a reader of the pipe gets while the work is done."""
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    work()
    reader.join(10)
    return read[0]


def write(file, content, **how):
    with whole_file(file, **how) as opened:
        opened.write(content)


def test_it_appears_when_it_is_complete(place):
    with whole_file(place / "file", mode=0o600) as opened:
        opened.write(b"new")
        assert not (place / "file").exists()
    assert [each.name for each in place.iterdir()] == ["file"]
    assert stat.S_IMODE((place / "file").stat().st_mode) == 0o600
    write(place / "file", b"newer")
    assert (place / "file").read_bytes() == b"newer"


def test_a_failure_leaves_the_file_before(place):
    write(place / "file", b"old")
    with pytest.raises(ZeroDivisionError), whole_file(place / "file") as opened:
        opened.writelines(b"%d" % (1 // (3 - number)) for number in range(5))
    with pytest.raises(FileExistsError):
        write(place / "file", b"new", replaces=False)
    assert (place / "file").read_bytes() == b"old"
    assert [each.name for each in place.iterdir()] == ["file"]


def test_a_pipe_is_written_through(pipe):
    assert read_beside(pipe, lambda: write(pipe, b"content")) == b"content"
    assert pipe.is_fifo()


def test_a_backup_goes_through_a_pipe(pipe, tmp_path, transactional_db):
    (tmp_path / "read").write_bytes(read_beside(pipe, lambda: backup.write(pipe, print)))
    with opened(tmp_path / "read") as archive:
        assert archive.manifest.tasks == 0
    assert pipe.is_fifo()


def test_a_killed_process_leaves_nothing(tmp_path):
    program = (
        "import os, sys, signal, pathlib; from taskstore.whole_files import whole_file\n"
        "with whole_file(pathlib.Path(sys.argv[1])) as opened:\n"
        "    opened.write(b'x' * 100_000); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "file")], cwd=PROJECT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
