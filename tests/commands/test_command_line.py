"""`taskstore commands worker`, as whoever types it notices: real processes."""

import json
import signal
import subprocess

import pytest

from tests.server.harness import wait_for

pytestmark = pytest.mark.once

SEEDS_EXAMPLE = "echo 'A'; sleep 2; echo 'B'"


@pytest.fixture
def begin(store):
    """Commands under way."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*arguments):
        begun.append(store.begin("commands", "worker", *arguments))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def results(store):
    """Exit code 1: there is none yet."""
    told = store.manage("commands", "results", "--json")
    assert told.returncode in (0, 1), told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_from_submit_to_results(store, begin):
    with store.up("--commands"):
        worker = begin("default", "--name", "ann", "--env", "COLOUR=red")
        assert store.manage("commands", "submit", SEEDS_EXAMPLE, "echo $COLOUR").returncode == 0
        wait_for(lambda: len(results(store)) == 2, "the end of the commands")
        outputs = {result["cmd"]: result["run"]["out"]["text"] for result in results(store)}
        assert outputs == {SEEDS_EXAMPLE: "A\nB\n", "echo $COLOUR": "red\n"}
        worker.send_signal(signal.SIGTERM)
        said, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert said.startswith("This worker runs shell commands of the project default as the user ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a/b"], "projects[0]: must not be empty or contain / or NUL"),
        (["a", "--name", "b/c"], "--name: must have 1 to 100 characters"),
        (["a", "--shell", "/no/such/shell"], "--shell: must be an executable program, not /no/such/shell"),
        (["a", "--cwd", "/no/such/folder"], "--cwd: must be an existing directory, not /no/such/folder"),
        (["a", "--memory", "3"], "must be a size such as 256KiB, 512MiB or 2GiB, not 3"),
        (["a", "--output-limit", "2GiB"], "--output-limit: must be between 1024 and 67108864"),
    ],
)
def test_what_makes_no_sense_is_told(store, arguments, said):
    told = store.manage("commands", "worker", *arguments)
    assert (told.returncode, told.stdout) == (2, "")
    assert said in told.stderr
