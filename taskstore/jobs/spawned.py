"""A process for jobs that is a fresh interpreter, for modules that can't be copied once they are imported."""

from __future__ import annotations

import json
import socket

from .child import work_off
from .messages import Nursing, packed
from .registry import resolve, why_not


def main(arguments: list[str]) -> None:
    """`DESCRIPTOR SETUP`: the socket to the nursery, and a Nursing as JSON."""
    descriptor, setup = arguments
    end, nursing = socket.socket(fileno=int(descriptor)), Nursing(**json.loads(setup))
    try:
        functions = resolve(nursing.runner)
    except Exception as problem:
        end.sendall(packed({"problem": why_not(problem)}))
        return
    end.sendall(packed({"ready": True, "threads": 1}))
    work_off(end, functions, nursing.jobs_per_process)
