"""The scene of an upgrade: servers of two versions on one database, of which the next one changes tables."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.testing import PROJECT
from lab.testing.servers import StoreServer, command

from ..outcome import SceneResult, outcome_of
from ..stage import Stage

PACKAGES = ("taskstore", "tasks_app", "taskstore_project", "lab", "templates", "static", "docs")
FILES = ("manage.py", "pyproject.toml", "README.md")
BEFORE = max(file.stem for file in (PROJECT / "tasks_app" / "migrations").glob("0*.py"))
NEXT = "9999_next"
# A table, and a column of the tables that every transaction uses. The former version does not know them.
MIGRATION = f"""
from django.db import migrations, models

NOTE = models.TextField(db_default="")


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "{BEFORE}")]
    operations = [
        migrations.CreateModel(
            "Note",
            [("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))],
            options={{"default_permissions": ()}},
        ),
        migrations.AddField("task", "note", NOTE),
        migrations.AddField("batch", "note", NOTE),
    ]
"""
MODELS = """

class Note(Stored):
    pass


for _model in (Task, Batch):
    _model.add_to_class("note", models.TextField(db_default=""))
"""


def upgrade(stage: Stage) -> SceneResult:
    """Replace servers one at a time by those of the next version, and go back, with kills of starts."""
    servers, later = stage.servers(), next_version(stage.folder / "next")
    kills = 0
    with stage.load(servers):
        for _ in range(stage.pace.upgrades):
            for server in servers:
                kills += replace(server, later, stage)
            for server in servers:
                kills += replace(server, PROJECT, stage, TASKSTORE_NEWER_DATABASE="1")
            words = ("migrate", "tasks_app", BEFORE, "--verbosity=0", "--skip-checks")
            command(*words, folder=servers[0].folder, checkout=later, DATABASE_URL=stage.database_url)
            for server in servers:
                kills += replace(server, PROJECT, stage)
    history = stage.history(servers[0])
    problems = [
        f"request {event.path} of client {event.client} got the status {event.status}: {event.answer}"
        for event in history.requests
        if event.status is not None and event.status >= 500 and event.status != 503
    ]
    for server in servers:
        if "Traceback" in (log := server.log.read_text(errors="replace")):
            problems.append(f"a server logged a traceback: {log[log.index('Traceback') :][:2_000]}")
    return outcome_of(history, faults=kills, problems=problems)


def replace(server: StoreServer, checkout: Path, stage: Stage, **variables: str) -> int:
    """Stop the server, and start one of this checkout, perhaps after a killed start. Returns how many were killed."""
    stage.pause(0.3, 1.5)
    server.end()
    server.checkout = checkout
    is_killed = stage.chance.random() < 0.5
    if is_killed:
        server.begin(**variables)
        stage.pause(0.0, 3.0)
        server.kill()
    server.start(**variables)
    return is_killed


def next_version(folder: Path) -> Path:
    """Copy this version, and have the copy change tables. Returns its folder."""
    for name in PACKAGES:
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(PROJECT / name, folder / name)
    (folder / "tasks_app" / "migrations" / f"{NEXT}.py").write_text(MIGRATION)
    with (folder / "tasks_app" / "models.py").open("a") as models:
        models.write(MODELS)
    return folder
