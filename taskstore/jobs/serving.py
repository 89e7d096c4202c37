"""What `taskstore work MODULE...` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ..client.client import Client
from ..types.job_record import DEFAULT_QUEUE
from .registry import REGISTERED
from .worker import JobWorker


def run_worker(
    modules: Sequence[str],
    *,
    queues: Sequence[str] = (),
    store: Client | None = None,
    **options: Any,
) -> None:
    """Run the jobs of these modules until SIGTERM or SIGINT. Options: those of JobWorker.

    Raises NotPrepared, whose text says which module is not there or holds no jobs; and what a Client raises.
    """
    if os.getcwd() not in sys.path:
        # An installed command looks where it lies itself; who calls it means the folder that they are in.
        sys.path.insert(0, os.getcwd())
    runner = [REGISTERED, *modules]
    JobWorker(store or Client(), queues or [DEFAULT_QUEUE], runner=runner, **options).run()
