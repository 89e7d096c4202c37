"""Takes orders, a JSON object a line, and answers each with a line.

The first line says which client it is and where it works: {"client": "writer", "where": {...}}. Then
{"do": "prepare"}, {"do": "add", "tasks": 1000}, each also with {"load": {...}}, and
{"do": "work", "lead_s": 0.5, "seconds": 5}, which answers with two lines: the window, before it
begins, and what was done in it. {"problem": "..."} is the answer when an order could not be carried out.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import import_module
from typing import Any, cast

from .. import CannotMeasure
from ..pace import Load
from .client import Client, Party
from .crew import Crew, alone
from .sample import summary

# A client's class, where its module is imported only when it is the one: each peer has imports of its own.
CLIENTS = {
    "writer": "writer:WriterClient",
    "rest": "rest:RestClient",
    "psycopg": "psycopg_statements:PsycopgClient",
}


def main() -> None:
    description = json.loads(sys.stdin.readline())
    kind = client_class(description["client"])
    for line in sys.stdin:
        order = json.loads(line)
        client = kind(Load.from_json(order.pop("load")), description["where"])
        try:
            obey(client, **order)
        except CannotMeasure as problem:
            answer({"problem": str(problem)})


def client_class(name: str) -> type[Party]:
    module, _, class_name = CLIENTS[name].partition(":")
    found: type[Party] = getattr(import_module(f"{__package__}.{module}"), class_name)
    return found


def obey(client: Party, *, do: str, **order: Any) -> None:
    if do == "work":
        with Crew(cast(Client, client)) as crew:
            crew.wait_until_connected()
            window = crew.start(**order)
            answer(asdict(window))
            answer(summary(crew.samples(), window))
    else:
        answer(alone(getattr(client, do), *order.values()))


def answer(found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
