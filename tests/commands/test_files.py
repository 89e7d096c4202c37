"""The example of TDF2's README on its whole way: submitted, in a list, run, and as files that are as documented."""

import json
import signal

import pytest

from tests.command_files.test_round_trip import files
from tests.jobs.workers import eventually

pytestmark = pytest.mark.once

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
