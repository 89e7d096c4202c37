"""Check that a recorded history keeps the promises of contract.md section 2.

Each check yields a sentence for each violation. A request without a response is in
doubt: it may explain a change, but proves nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from taskstore.types.batches import AFTER_BATCH
from taskstore.types.scalars import is_in_group
from taskstore.types.tasks import FIELDS, Kept

from .client import ALARM, DEAD, LIMITS, SILENT, THEN, TREE, TREE_THEN
from .history import UNAVAILABLE, Event, History, Row

# All inherited fields but the count of claims, which a claim increases.
SAME_IN_A_CLAIM = [field.wire for field in FIELDS if field.kept is not Kept.NOTHING and field.name != "claims"]
NEVER_MS = 2**62
ID = re.compile(r"\b(?:task|id|successor) (\d+)")


def violations(history: History) -> list[str]:
    """Return all violations; empty if all promises were kept."""
    return [f"{check.__name__}: {text}" for check in CHECKS for text in check(history)]


def entries_about(violation: str, history: History) -> list[Event]:
    """Return the requests that name a task of the violation or returned it, in the order of sending."""
    ids = set(map(int, ID.findall(violation)))
    return [
        event
        for event in sorted(history.requests, key=lambda event: event.sent_s)
        if ids & {task["id"] for task in event.seen} or ids & {*event.named, *event.depends}
    ]


def answers_are_good(history: History) -> Iterator[str]:
    """Every response is a 200, or, if the database may be unavailable, a 503 with Retry-After."""
    for event in history.requests:
        if event.status == UNAVAILABLE and history.may_be_unavailable and event.retry_after:
            continue
        if event.status not in (200, None):
            yield f"{event.path} answered {event.status}, Retry-After {event.retry_after}: {event.answer}"


def keys_have_one_answer(history: History) -> Iterator[str]:
    """A request repeated with its key gets the first response again."""
    answers: dict[tuple[int, str], Event] = {}
    for event in history.requests:
        if not event.key or event.status != 200 or event.is_nothing:
            continue
        first = answers.setdefault((event.client, event.key), event)
        if first.lasting_answer != event.lasting_answer:
            yield f"key {event.key} of client {event.client} was answered {first.answer}, then {event.answer}"


def ids_are_issued_once(history: History) -> Iterator[str]:
    issued = Counter(task["id"] for event in history.done for task in event.made)
    yield from (f"id {task_id} was issued {times} times" for task_id, times in issued.items() if times > 1)


def ids_rise(history: History) -> Iterator[str]:
    """A new id is larger than every id that any client had seen before its commit began."""
    seen = sorted((event.received_s, max(task["id"] for task in event.seen)) for event in history.events if event.seen)
    highest, place = 0, 0
    for event in sorted((event for event in history.done if event.made), key=lambda event: event.sent_s):
        while place < len(seen) and seen[place][0] < event.sent_s:
            highest = max(highest, seen[place][1])
            place += 1
        ids = [task["id"] for task in event.made]
        if ids != sorted(ids):
            yield f"the ids {ids} of one commit do not rise"
        if ids[0] <= highest:
            yield f"id {ids[0]} was issued when {highest} had been seen"


def no_task_is_removed_twice(history: History) -> Iterator[str]:
    removed = Counter(task_id for event in history.done if not event.is_claim for task_id in event.named)
    removed.update(
        history.predecessor[task["id"]]
        for event in history.done
        if event.is_claim
        for task in event.made
        if task["id"] in history.predecessor
    )
    yield from (f"task {task_id} was removed {times} times" for task_id, times in removed.items() if times > 1)


def nothing_answered_is_lost(history: History) -> Iterator[str]:
    for event in history.done:
        for task in event.made:
            row = history.rows.get(task["id"])
            if row is None:
                yield f"task {task['id']} was answered and is lost"
            elif (row["group"], row["owner"], row["available_at_ms"], row["origin"], row["claims"]) != (
                task["group"], task["ownerid"], task["timespec"], task["origin"], task["claims"]
            ):  # fmt: skip
                yield f"task {task['id']} was answered as {task} and kept as {row}"
            elif row.get("data", task["data"]) != task["data"]:
                yield f"the data of task {task['id']} was answered as {task['data']} and kept as {row['data']}"
        if event.is_claim:
            continue
        for task_id in event.named:
            if task_id not in history.truth.ended:
                yield f"task {task_id} was answered to be gone and is there"
            elif history.truth.ended[task_id]["ended_by"] != event.client:
                yield f"task {task_id} was ended by {event.client}, and the trail names another client"


def nothing_comes_from_nowhere(history: History) -> Iterator[str]:
    """Each commit in the tables was acknowledged, or is a request in doubt."""
    unexplained: dict[int, set[int]] = defaultdict(set)
    gone = {task_id for event in history.done for task_id in event.gone}
    for row in history.rows.values():
        if row["id"] not in history.made and row["id"] not in gone and row["group"] not in SILENT:
            unexplained[client_of(row, history)].add(row["made_by_commit"])
    doubts = Counter(event.client for event in history.in_doubt)
    for client, commits in unexplained.items():
        if len(commits) > doubts[client]:
            yield f"{len(commits)} commits of client {client} were not answered, {doubts[client]} are in doubt"


def client_of(row: Row, history: History) -> int:
    """Return the client whose commit made a task. A released task does not name it, but its predecessor does."""
    predecessor = history.truth.ended.get(history.predecessor.get(row["id"], 0))
    client: int = predecessor["ended_by"] if predecessor else row["owner"]
    return client


def commits_are_whole(history: History) -> Iterator[str]:
    """A commit in doubt was applied whole or not at all."""
    shown = {task["data"] for event in history.requests for task in event.seen}
    shown |= {row["data"] for row in history.truth.living.values()}
    made = Counter(row["made_by_commit"] for row in history.rows.values() if row["group"] not in SILENT)
    for event in history.in_doubt:
        left = [task_id for task_id in event.named if task_id in history.truth.living]
        if left and any(add["data"] in shown for add in event.body.get("adds", [])):
            yield f"a commit in doubt has added tasks and left {left}"
        for commit in commits_that_removed(event, history):
            if made[commit] not in event.makes:
                yield f"commit {commit}, in doubt, has removed tasks and made {made[commit]} of {event.makes[-1]}"
    for row in history.truth.ended.values():
        successor = history.rows.get(row["successor"])
        if successor and successor["made_by_commit"] != row["ended_by_commit"]:
            yield f"commit {row['ended_by_commit']} ended task {row['id']}, another one made its successor"


def commits_that_removed(event: Event, history: History) -> set[int]:
    """Return the commits that removed the tasks named by an event, if no other request can have done that."""
    rows = [history.truth.ended[task_id] for task_id in event.named if task_id in history.truth.ended]
    return {
        row["ended_by_commit"]
        for row in rows
        if row["ended_by"] == event.client
        and row["ending"] != "claimed"
        and row["id"] not in history.deleter
        and history.doubts[event.client, row["id"]] == 1
    }


def one_living_task_holds_a_key(history: History) -> Iterator[str]:
    """Of the tasks that adds to a group made with one key no two exist at the same time, and duplicates name it."""
    chains: dict[tuple[str, str], list[tuple[float, float, int]]] = defaultdict(list)
    for origin, (key, born_s, ended_s) in history.keyed_chains.items():
        if origin in history.rows and born_s < ended_s:
            chains[history.rows[origin]["group"], key].append((born_s, ended_s, origin))
    for (group, key), lives in chains.items():
        until_s, holder = 0.0, 0
        for born_s, ended_s, origin in sorted(lives):
            if born_s < until_s:
                yield f"the key {key} of {group} is held by task {holder} and by task {origin}"
            until_s, holder = max((until_s, holder), (ended_s, origin))
    for event in history.done:
        for add, task in event.keyed:
            named = task.get("origin", 0)
            if task.get("unique") != add["unique"] or (
                named in history.rows and history.rows[named]["group"] != add["group"]
            ):
                yield f"an add of the key {add['unique']} to {add['group']} was answered {task}"


def chains_are_chains(history: History) -> Iterator[str]:
    """Each task exists once, under one id at a time."""
    yield from (f"id {task_id} is there and has ended" for task_id in history.truth.living.keys() & history.truth.ended)
    origins = Counter(row["origin"] for row in history.truth.living.values())
    yield from (f"the task {origin} is there {times} times" for origin, times in origins.items() if times > 1)
    successors = Counter(row["successor"] for row in history.truth.ended.values() if row["successor"] is not None)
    for task_id, times in successors.items():
        if task_id not in history.rows:
            yield f"the successor {task_id} is lost"
        if times > 1:
            yield f"id {task_id} is the successor of {times} tasks"
    for row in history.truth.ended.values():
        successor = history.rows.get(row["successor"])
        if successor and (successor["id"] <= row["id"] or successor["origin"] != row["origin"]):
            yield f"task {row['id']} was replaced by {successor['id']}, which does not follow it"


def claims_are_right(history: History) -> Iterator[str]:
    """A claim takes no task too early, leases it for the requested time, and changes nothing else."""
    for event in history.done:
        if not event.is_claim:
            continue
        if len(event.made) > event.body["limit"]:
            yield f"{len(event.made)} tasks were claimed with a limit of {event.body['limit']}"
        for task in event.made:
            now_ms = task["timespec"] - event.body["duration"]
            if task["ownerid"] != event.client or task["group"] != event.body["group"]:
                yield f"claim of {event.client} in {event.body['group']} gave {task}"
            old = history.made.get(history.predecessor.get(task["id"], 0))
            if old is None:
                continue
            if old["timespec"] > now_ms:
                yield f"task {old['id']} was claimed {old['timespec'] - now_ms} ms before its time"
            if any(old.get(name) != task.get(name) for name in SAME_IN_A_CLAIM) or task["claims"] != old["claims"] + 1:
                yield f"a claim made {task} of {old}"


def owners_are_respected(history: History) -> Iterator[str]:
    for event in history.done:
        if event.is_claim:
            continue
        for old in (history.made[task_id] for task_id in event.named if task_id in history.made):
            if old["ownerid"] != event.client and old["timespec"] > event.received_ms:
                yield f"client {event.client} changed task {old['id']}, which {old['ownerid']} held"


def refusals_are_true(history: History) -> Iterator[str]:
    for event in history.events:
        refusal = event.refusal
        for name in ("changes", "deletes", "depends"):
            for task_id in refusal.get(name, []):
                if history.was_there(task_id, event):
                    yield f"task {task_id} was refused as gone ({name}) while it was there"
        for old in (history.made[task_id] for task_id in refusal.get("owned", []) if task_id in history.made):
            if old["ownerid"] == event.client or old["timespec"] <= event.sent_ms:
                yield f"task {old['id']} was refused to {event.client} as owned by {old['ownerid']}"


def nothing_means_nothing(history: History) -> Iterator[str]:
    """No claim returned nothing while a task of its group was available all the time."""
    for event in history.events:
        if not event.is_nothing or limit_of(event.body["group"]):
            continue
        for task in history.there_all_the_time(event.body["group"], event):
            if task["timespec"] <= event.sent_ms:
                yield f"client {event.client} was told that there is nothing while task {task['id']} was there"
                break


def limit_of(group: str) -> Row | None:
    """Return the limit that the clients' groups have."""
    return next((limit for name, limit in LIMITS.items() if is_in_group(name, group)), None)


def no_limit_is_exceeded(history: History) -> Iterator[str]:
    """By the store's clock no more tasks of a group are leased at once, or claimed within a time, than its limit says.

    A task of which no response shows the label is not counted.
    """
    leases: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    claims: dict[tuple[str, str], list[int]] = defaultdict(list)
    claimed = {row["successor"] for row in history.truth.ended.values() if row["ending"] == "claimed"}
    for row in history.rows.values():
        limit = limit_of(row["group"])
        shown = history.known.get(row["id"])
        if not limit or not row["leased_since_ms"] or (limit.get("by") and not shown):
            continue
        value = shown["labels"].get(limit["by"], "") if shown and limit.get("by") else ""
        # What ends at a moment makes room for what begins then.
        leases[row["group"], value].append((row["made_at_ms"], 1, row["id"]))
        leases[row["group"], value].append((row.get("ended_at_ms", NEVER_MS), -1, row["id"]))
        if row["id"] in claimed:
            claims[row["group"], value].append(row["made_at_ms"])
    for (group, value), moments in leases.items():
        running, most = 0, (limit_of(group) or {}).get("running", NEVER_MS)
        for _, more, task_id in sorted(moments):
            running += more
            if running > most:
                yield f"{running} tasks of {group} {value} were leased when task {task_id} was; {most} may be"
                break
    for (group, value), times in claims.items():
        rate = (limit_of(group) or {}).get("rate", {"claims": len(times), "per": 0})
        ordered = sorted(times)
        for first, last in zip(ordered, ordered[rate["claims"] :], strict=False):
            if last - first < rate["per"]:
                yield f"more than {rate['claims']} tasks of {group} {value} were claimed from {first} to {last}"
                break


def what_is_cancelled_never_runs_again(history: History) -> Iterator[str]:
    """A cancelled task has ended without a successor, and nothing is made of it later."""
    cancelled_s = {task_id: event.received_s for event in history.events for task_id in event.cancelled}
    living = {row["origin"] for row in history.truth.living.values()}
    later = {task["origin"]: event for event in history.done for task in event.made}  # The last one of each.
    for task_id in cancelled_s:
        if history.truth.ended.get(task_id, {}).get("ending") != "cancelled":
            yield f"task {task_id} was answered to be cancelled and was not"
    for row in history.truth.ended.values():
        if row["ending"] != "cancelled":
            continue
        if row["successor"] is not None or row["origin"] in living:
            yield f"task {row['id']} was cancelled and goes on"
        elif (last := later.get(row["origin"])) and last.sent_s > cancelled_s.get(row["id"], NEVER_MS):
            yield f"task {row['id']} was cancelled before client {last.client} got a successor"


REMOVED = ("cancelled", "purged")


def a_then_is_added_once_and_never_early(history: History) -> Iterator[str]:
    """A batch adds its tasks once, when all its tasks have succeeded, and not before.

    It never does if it was deleted, or if one of its tasks was cancelled or purged.
    """
    batch_of = {task["origin"]: task.get("batch", 0) for task in history.known.values()}
    removed = [
        row
        for row in history.truth.ended.values()
        if row["ending"] in REMOVED and row["successor"] is None and row["group"] not in SILENT
    ]
    trees = trees_of(history)
    gone = Counter(batch_of.get(row["origin"]) for row in removed)  # None: of tasks that no client knows.
    living = Counter(row["batch"] for row in history.truth.living.values())
    thens = Counter(int(labels_of(row)[AFTER_BATCH]) for row in history.rows.values() if row["group"] == THEN)
    # A nested plan adds batches of one task in between.
    others = [batch for batch in history.truth.batches.values() if batch["id"] not in trees]
    levels = {(batch["root"], batch["path"]): batch for batch in others if batch.get("path")}
    for batch in others:
        is_open, added = living[batch["id"]], thens[batch["id"]]
        added += (batch.get("root"), f"{batch.get('path')}t") in levels
        if batch["open"] != is_open:
            yield f"batch {batch['id']} counts {batch['open']} open tasks and has {is_open}"
        least = gone[batch["id"]]
        if not (batch.get("refuses") or least <= batch["gone"] <= least + gone[None]):
            yield f"batch {batch['id']} counts {batch['gone']} tasks that were removed: there are at least {least}"
        if added != (not (is_open or batch["gone"] or batch.get("refuses"))):
            yield f"batch {batch['id']} has {is_open} open tasks and added its task {added} times: {batch}"
    nested = [batch for batch in others if batch.get("path")]
    yield from (f"batch {batch['id']} was added with {batch['total']} tasks" for batch in nested if batch["total"] != 1)
    if len(levels) < len(nested):
        yield f"{len(nested) - len(levels)} levels of plans were added twice"
    yield from (f"batch {batch} does not exist" for batch in thens.keys() - history.truth.batches.keys())
    shown_s: dict[int, float] = {}
    for event in history.events:
        for task in event.seen if event.listed_group == THEN else ():
            shown_s.setdefault(int(task["labels"][AFTER_BATCH]), event.received_s)
    for task in history.made.values():
        shown_at_s = shown_s.get(task.get("batch", 0), NEVER_MS)
        if (remover := history.remover(task["id"])) and remover.sent_s > shown_at_s:
            yield f"batch {task['batch']} added its task before task {task['id']} ended"


def a_tree_ends_as_its_tasks_do(history: History) -> Iterator[str]:
    """In a tree of batches nothing follows a failure, the first one is told once, and the states are right."""
    trees = trees_of(history)
    members = Counter((row["batch"], row["group"] == DEAD) for row in history.truth.living.values())
    added = Counter(
        (int(labels_of(row)[AFTER_BATCH]), row["group"])
        for row in history.truth.living.values()
        if row["group"] in (TREE_THEN, ALARM)
    )
    fails = {
        number: bool(batch["gone"] or batch["failed_children"]) and bool(batch["closed_at_ms"])
        for number, batch in trees.items()
    }
    for number, batch in trees.items():
        within = [each for each in trees.values() if each["parent"] == number]
        are_open = sum(not each["closed_at_ms"] for each in within)
        if (batch["open"], batch["failed"]) != (members[number, False], members[number, True]):
            yield f"batch {number} does not count the {members[number, False]} tasks in it that are open: {batch}"
        if (batch["children"], batch["failed_children"]) != (are_open, sum(fails[each["id"]] for each in within)):
            yield f"batch {number} does not count the batches within it: {batch}"
        if batch["closed_at_ms"] and (batch["open"] or batch["failed"] or are_open):
            yield f"batch {number} has closed, and something in it is open: {batch}"
        if batch["closed_at_ms"] and batch["steps"] and not fails[number]:
            yield f"batch {number} has closed before its last step: {batch}"
        if not batch["closed_at_ms"] and not (batch["open"] or batch["failed"] or are_open):
            yield f"batch {number} is open, and nothing in it is: {batch}"
        if batch["parent"]:
            continue
        alarms, thens = added[number, ALARM], added[number, TREE_THEN]
        has_failed = any(each["gone"] or each["failed"] for each in trees.values() if each["root"] == number)
        if alarms != (batch["has_failed"] > 0) or (has_failed and not alarms):
            yield f"batch {number} told a failure {alarms} times: {batch}"
        if thens != (bool(batch["closed_at_ms"]) and not fails[number]):
            yield f"batch {number} added what follows {thens} times: {batch}"


def trees_of(history: History) -> dict[int, Row]:
    """Return the batches of trees, by their ids."""
    batches = history.truth.batches
    tops = {number for number, batch in batches.items() if batch.get("name") == TREE}
    return {number: batch for number, batch in batches.items() if batch.get("root") in tops}


def labels_of(row: Row) -> Row:
    labels: Row = json.loads(row["labels"]) if isinstance(row["labels"], str) else row["labels"]
    return labels


def reads_are_true(history: History) -> Iterator[str]:
    """A read returns the task as it was made, and no task that was removed before."""
    for event in history.events:
        for task in event.seen:
            if history.known[task["id"]] != task:
                yield f"task {task['id']} was shown as {task}, known as {history.known[task['id']]}"
            remover = history.deleter.get(task["id"])
            if remover and remover.received_s < event.sent_s:
                yield f"task {task['id']} was shown after its end"


def listings_are_complete(history: History) -> Iterator[str]:
    """A listing contains every task that existed all the time."""
    for event in history.events:
        shown = {task["id"] for task in event.seen}
        for task in history.there_all_the_time(event.listed_group, event) if event.listed_group else ():
            if task["id"] not in shown:
                yield f"task {task['id']} was there and not shown in {event.listed_group}"


def commits_are_shown_whole(history: History) -> Iterator[str]:
    """A listing with one task of a commit contains its other tasks of the group, and none that it replaced."""
    for event in history.events:
        shown = {task["id"] for task in event.seen} if event.listed_group else set()
        for task_id in shown & history.maker.keys():
            for other in history.maker[task_id].made:
                is_meant = other["group"] == event.listed_group and other["id"] not in shown
                if is_meant and event.received_s <= history.life_s(other["id"])[1]:
                    yield f"task {task_id} was shown without task {other['id']} of the same commit"
            if history.predecessor.get(task_id) in shown:
                yield f"task {task_id} was shown beside task {history.predecessor[task_id]}, which it replaced"


def one_order_explains_all(history: History) -> Iterator[str]:
    """One order of all events, each at a moment between request and response, explains all responses.

    An event is after the makers of the tasks that it named, depended on or returned, and before those that ended them.
    An event that was refused a task as gone is after its end.
    """
    before = {place: set[int]() for place in range(len(history.events))}
    place_of = {id(event): place for place, event in enumerate(history.events)}
    for place, event in enumerate(history.events):
        for task_id in met(event, history):
            if task_id in history.maker:
                before[place].add(place_of[id(history.maker[task_id])])
            if remover := history.remover(task_id):
                before[place_of[id(remover)]].add(place)
        for task_id in refused_as_gone(event) & history.maker.keys():
            if remover := history.remover(task_id):
                before[place].add(place_of[id(remover)])
        before[place].discard(place)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        cycle = [history.events[place] for place in error.args[1]]
        ids = ", ".join(f"task {task_id}" for task_id in sorted({n for event in cycle for n in met(event, history)}))
        yield f"no order of {len(cycle) - 1} requests explains what happened to {ids}"
        return
    moment_s: dict[int, float] = {}
    for place in order:
        event = history.events[place]
        moment_s[place] = max([event.sent_s, *(moment_s[earlier] for earlier in before[place])])
        if moment_s[place] > event.received_s:
            ids = ", ".join(f"task {task_id}" for task_id in sorted(met(event, history) | refused_as_gone(event)))
            yield f"{event.path} of {ids} was answered before what it shows could happen"


def met(event: Event, history: History) -> set[int]:
    """Return the tasks that existed at the moment of the event, according to its response."""
    if not event.is_change:
        return {task["id"] for task in event.seen}
    if not event.is_done:
        return set()
    claimed = {history.predecessor[task["id"]] for task in event.made if task["id"] in history.predecessor}
    holders = {task["id"] for _, task in event.keyed if task.get("duplicate") and "data" in task}
    # The tasks that a claim depends on existed, whether it found a task or not.
    return {*event.named, *event.depends, *holders} | (claimed if event.is_claim else set())


def refused_as_gone(event: Event) -> set[int]:
    return {task_id for name in ("changes", "deletes", "depends") for task_id in event.refusal.get(name, [])}


def counts_are_true(history: History) -> Iterator[str]:
    """Counts are exact at rest, and never negative."""
    there = Counter(row["group"] for row in history.truth.living.values())
    for group in there.keys() | history.truth.counts.keys():
        if there[group] != history.truth.counts.get(group, 0):
            yield f"{group} was counted as {history.truth.counts.get(group, 0)} and holds {there[group]}"
    for event in history.events:
        for stats in event.answer["groups"] if event.path == "/stats" and event.status == 200 else ():
            if any(stats[state] < 0 for state in ("ready", "claimed", "expired", "scheduled", "failed")):
                yield f"a count was negative: {stats}"


CHECKS = (
    answers_are_good,
    ids_are_issued_once,
    ids_rise,
    no_task_is_removed_twice,
    nothing_answered_is_lost,
    nothing_comes_from_nowhere,
    commits_are_whole,
    one_living_task_holds_a_key,
    chains_are_chains,
    claims_are_right,
    owners_are_respected,
    refusals_are_true,
    nothing_means_nothing,
    no_limit_is_exceeded,
    what_is_cancelled_never_runs_again,
    a_then_is_added_once_and_never_early,
    a_tree_ends_as_its_tasks_do,
    reads_are_true,
    listings_are_complete,
    commits_are_shown_whole,
    one_order_explains_all,
    keys_have_one_answer,
    counts_are_true,
)
