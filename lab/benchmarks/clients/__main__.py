"""Takes orders, a JSON object a line, and answers each with a line.

The first line says which client it is and where it works: {"client": "writer", "where": {...}}. Then
{"do": "prepare"}, {"do": "add", "tasks": 1000}, each also with {"load": {...}}, and
{"do": "work", "lead_s": 0.5, "seconds": 5}, which answers with two lines: the window, before it
begins, and what was done in it. {"problem": "..."} is the answer when an order could not be carried out.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import asdict
from importlib import import_module
from typing import Any

from ..pace import Load
from .client import Client, run

# A client's class, where its module is imported only when it is the one: each has imports of its own.
CLIENTS = {
    "writer": "writer:WriterClient",
    "rest": "rest:RestClient",
    "psycopg": "psycopg_statements:PsycopgClient",
}


def main() -> None:
    description = json.loads(sys.stdin.readline())
    module, _, name = CLIENTS[description["client"]].partition(":")
    kind: type[Client] = getattr(import_module(f"{__package__}.{module}"), name)
    for line in sys.stdin:
        order = json.loads(line)
        client = kind(Load.from_json(order.pop("load")), description["where"])
        try:
            answer(obey(client, **order))
        except Exception as problem:
            traceback.print_exc()
            answer({"problem": f"{type(problem).__name__}: {problem}"})


def obey(client: Client, *, do: str, **order: Any) -> Any:
    if do == "work":
        return run(client.work(**order, begun=lambda window: answer(asdict(window))))
    return getattr(client, do)(*order.values())


def answer(found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
