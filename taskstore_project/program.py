"""The name under which this program is called, and hints for misspelt commands and environment variables.

Standard library only, as the client's commands need it on machines without Django.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANAGE = HERE.parent / "manage.py"  # Exists only in a checkout.

PREFIX = "TASKSTORE_"
# Variables that are not settings. Those of settings.py are read from there.
OTHER_VARIABLES = {
    *("TASKSTORE_URL", "TASKSTORE_TOKEN", "TASKSTORE_CLIENT"),
    *("TASKSTORE_ENVIRONMENT", "TASKSTORE_TEST_POSTGRES_URL", "TASKSTORE_CHROMIUM", "TASKSTORE_RUNNER"),
}


def typed_as() -> str:
    """Return the program as the user types it: `taskstore` if installed, in a checkout `python3 manage.py`."""
    if Path(sys.argv[0]).name == "taskstore" or not MANAGE.exists():
        return "taskstore"
    with suppress(OSError):  # The current directory may have been deleted.
        if Path.cwd() == MANAGE.parent:
            return "python3 manage.py"
    return f"python3 {shlex.quote(str(MANAGE))}"


def version() -> str:
    """Return the version of Task Store."""
    if MANAGE.exists():
        return str(tomllib.loads((MANAGE.parent / "pyproject.toml").read_text())["project"]["version"])
    return metadata.version("taskstore")


def data_option(folder: Path | str) -> str:
    """Return the option that selects this data directory, as typed after a command."""
    return f" --data {shlex.quote(str(Path(folder).expanduser().absolute()))}"


def unknown_command(name: str, known: Collection[str], others: Collection[str] = ()) -> str:
    """Return an error that suggests a similar command; names in `others` need a closer match than those in `known`."""
    meant = get_close_matches(name, known, n=1, cutoff=0.5) or get_close_matches(name, others, n=1, cutoff=0.75)
    guess = f' Did you mean "{meant[0]}"?' if meant else ""
    return f"unknown command: {_printable(name)}.{guess} `{typed_as()} --help` lists all commands"


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each variable with our prefix that nothing reads."""
    strange = sorted(name for name in environment if name.startswith(PREFIX) and name not in OTHER_VARIABLES)
    # Read as text: without Django the settings can't be imported.
    settings = re.findall(rf'"({PREFIX}\w+)"', (HERE / "settings.py").read_text()) if strange else ()
    known = OTHER_VARIABLES.union(settings)
    for name in strange:
        if name not in known:
            meant = get_close_matches(name, known, n=1, cutoff=0.8)
            guess = f"did you mean {meant[0]}?" if meant else "no setting has this name"
            yield f"the environment variable {_printable(name)} has no effect: {guess}"


def _printable(name: str) -> str:
    return name if re.fullmatch(r"[\w./-]+", name, re.ASCII) else ascii(name)


def warn(environment: Mapping[str, str] = os.environ) -> None:
    """Write the warnings about variables to standard error."""
    for warning in unknown_variables(environment):
        print(f"taskstore: {warning}", file=sys.stderr, flush=True)
