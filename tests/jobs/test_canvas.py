"""The program of docs/migrating.md that does what Celery's canvas does."""

import os
import subprocess
import sys

import pytest

from lab.testing import PROJECT
from tests.docs.pages import blocks

TEXT = next(block.text for block in blocks(PROJECT / "docs/migrating.md") if block.text.startswith("# canvas.py"))
WORK = "from taskstore.jobs.worker import run_worker; run_worker(['canvas'], jobs_per_process=20)"
SAID = """\
chain: 64, 3 of 3
group: 8, 2 of 2
chord: 90, 11 of 11
chord in a chain: 120, 4 of 4
chains in a chord: 24, 4 of 4
nested groups: [2, 4, 6], 4 of 4
error callback: ValueError: out of paper, 0 of 2
"""


@pytest.mark.django_db(transaction=True)
def test_the_program_does_what_canvas_does(queue, tmp_path):
    (tmp_path / "canvas.py").write_text(TEXT)
    path = os.pathsep.join((str(tmp_path), str(PROJECT)))
    environment = {
        **os.environ, "PYTHONPATH": path, "TASKSTORE_URL": queue.store.url, "TASKSTORE_TOKEN": queue.token
    }  # fmt: skip
    worker = subprocess.Popen([sys.executable, "-c", WORK], cwd=tmp_path, env=environment)
    try:
        program = [sys.executable, str(tmp_path / "canvas.py")]
        said = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout
    finally:
        worker.terminate()
        worker.wait()
    # The jobs of a group that nothing follows end in any order.
    assert said.replace("group: 4", "group: 8") == SAID
    told = queue.store.jobs.list(function="canvas.tell").jobs
    assert [job.args for job in told] in ([["ann"]], [("ann",)])
