"""A server of this store that breaks a promise, for those who look for broken ones.

    python -m tests.chaos.broken_server ignores_owners up --port ...

Each function in FAULTS takes something out of the store, in the process that serves.
"""

import asyncio
import os
import random
import sys
from dataclasses import replace

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "taskstore_project.settings")

from tasks_app import managers
from tasks_app.core import rules
from tasks_app.core.operations import Commit
from tasks_app.database import batch, postgresql_pipeline, sqlite, transaction
from tasks_app.writer import connection as writer_connection
from taskstore.types.tasks import Refusal
from taskstore_project.__main__ import main

SELDOM = 0.1


def seldom():
    return random.random() < SELDOM


def instead(owner, name, make):
    """Put what is made of it in the place of what has this name."""
    setattr(owner, name, make(getattr(owner, name)))


def ignores_owners():
    instead(rules, "_owned_by_others", lambda right: lambda commit, world: ())


def ignores_depends():
    instead(rules, "refusal_of", lambda right: lambda operation, world: right(replace(operation, depends=()), world))


def refuses_for_no_reason():
    def broken(right):
        def refusal_of(operation, world):
            if isinstance(operation, Commit) and operation.deletes and seldom():
                return Refusal(deletes=operation.deletes)
            return right(operation, world)

        return refusal_of

    instead(rules, "refusal_of", broken)


def changes_claimed(change):
    """Every task that is made by a claim."""

    def broken(right):
        def effect_of_claim(claim, world):
            effect = right(claim, world)
            return effect._replace(drafts=tuple(change(draft, claim) for draft in effect.drafts))

        return effect_of_claim

    instead(rules, "_effect_of_claim", broken)


def holds_for_half_the_time():
    changes_claimed(lambda draft, claim: draft._replace(available_at_ms=draft.available_at_ms - claim.duration_ms // 2))


def changes_data_in_a_claim():
    changes_claimed(lambda draft, claim: draft._replace(data=b"changed"))


def does_half_of_a_commit():
    def broken(right):
        def effect_of_commit(commit, world):
            effect = right(commit, world)
            return effect._replace(removals=()) if commit.deletes and seldom() else effect

        return effect_of_commit

    instead(rules, "_effect_of_commit", broken)


def forgets_keys():
    instead(
        rules,
        "_without_duplicates",
        lambda right: lambda commit, effect, world: effect if seldom() else right(commit, effect, world),
    )


def says_nothing_for_no_reason():
    def nobody_doubts(*_):
        return
        yield

    instead(transaction, "_doubt_empty_claims", lambda right: nobody_doubts)
    instead(rules.World, "claimable", lambda right: lambda world, claim: [] if seldom() else right(world, claim))


def does_what_has_a_key_again():
    instead(transaction, "_known", lambda right: lambda operation, seen: None)
    instead(batch, "_is_worth_keeping", lambda right: lambda operation, outcome: False)


def counts_wrong():
    instead(batch, "_delta_rows", lambda right: lambda deltas, now_ms: [] if seldom() else right(deltas, now_ms))


def leaves_tasks_out_of_lists():
    def broken(right):
        return lambda self, *words, **others: right(self, *words, **others).exclude(id__endswith="7")

    instead(managers.TaskManager, "group", broken)


def counts_ids_down():
    """SQLite's, within a commit."""

    def broken(right):
        def look(self, operations):
            seen = yield from right(self, operations)
            seen.ids = [first + place for first in seen.ids[:10_000:2] for place in (1, 0)]
            return seen

        return look

    instead(sqlite.SQLite, "look", broken)


def answers_what_it_did_not_commit():
    """To SQLite."""

    def broken(right):
        async def execute(self, connection, statement, **options):
            await right(self, connection, "ROLLBACK" if statement == "COMMIT" and seldom() else statement, **options)

        return execute

    instead(writer_connection.SQLiteConnection, "_execute", broken)


def locks_no_rows():
    """PostgreSQL's. Takes its time between looking and writing, so that two processes meet."""

    def sending(right):
        return lambda self, statements: right(self, [(unlocked(sql), parameters) for sql, parameters in statements])

    def slow(right):
        async def answers(self, sent, *within_s):
            rows = await right(self, sent, *within_s)
            await asyncio.sleep(0.005)
            return rows

        return answers

    instead(postgresql_pipeline.Pipeline, "send", sending)
    instead(postgresql_pipeline.Pipeline, "answers", slow)


def unlocked(sql):
    for lock in ("FOR UPDATE SKIP LOCKED", "FOR KEY SHARE SKIP LOCKED", "FOR UPDATE", "FOR KEY SHARE"):
        sql = sql.replace(lock, "")
    return sql


# The check that finds it.
FAULTS = {
    ignores_owners: "owners_are_respected",
    ignores_depends: "one_order_explains_all",
    refuses_for_no_reason: "refusals_are_true",
    holds_for_half_the_time: "claims_are_right",
    changes_data_in_a_claim: "claims_are_right",
    does_half_of_a_commit: "nothing_answered_is_lost",
    forgets_keys: "one_living_task_holds_a_key",
    says_nothing_for_no_reason: "nothing_means_nothing",
    does_what_has_a_key_again: "keys_have_one_answer",
    counts_wrong: "counts_are_true",
    leaves_tasks_out_of_lists: "listings_are_complete",
    counts_ids_down: "ids_rise",
    answers_what_it_did_not_commit: "nothing_answered_is_lost",
    locks_no_rows: "chains_are_chains",
}


if __name__ == "__main__":
    {fault.__name__: fault for fault in FAULTS}[sys.argv.pop(1)]()
    main()
