"""`RESULT`: an argument that is the result of the step before, in a chain of jobs.

Where a chain is made, each job before gets two labels: for which step its result is, and its place among the others.
The worker reads the results when the job starts, so that the transaction that adds it need not.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidInput
from ..types.job_record import (
    NO_STEP_BEFORE,
    RESULT,
    RESULT_FOR,
    RESULT_PLACE,
    UNLINKED,
    JobCall,
    JobRecord,
    JobStatus,
    finished_group,
    queue_of,
)
from ..types.tasks import NewTask

if TYPE_CHECKING:
    from ..types.tasks import Task
    from ..worker.store import Store

[NAME] = RESULT
MARK = UNLINKED[:-1]
MOST_RESULTS, MOST_BYTES = 1_000, 4 * 2**20  # Beyond that the job gets the id of the batch, to read a page at a time.
AT_ONCE = 200

# Of a job: None. Of a group: how many jobs it has, or the shapes of its parts, if there are others than jobs.
Shape = int | Sequence[Any] | None


class ResultMissing(Exception):
    """The result of the step before can't be read."""


def is_taken(value: object) -> bool:
    return isinstance(value, Mapping) and value.get(NAME) == RESULT[NAME] and value.keys() <= {NAME, "of", "shape"}


def takes_result(call: JobCall | NewTask) -> bool:
    """Return whether an argument of the job is RESULT, or has it somewhere within."""
    return MARK in call.data if isinstance(call, NewTask) else any(links_in([call.args, call.kwargs]))


def link_to(shape: Shape) -> dict[str, Any]:
    """Return the argument that stands for the results of a step of this shape."""
    return {**RESULT, "of": secrets.token_hex(6), "shape": shape}


def linked(task: NewTask, before: Mapping[str, Any] | None, after: tuple[str, str] | None) -> NewTask:
    """Return a job of a chain. `before`: the link to the step before, if it follows one. `after`: the step that its
    result is for, and its place. Raises InvalidInput if it takes a result, and there is none."""
    if takes_result(task):
        if before is None:
            raise InvalidInput({"args": [NO_STEP_BEFORE]})
        task = replace(task, data=_filled(JobRecord.decode(task.data), before).encode())
    if after is None:
        return task
    return replace(task, labels={**task.labels, RESULT_FOR: after[0], RESULT_PLACE: after[1]})


def _filled(record: JobRecord, value: Any) -> JobRecord:
    return msgspec.structs.replace(record, args=_with(value, record.args), kwargs=_with(value, record.kwargs))


def _with(value: Any, given: Any) -> Any:
    """Return what is given with the value in the place of each link."""
    if is_taken(given):
        return value
    if isinstance(given, Mapping):
        return {name: _with(value, each) for name, each in given.items()}
    return [_with(value, each) for each in given] if isinstance(given, list | tuple) else given


def links_in(given: Any) -> Iterator[Mapping[str, Any]]:
    if is_taken(given):
        yield given
    elif isinstance(given, Mapping | list | tuple):
        for each in given.values() if isinstance(given, Mapping) else given:
            yield from links_in(each)


def with_results(record: JobRecord, batch: str, store: Store) -> JobRecord:
    """Return the record of a job with the results that it takes. Raises ResultMissing, and what the store raises."""
    link = next(links_in([record.args, record.kwargs]), None)
    if link is None:
        return record
    if "of" not in link or not batch:
        raise ResultMissing(NO_STEP_BEFORE)
    shape = link.get("shape")
    if not _is_shape(shape):
        raise ResultMissing("RESULT was not made by a chain")
    handle: dict[str, Any] = {"batch": int(batch), "count": _number_of(shape), "of": str(link["of"])}
    if handle["count"] > MOST_RESULTS:
        return _filled(record, handle)
    found, size = dict[str, Any](), 0
    for task in _givers(store, handle):
        found[task.labels[RESULT_PLACE]] = _result_in(task)
        size += len(task.data)
        if size > MOST_BYTES:
            return _filled(record, handle)
    return _filled(record, _shaped(shape, "", found))


def read_results(store: Store, handle: Mapping[str, Any]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the place and the result of each job of the step before, for more results than a job is given.

    `handle`: what the job got in the place of RESULT. The places are those in the group, in no particular order; a job
    that did not succeed, but counts as that, has None. Of each page of tasks only what was asked for is kept.
    """
    for task in _givers(store, handle):
        yield tuple(map(int, task.labels[RESULT_PLACE].split(".")[:-1])), _result_in(task)


def _givers(store: Store, handle: Mapping[str, Any]) -> Iterator[Task]:
    """Yield the tasks whose results a step takes."""
    after = None
    while True:
        page = store.search(f"batch:{handle['batch']} label.{RESULT_FOR}:{handle['of']}", limit=AT_ONCE, after=after)
        yield from page.tasks
        if (after := page.after) is None:
            return


def _result_in(task: Task) -> Any:
    """Return the result of a job; None if it did not succeed, but counts as that."""
    queue = queue_of(task.group)
    if not queue or task.group != finished_group(queue, JobStatus.SUCCEEDED):
        return None
    return JobRecord.decode(task.data).result


def _shaped(shape: Shape, place: str, found: Mapping[str, Any]) -> Any:
    if shape is None:
        if place not in found:
            raise ResultMissing(
                "a result of the step before is gone: its job was discarded or deleted, "
                "or this worker's token does not cover the queue"
            )
        return found[place]
    shapes = [None] * shape if isinstance(shape, int) else shape
    return [_shaped(each, f"{place}{number}.", found) for number, each in enumerate(shapes)]


def _is_shape(shape: Any) -> bool:
    return shape is None or isinstance(shape, int) or (isinstance(shape, list) and all(map(_is_shape, shape)))


def _number_of(shape: Shape) -> int:
    if shape is None:
        return 1
    return shape if isinstance(shape, int) else sum(map(_number_of, shape))
