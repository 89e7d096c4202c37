"""The packages of this environment, for tests that need only some of them."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

# The locked ones of the extra `server`.
PACKAGES = Path(sysconfig.get_path("purelib"))


def closure(packages: Iterable[str]) -> list[Distribution]:
    """These packages and all that they require."""
    found: dict[str, Distribution] = {}
    further = set(packages)
    while further:
        name = further.pop()
        with suppress(PackageNotFoundError):  # It is for another Python.
            found[name] = distribution(name)
            required = [line for line in found[name].requires or () if "extra ==" not in line]
            further |= {re.split(r"[^\w.-]", line)[0] for line in required} - found.keys()
    return list(found.values())


def places_of(packages: Iterable[str]) -> set[str]:
    """What lies in the environment for these packages and all that they require."""
    files = [file for each in closure(packages) for file in each.files or ()]
    return {file.parts[0] for file in files if ".." not in file.parts and "__pycache__" not in file.parts[:1]}
