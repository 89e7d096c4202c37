"""Which package may import which. Arrows run one way: a circle fails, and so does a package without a row."""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

TYPES = {"taskstore.types", "taskstore.errors"}
VALUES = TYPES | {"tasks_app.core"}
STORE = VALUES | {"tasks_app.conf", "tasks_app.offload", "tasks_app.database", "tasks_app.writer", "tasks_app.models"}
VERBS = STORE | {"tasks_app.access", "tasks_app.control", "tasks_app.reading", "tasks_app.wire"}
BY_ITSELF = {"tasks_app.alerts", "tasks_app.bulk", "tasks_app.commands", "tasks_app.jobs", "tasks_app.schedules"}

OF_WORKERS = {"taskstore.jobs", "taskstore.worker"}

MAY_IMPORT = {
    # What programs import. No Django.
    "taskstore.types": set(),
    "taskstore.errors": {"taskstore.types"},
    "taskstore.units": set(),
    "taskstore.whole_files": set(),
    "taskstore.masstasker": set(),
    "taskstore.endpoints": {"taskstore.types"},
    "taskstore.client": TYPES | {"taskstore.endpoints"},
    "taskstore.worker": TYPES | {"taskstore.client"},
    "taskstore.jobs": TYPES | {"taskstore.client", "taskstore.worker"},
    "taskstore.commands": TYPES | {"taskstore.client", "taskstore.worker"},
    "taskstore.cli": TYPES
    | {"taskstore.endpoints", "taskstore.client", "taskstore.commands", "taskstore.units", "taskstore.whole_files"},
    "taskstore": TYPES | {"taskstore.client", "taskstore.worker", "taskstore.jobs"},
    # The store: from the pure rules up to the models with their managers.
    "tasks_app.core": TYPES,
    "tasks_app.conf": set(),
    "tasks_app.database": VALUES | {"tasks_app.conf"},
    "tasks_app.offload": TYPES | {"taskstore.worker"},
    "tasks_app.writer": VALUES | {"tasks_app.conf", "tasks_app.database", "tasks_app.offload"},
    "tasks_app.models": VALUES | {"tasks_app.conf", "tasks_app.database", "tasks_app.writer"},
    # The verbs on it.
    "tasks_app.wire": VALUES | {"tasks_app.models"},
    "tasks_app.access": STORE,
    "tasks_app.control": STORE | {"tasks_app.access"},
    "tasks_app.reading": STORE | {"tasks_app.access", "tasks_app.control", "tasks_app.wire"},
    "tasks_app.forms": STORE,
    # What the store does with tasks by itself.
    "tasks_app.bulk": VERBS,
    "tasks_app.jobs": VERBS,
    "tasks_app.commands": VERBS,
    "tasks_app.schedules": VERBS | {"tasks_app.jobs"},
    "tasks_app.alerts": VERBS | {"tasks_app.schedules", "taskstore.units"},
    # The ways in. They know the verbs and never each other.
    "tasks_app.rest_api": VERBS | BY_ITSELF | {"taskstore.endpoints"},
    "tasks_app.grpc_api": VERBS | BY_ITSELF | {"taskstore.masstasker"},
    "tasks_app.live": VERBS,
    "tasks_app.admin": VERBS | BY_ITSELF | {"tasks_app.forms"},
    "tasks_app.console": VERBS | BY_ITSELF | {"tasks_app.forms", "taskstore.units"},
    "tasks_app.templatetags": VERBS | {"tasks_app.console", "tasks_app.schedules", "taskstore.units"},
    "tasks_app.local_store": VERBS | {"tasks_app.commands", "tasks_app.schedules", "taskstore.client"},
    "tasks_app.tasks_backend": VERBS
    | {"tasks_app.jobs", "tasks_app.schedules", "tasks_app.local_store", "tasks_app.database"}
    | {"taskstore.client", *OF_WORKERS},
    # What a project's tests use.
    "tasks_app.testing": STORE | {"tasks_app.control", "tasks_app.jobs", "tasks_app.tasks_backend"} | OF_WORKERS,
    "tasks_app.pytest_plugin": {"tasks_app.testing"},
    # Django's, and what begins and ends with a server.
    "tasks_app": set(),
    "tasks_app.apps": {"tasks_app.access", "tasks_app.checks", "tasks_app.database"}
    | {"tasks_app.models", "tasks_app.tasks_backend"},
    "tasks_app.checks": STORE | {"tasks_app.reading"},
    "tasks_app.management": TYPES
    | {"tasks_app.database", "tasks_app.tasks_backend", "taskstore.jobs", "taskstore.worker"},
    "tasks_app.migrations": {"tasks_app.database", "tasks_app.models"},
    "tasks_app.serving": STORE | BY_ITSELF | {"tasks_app.access", "tasks_app.control", "tasks_app.grpc_api"},
}
# The product may import all of these, the lab the product too.
PACKAGES = ("taskstore", "tasks_app", "taskstore_project", "lab")

# The packages from elsewhere. A row that is not here may use any that the server has.
USES = {
    "taskstore": set(),
    "taskstore.types": {"msgspec"},
    "taskstore.errors": set(),
    "taskstore.units": set(),
    "taskstore.whole_files": set(),
    "taskstore.endpoints": {"msgspec"},
    "taskstore.client": {"httpx", "msgspec"},
    "taskstore.worker": {"watchfiles"},
    "taskstore.jobs": {"msgspec"},
    "taskstore.commands": {"msgspec"},
    "taskstore.cli": {"click", "httpx", "msgspec", "rich"},
    "taskstore.masstasker": {"google", "grpc"},
    "tasks_app.core": {"msgspec"},
}

MODULES = sorted(module for package in PACKAGES for module in (PROJECT / package).rglob("*.py"))


def name_of(module: Path) -> str:
    return str(module.relative_to(PROJECT))


def test_each_module_imports_only_what_its_row_allows():
    beyond = {}
    for module in MODULES:
        row = row_of(name_of(module).removesuffix(".py").split("/"))
        imported = {row_of(name.split(".")) for name in imports(module)} - {"", row}
        if row == "taskstore_project":
            beyond[name_of(module)] = imported & {"lab"}
        elif row != "lab":
            assert row in MAY_IMPORT, f"give {row} a row in MAY_IMPORT"
            beyond[name_of(module)] = imported - MAY_IMPORT[row]
    assert {module: found for module, found in beyond.items() if found} == {}


def test_the_packages_have_an_order():
    try:
        list(TopologicalSorter(MAY_IMPORT).static_order())
    except CycleError as circle:
        pytest.fail(f"these import each other: {' → '.join(circle.args[1])}")


def test_no_row_is_for_a_package_that_is_gone():
    rows = {row_of(name_of(module).removesuffix(".py").split("/")) for module in MODULES}
    assert set(MAY_IMPORT) <= rows
    assert set(USES) <= set(MAY_IMPORT)


def test_each_module_uses_only_the_packages_that_its_row_allows():
    beyond = {}
    for module in MODULES:
        packages = {name.partition(".")[0] for name in imports(module)} - sys.stdlib_module_names - set(PACKAGES)
        beyond[name_of(module)] = packages - USES.get(row_of(name_of(module).removesuffix(".py").split("/")), packages)
    assert {module: found for module, found in beyond.items() if found} == {}


def test_one_package_alone_asks_which_database_it_is():
    allowed = ("tasks_app/database/", "tasks_app/migrations/", "tasks_app/checks.py")
    others = [module for module in MODULES if not name_of(module).startswith(allowed)]
    assert [name_of(module) for module in others if ".vendor" in module.read_text()] == []


def test_one_module_alone_reads_with_a_cursor_of_the_database():
    """Such a cursor needs a transaction: through a pooler, the next statement may be another connection's."""
    allowed = ("tasks_app/managers.py", "tasks_app/migrations/")  # A migration is a transaction.
    others = [module for module in MODULES if not name_of(module).startswith(allowed)]
    assert [name_of(module) for module in others if ".iterator(" in module.read_text()] == []


def row_of(parts: list[str]) -> str:
    """The package, or the module beside the packages, that a dotted name belongs to; empty for what is not ours.

    The managers belong to the models, whose verbs they are. `__init__` belongs to the package around it.
    """
    parts = [part for part in parts if part != "__init__"]
    if parts[0] not in PACKAGES:
        return ""
    if parts[0] in ("taskstore_project", "lab"):
        return parts[0]
    names = {"tasks_app.managers": "tasks_app.models"}
    row = ".".join(parts[:2])
    is_module = (PROJECT / Path(*parts[:2])).is_dir() or (PROJECT / Path(*parts[:2])).with_suffix(".py").is_file()
    return names.get(row, row) if is_module else parts[0]


def imports(module: Path) -> Iterator[str]:
    """Everything that the module imports, by its full name: `from ..models import Task` is tasks_app.models.Task."""
    package = module.relative_to(PROJECT).parent.parts
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            yield from (".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names)
