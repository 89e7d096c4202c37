"""Verify the invariants of the store that the database can't enforce, in one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tasks_app.access import audit
from tasks_app.core.tally import COUNTS
from tasks_app.models import EndedTask, Task, UniqueKey
from tasks_app.writer.totals import TOTAL_COLUMNS
from taskstore.types.tasks import Standing
from taskstore_project.backup.databases import Session, changing, looking
from taskstore_project.base_command import actor

SHOWN = 5  # Broken rows that are listed.
COUNTED_IN = ("tasks_app_countdelta", "tasks_app_grouptotal")  # In the order of folding.


@dataclass(frozen=True)
class Rule:
    """An invariant, with a query for the ids of the rows that break it."""

    broken: str
    rows: str


TASKS_WITHOUT_KEY = """
    SELECT task.id
    FROM tasks_app_task AS task
    LEFT JOIN tasks_app_uniquekey AS held
        ON held.origin = task.origin AND held.key = task."unique" AND held.ended = 0
    WHERE task."unique" <> '' AND held.origin IS NULL
"""
KEYS_WITHOUT_TASK = """
    FROM tasks_app_uniquekey AS held
    LEFT JOIN tasks_app_task AS task ON task.origin = held.origin AND task."unique" = held.key
    WHERE held.ended = 0 AND task.id IS NULL
"""

RULES = [
    Rule(
        "tasks without their data",
        """
        SELECT id FROM tasks_app_task WHERE payload <> 0 AND payload NOT IN (SELECT id FROM tasks_app_payload)
        """,
    ),
    Rule(
        "data without a task",
        """
        SELECT id FROM tasks_app_payload WHERE id NOT IN (SELECT payload FROM tasks_app_task)
            AND id NOT IN (SELECT id FROM tasks_app_keptpayload WHERE gone = 1)
        """,
    ),
    Rule(
        "tasks that have ended but still exist",
        "SELECT id FROM tasks_app_task WHERE id IN (SELECT id FROM tasks_app_endedtask)",
    ),
    Rule("tasks that ended twice", "SELECT id FROM tasks_app_endedtask GROUP BY id HAVING count(*) > 1"),
    Rule(
        "tasks older than the first task of their chain",
        """
        SELECT id FROM tasks_app_task WHERE origin > id OR origin < 1
        UNION ALL
        SELECT id FROM tasks_app_endedtask WHERE origin > id OR origin < 1
        """,
    ),
    Rule(
        "chains with several existing tasks",
        "SELECT origin AS id FROM tasks_app_task GROUP BY origin HAVING count(*) > 1",
    ),
    Rule(
        "ended tasks that are not older than their successor",
        "SELECT id FROM tasks_app_endedtask WHERE successor <= id",
    ),
    Rule(
        "successors in another chain",
        """
        SELECT later.id
        FROM tasks_app_endedtask AS ended
        JOIN (
            SELECT id, origin FROM tasks_app_task
            UNION ALL
            SELECT id, origin FROM tasks_app_endedtask
        ) AS later ON later.id = ended.successor
        WHERE later.origin <> ended.origin
        """,
    ),
    Rule(
        "tasks with leases or claims below zero",
        "SELECT id FROM tasks_app_task WHERE leased_since_ms < 0 OR claims < 0",
    ),
    Rule(
        "tasks whose standing contradicts their error",
        f"""
        SELECT id FROM tasks_app_task
        WHERE (standing = {Standing.OPEN:d} AND error <> '') OR (standing = {Standing.RETRYING:d} AND error = '')
        """,
    ),
    Rule("tasks without their unique key", TASKS_WITHOUT_KEY),
    Rule(
        "unique keys of tasks that do not hold them, by the id of the first task",
        f"SELECT held.origin AS id {KEYS_WITHOUT_TASK}",
    ),
]

# What each of COUNTS counts.
COUNTED = {
    "tasks": "TRUE",
    "leases": "leased_since_ms > 0",
    "errors": "error <> ''",
    **{each.name.lower(): f"leased_since_ms = 0 AND standing = {each:d}" for each in Standing if each},
}
# The amounts by which the counts of a group are too low.
LESS = ", ".join(f"-{name}" for name in COUNTS)
DIFFERENCES = f"""
    SELECT "group", {", ".join(f"CAST(sum({name}) AS bigint)" for name in COUNTS)}
    FROM (
        SELECT "group", {", ".join(f"count(CASE WHEN {what} THEN 1 END) AS {name}" for name, what in COUNTED.items())}
        FROM tasks_app_task
        GROUP BY "group"
        UNION ALL
        SELECT "group", {LESS} FROM tasks_app_grouptotal
        UNION ALL
        SELECT "group", {LESS} FROM tasks_app_countdelta
    ) AS truth_without_counts
    GROUP BY "group"
    HAVING {" OR ".join(f"sum({name}) <> 0" for name in COUNTS)}
    ORDER BY "group"
"""


def problems() -> Iterator[str]:
    """Yield the problems of the store, a line each; none when all is well. The store may be served meanwhile."""
    with looking() as session:
        yield from session.broken_pages()
        for rule in [*RULES, *rules_of_numbers(session), rule_of_labels(session)]:
            if ids := rows_of(rule, session):
                yield f"{rule.broken}: {ids}"
        for group, *differences in session.execute(DIFFERENCES):
            yield f"counts of the group {group!a} are wrong: {in_words(differences)}"


def rules_of_numbers(session: Session) -> list[Rule]:
    """Return the rules that no id and no commit number is beyond the last one given out."""
    ids, commits = session.number(session.dialect.newest_id), session.number(session.dialect.newest_commit)
    tables = ("tasks_app_task", "tasks_app_endedtask")
    return [
        Rule(
            f"tasks with ids above {ids}, the last assigned id",
            " UNION ALL ".join(f"SELECT id FROM {table} WHERE id > {ids}" for table in tables),
        ),
        Rule(
            f"tasks of commits above {commits}, the last commit",
            " UNION ALL ".join(f"SELECT id FROM {table} WHERE made_by_commit > {commits}" for table in tables),
        ),
    ]


def rule_of_labels(session: Session) -> Rule:
    return Rule(
        "tasks with labels that are not strings",
        f"SELECT id FROM tasks_app_task WHERE labels <> '{{}}' AND NOT ({session.are_labels_texts})",
    )


def rows_of(rule: Rule, session: Session) -> str:
    """Return the ids of the first rows that break the rule, as text; empty when none does."""
    found = session.execute(f"SELECT id FROM ({rule.rows}) AS broken ORDER BY id LIMIT {SHOWN + 1}")
    ids = [str(number) for (number,) in found]
    return ", ".join(ids[:SHOWN] + ["..."] * (len(ids) > SHOWN))


def in_words(differences: list[int]) -> str:
    return ", ".join(
        f"{abs(number)} {name} too {'few' if number > 0 else 'many'}"
        for name, number in zip(COUNTS, differences, strict=True)
        if number
    )


def mend_counts() -> int:
    """Correct the counts of all groups. Returns how many groups had wrong ones."""
    with changing(COUNTED_IN) as session:
        wrong: list[Any] = session.execute(DIFFERENCES)
        session.dialect.send(session.dialect.add("tasks_app_grouptotal", TOTAL_COLUMNS, wrong, key=1))
        # A group without tasks has no row.
        session.execute(f"DELETE FROM tasks_app_grouptotal WHERE {' AND '.join(f'{name} = 0' for name in COUNTS)}")
        if wrong:
            audit.record(actor(), "mend counts", selection=f"groups: {len(wrong)}", done=0)
    return len(wrong)


def mend_keys() -> int:
    """Correct the keys of all tasks. Returns how many were wrong; of a key that two tasks have, one remains wrong."""
    with changing(["tasks_app_uniquekey"]) as session:
        now_ms = Task.objects.now_ms()
        keys = UniqueKey.objects
        abandoned = session.execute(f'SELECT held."group", held.key, held.origin, held.until_ms {KEYS_WITHOUT_TASK}')
        for group, key, origin, until_ms in abandoned:
            if until_ms <= now_ms:
                keys.filter(group=group, key=key).delete()
            else:  # It is kept from others, as if its task had ended rightly. The history may not know how.
                last = EndedTask.objects.filter(origin=origin).order_by("-id").first()
                ended, ending, ended_in = (last.id, last.ending, last.group) if last else (origin, "deleted", group)
                keys.filter(group=group, key=key).update(ended=ended, ending=ending, ended_in=ended_in)
        keys.filter(ended__gt=0, until_ms__lte=now_ms).delete()
        taken = 0
        ids = [task_id for (task_id,) in session.execute(TASKS_WITHOUT_KEY)]
        for task in Task.objects.defer("data").filter(id__in=ids).order_by("id"):
            # The key belongs to the group of the add: that of the chain's first task, if the history still knows it.
            first = EndedTask.objects.filter(id=task.origin).first()
            group = first.group if first else task.failed_from or task.group
            if not keys.filter(group=group, key=task.unique).exists():
                keys.create(
                    group=group, key=task.unique, origin=task.origin, until_ms=0, ended=0, ending="", ended_in=""
                )
                taken += 1
        if mended := len(abandoned) + taken:
            audit.record(actor(), "mend keys", selection=f"keys: {mended}", done=0)
    return mended
