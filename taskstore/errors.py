"""What can go wrong, as a tree with stable codes.

TaskStoreError
  InvalidInput         the caller's values are invalid: correct them
    LimitExceeded      more than the store takes: ask for less
      TooManyGroups    the store holds as many groups as it may: use one that exists
  Forbidden            whoever asks may see these tasks, but not change them: the message says what is missing
  CommitRefused        something that the commit names is gone or leased: drop the work, claim again
  JobUnfinished        only what is finished can be deleted or requeued: wait until it is
  KeyReused            the idempotency key came before with another request: use a new key
  Immutable            a task row was about to be changed in place: use the verb that is named
  StoreBusy            somebody else's transaction holds the rows for too long: try again later
  StoreUnavailable     the database can't be reached: try again later
    CommitUnknown      nothing has confirmed the COMMIT: look whether it happened before trying again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from .types.tasks import Problem, Refusal


class TaskStoreError(Exception):
    """The root: catch it to catch everything the store raises on purpose."""

    code: ClassVar[str] = "error"


class InvalidInput(TaskStoreError):
    """A value is not one that the store takes. Nothing was changed.

    `fields` says which and why: `{"adds[0].group": ["..."]}`. The caller corrects it.
    """

    code = "invalid"

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self.fields = {name: list(texts) for name, texts in fields.items()}
        super().__init__("; ".join(f"{name}: {'; '.join(texts)}" for name, texts in self.fields.items()))

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[Mapping[str, Sequence[str]]]]:
        # Raised in the process that decodes large requests, and again here.
        return type(self), (self.fields,)


class LimitExceeded(InvalidInput):
    """More than the store takes at once. Nothing was changed. Ask for less; each limit is a setting."""

    code = "limit"


class TooManyGroups(LimitExceeded):
    """There are as many groups as there may be. Nothing was changed. Use one that exists, or empty others first."""

    code = "too_many_groups"


class Forbidden(TaskStoreError):
    """Tasks of a group may be seen, but not changed, by whoever asks. Nothing was changed.

    The message names the group and says what is missing: a permission, or a switch of the server.
    """

    code = "forbidden"


class CommitRefused(TaskStoreError):
    """Something the operation names is gone, or leased to another client. Nothing was changed.

    Usually: drop the work and claim again. `refusal` says which ids, and why.
    """

    code = "refused"

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(_sentence(refusal))


class JobUnfinished(TaskStoreError):
    """The job is not finished, so that it can be neither deleted nor requeued. Nothing was changed.

    The message says how far it is. The caller waits until it is finished.
    """

    code = "unfinished"


class KeyReused(TaskStoreError):
    """The idempotency key came before, with another request. Nothing was changed. Use a new key."""

    code = "key_reused"


class Immutable(TaskStoreError):
    """Task rows are never changed in place. The message names the verb to use instead."""

    code = "immutable"


class StoreBusy(TaskStoreError):
    """Rows were locked by somebody else's transaction for too long. Nothing was changed. Try again later."""

    code = "busy"


class StoreUnavailable(TaskStoreError):
    """The database can't be reached. Nothing was changed. Try again later."""

    code = "unavailable"


class CommitUnknown(StoreUnavailable):
    """The connection died during COMMIT, or a synchronous standby may not have it. Look before trying again."""

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
    """Raise InvalidInput when there are any."""
    if fields := by_field(problems):
        raise InvalidInput(fields)


def by_field(problems: Iterable[Problem]) -> dict[str, list[str]]:
    """The texts of each field, by its path."""
    fields: dict[str, list[str]] = {}
    for path, text in problems:
        fields.setdefault(path, []).append(text)
    return fields
