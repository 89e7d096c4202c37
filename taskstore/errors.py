"""The errors of the store, as a tree with stable codes.

TaskStoreError
  InvalidInput         a value is invalid: correct it
    LimitExceeded      a limit is exceeded: ask for less
      TooManyGroups    the limit on groups is reached: use an existing one
  Forbidden            the caller may see these tasks but not change them: the message says what is missing
  CommitRefused        a task that the commit names is gone or leased: discard the work, claim again
  NotHeld              the task is not leased to this client, so it can't report its progress: stop working on it
  JobUnfinished        the job has not finished, so it can't be deleted or requeued: wait
  KeyReused            the idempotency key was used with another request: use a new key
  Immutable            a task row was about to be changed in place: use the method that the message names
  StoreBusy            another transaction locks the rows for too long: try again later
  StoreUnavailable     the database can't be reached: try again later
    CommitUnknown      the COMMIT was not confirmed: check whether it happened before trying again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from .types.tasks import Problem, Refusal


class TaskStoreError(Exception):
    """The base class of all errors that the store and its clients raise."""

    code: ClassVar[str] = "error"


class InvalidInput(TaskStoreError):
    """A value is invalid. Nothing was changed.

    `fields` contains the messages for each invalid field: `{"adds[0].group": ["..."]}`.
    """

    code = "invalid"

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self.fields = {name: list(texts) for name, texts in fields.items()}
        super().__init__("; ".join(f"{name}: {'; '.join(texts)}" for name, texts in self.fields.items()))

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[Mapping[str, Sequence[str]]]]:
        # Pickled between the process that decodes large requests and this one.
        return type(self), (self.fields,)


class LimitExceeded(InvalidInput):
    """A limit of the store is exceeded; each limit is a setting. Nothing was changed. Send or request less."""

    code = "limit"


class TooManyGroups(LimitExceeded):
    """The limit on groups is reached. Nothing was changed. Use an existing group, or empty others first."""

    code = "too_many_groups"


class Forbidden(TaskStoreError):
    """The caller may see the tasks of a group but not change them. Nothing was changed.

    The message names the group and what is missing: a permission, or a setting of the server.
    """

    code = "forbidden"


class CommitRefused(TaskStoreError):
    """A task that the commit names no longer exists, or is leased to another client. Nothing was changed.

    Usually the caller discards its work and claims again. `refusal` lists the ids by reason.
    """

    code = "refused"

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(_sentence(refusal))


class NotHeld(TaskStoreError):
    """The task is not leased to this client, so the client can't report its progress. Nothing was changed.

    Another client may have the task now: stop working on it.
    """

    code = "not_held"


class JobUnfinished(TaskStoreError):
    """The job has not finished, so it can't be deleted or requeued. Nothing was changed.

    The message contains its status. Wait until it has finished.
    """

    code = "unfinished"


class KeyReused(TaskStoreError):
    """The idempotency key was used before with another request. Nothing was changed. Use a new key."""

    code = "key_reused"


class Immutable(TaskStoreError):
    """Task rows are never changed in place. The message names the method to use instead."""

    code = "immutable"


class StoreBusy(TaskStoreError):
    """Another transaction locked the rows for too long. Nothing was changed. Try again later."""

    code = "busy"


class TooManyReaders(StoreBusy):
    """Others are reading too many long lists from this server process. Try again when one of them is finished."""

    code = "readers"


class StoreUnavailable(TaskStoreError):
    """The database can't be reached. Nothing was changed. Try again later."""

    code = "unavailable"


class StoreDamaged(StoreUnavailable):
    """The database is damaged, so that some requests fail until an operator has repaired it, or restored a backup."""

    code = "damaged"


class CommitUnknown(StoreUnavailable):
    """The connection broke during COMMIT, or a standby did not confirm it. Check whether the change was made."""

    code = "commit_unknown"


def _sentence(refusal: Refusal) -> str:
    parts = [
        ("tasks to update do not exist", refusal.changes),
        ("tasks to delete do not exist", refusal.deletes),
        ("tasks to depend on do not exist", refusal.depends),
        ("leased to another client", refusal.owned),
        ("invalid", refusal.bugs),
    ]
    return "; ".join(f"{what}: {', '.join(map(str, which))}" for what, which in parts if which)


def refuse(problems: Iterable[Problem]) -> None:
    """Raise InvalidInput if there are any problems."""
    if fields := by_field(problems):
        raise InvalidInput(fields)


def by_field(problems: Iterable[Problem]) -> dict[str, list[str]]:
    """Group the messages by the path of their field."""
    fields: dict[str, list[str]] = {}
    for path, text in problems:
        fields.setdefault(path, []).append(text)
    return fields
