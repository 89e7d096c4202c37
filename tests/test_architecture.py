"""Who may import whom. A module without a row fails: say here what it may know."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskstore_project.testing import PROJECT

pytestmark = pytest.mark.once

STORE = PROJECT / "tasks_app"

BESIDE_THE_VERBS = {
    "accounts", "attention", "audit", "audit_files", "audited", "bulk", "clients", "command_lists",
    "command_record", "counts", "exporting", "failures", "files", "heartbeats", "history", "holdings", "importing",
    "instance", "job_queues", "job_record", "leases", "listing", "meters", "metrics", "pauses", "people", "policy",
    "quantities", "rates", "readiness", "records", "request_limits", "retention", "saved_searches", "schedules",
    "search", "streaming", "task_form", "tokens", "validation", "waiting_tokens", "wire",
}  # fmt: skip
# Have rows of their own.
OF_THEIR_OWN = {
    "audit_files", "audited", "bulk", "command_lists", "command_record", "counts", "failures", "files",
    "heartbeats", "job_queues", "job_record", "meters", "metrics", "pauses", "rates", "readiness", "records",
    "retention", "schedules", "search", "streaming", "tokens", "validation",
}  # fmt: skip
VERBS = {"managers", "models", "operations", "errors"} | BESIDE_THE_VERBS
WAYS_IN = {"admin", "console", "grpc_api", "live", "rest_api"}

MAY_IMPORT = {
    # The rules are pure: no Django, no clock, no database.
    "operations": set(),
    "errors": {"operations"},
    "rules": {"operations", "errors"},
    "validation": {"operations", "errors"},
    # For machines that have no Django.
    "client": {
        "command_files",
        "command_lines",
        "command_record",
        "job_record",
        "quantities",
        "records",
        "operations",
        "errors",
    },
    "tokens": {"database", "models", "errors", "policy", "validation"},
    "records": set(),
    "job_record": {"records", "operations"},
    "command_record": {"records", "operations"},
    "command_lines": {"command_record", "records"},
    "command_files": {"command_lines", "command_record", "records"},
    "quantities": set(),
    "jobs": {"client", "job_record", "operations", "errors"},
    "commands": {"client", "command_record", "jobs", "operations", "errors"},
    # The verbs, and below them the one place that knows the databases.
    "models": {"managers", "payloads", "labels", "operations", "errors"},
    "managers": {
        "database",
        "writer",
        "neighbours",
        "meters",
        "totals",
        "labels",
        "models",
        "validation",
        "operations",
        "errors",
    },
    "database": {
        "rules",
        "kept_answers",
        "candidate_pools",
        "meters",
        "payloads",
        "retention",
        "standby",
        "tally",
        "operations",
        "errors",
    },
    "standby": set(),
    "kept_answers": {"operations"},
    "payloads": set(),
    "labels": set(),
    "candidate_pools": {"operations"},
    "retention": set(),
    "command_rules": {"retention"},
    "descriptors": set(),
    "history_days": {"database", "retention"},
    # The numbers, and what keeps them and all else small.
    "tally": {"operations"},
    "meters": {"tally", "errors"},
    "metrics": VERBS | {"totals", "time_limits"},
    "totals": {"database", "tally", "operations"},
    "heartbeats": set(),
    "levels": {"database", "heartbeats", "time_limits", "totals"},
    "housekeeping": {
        "database",
        "history_days",
        "levels",
        "retention",
        "totals",
        "writer_connection",
        "ending",
        "operations",
        "errors",
    },
    # Many operations in one transaction, and claims that wait.
    "writer": {
        "database",
        "writer_connection",
        "waiting_claims",
        "neighbours",
        "housekeeping",
        "meters",
        "ending",
        "asked",
        "operations",
        "errors",
    },
    # What a server process does beside its answers.
    "serving": {"bulk", "command_lists", "grpc_api", "policy", "schedules", "writer"},
    "neighbours": {"writer_connection", "instance", "ending", "operations"},
    "writer_connection": {"database", "postgresql_arrays", "postgresql_pipeline", "tally", "operations", "errors"},
    "postgresql_arrays": set(),
    "postgresql_pipeline": {"postgresql_arrays", "standby"},
    "waiting_claims": {"asked", "operations"},
    "asked": {"operations"},
    "ending": set(),
    "guards": {"database", "history_days", "retention"},
    # Django's.
    "apps": {"checks", "guards", "policy"},
    "checks": {"command_rules", "models", "retention", "descriptors"},
    "migrations": {"guards", "labels", "models"},
    "management": VERBS | {"client", "jobs", "local_store", "task_framework"},
    # Jobs, on the verbs.
    "job_queues": VERBS | {"time_limits"},
    "command_lists": VERBS | {"command_lines", "command_rules", "ending", "writer"},
    "schedules": VERBS | {"ending", "writer"},
    "local_store": VERBS | {"client", "ending", "writer"},
    "task_framework": VERBS | {"client", "jobs", "local_store"},
    "templatetags": VERBS | {"console"},
    # A way in knows the verbs, and no other way in.
    **dict.fromkeys(BESIDE_THE_VERBS - OF_THEIR_OWN | WAYS_IN, VERBS),
    "counts": VERBS | {"totals"},
    # What may take long is told when to end.
    "search": VERBS | {"labels", "payloads", "time_limits"},
    "bulk": VERBS | {"time_limits", "writer"},
    "failures": VERBS | {"time_limits"},
    "audited": VERBS | {"time_limits"},
    "audit_files": VERBS,
    "time_limits": set(),
    # What lists and files are made of.
    "files": set(),
    "readiness": set(),
    "streaming": set(),
    "console": VERBS | {"time_limits", "descriptors", "housekeeping"},
    "grpc_api": VERBS | {"masstasker", "time_limits"},
    "masstasker": set(),  # What clients have, too: no Django.
    "rates": VERBS | {"tally", "totals"},
    # Claims that wait are woken.
    "pauses": VERBS | {"writer"},
}

# Rows that are not here may use any package that the server has.
PACKAGES = {
    "operations": set(),
    "errors": set(),
    "rules": set(),
    "validation": set(),
    "kept_answers": set(),
    "payloads": set(),
    "tally": set(),
    "meters": set(),
    "client": {"click", "httpx", "rich"},
    "records": set(),
    "job_record": set(),
    "command_record": set(),
    "command_lines": set(),
    "command_files": set(),
    "quantities": set(),
    "jobs": set(),
    "commands": set(),
    "masstasker": {"google", "grpc", "grpc_status"},
}

MODULES = sorted(STORE.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(STORE)))
def test_a_module_imports_only_what_its_row_allows(module):
    row = row_of(module)
    if row:
        assert row in MAY_IMPORT, f"give {row} a row in MAY_IMPORT"
        assert own_imports(module) - {row} <= MAY_IMPORT[row]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(STORE)))
def test_a_module_uses_only_the_packages_that_its_row_allows(module):
    packages = {name.partition(".")[0] for name in imports(module)} - sys.stdlib_module_names - {"tasks_app"}
    assert packages <= PACKAGES.get(row_of(module), packages)


def test_the_store_knows_nothing_of_the_project_around_it():
    users = [module for module in MODULES if any(name.startswith("taskstore_project") for name in imports(module))]
    assert users == []


def row_of(module: Path) -> str:
    """The name of the module, or of the package that it lies in; empty for tasks_app/__init__.py itself."""
    parts = module.relative_to(STORE).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def own_imports(module: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(module) if name.startswith("tasks_app.")}


def imports(module: Path) -> Iterator[str]:
    """Everything that the module imports, by its full name: `from ..models import Task` is tasks_app.models.Task."""
    package = module.relative_to(PROJECT).parent.parts
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            yield from (".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names)
