"""Do what the argument says, a JSON object, and print what came of it: `python -m lab.benchmarks.clients '{...}'`.

{"client": "rest", "where": {...}, "load": {...}, "do": "work", "order": {"lead_s": 0.5, "seconds": 5, ...}}
"""

import json
import sys
from importlib import import_module

from ..pace import Load
from .client import Client, run

# A client's class, whose module is imported only when it is the one: each has imports of its own.
CLIENTS = {"writer": "writer:WriterClient", "rest": "rest:RestClient", "psycopg": "psycopg_statements:PsycopgClient"}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    module, _, name = CLIENTS[asked["client"]].partition(":")
    kind: type[Client] = getattr(import_module(f"{__package__}.{module}"), name)
    client = kind(Load.from_json(asked["load"]), asked["where"])
    print(json.dumps(run(getattr(client, asked["do"])(**asked["order"]))))
