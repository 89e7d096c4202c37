"""The tasks that TaskRefs stand for: by id, by group, or by label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from grpc import StatusCode

from taskstore.errors import refuse
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.types.scalars import GROUP_LENGTH, LABEL_LENGTH
from taskstore.types.sentences import text
from taskstore.types.tasks import FAILED_FROM, Problem

from ..core.operations import GroupScope
from ..database.time_limits import TookTooLong, at_most
from ..managers import TaskQuerySet
from ..models import Task
from .requests import WRONG_REF, id_in
from .statuses import CallRefused

LOOK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refs:
    """Any number of TaskRefs together."""

    ids: tuple[int, ...] = ()  # As given, duplicates included.
    groups: frozenset[str] = frozenset()
    selectors: tuple[Mapping[str, str], ...] = ()  # A selector matches tasks with any of its labels.

    @classmethod
    def read(cls, field: str, refs: Sequence[pb.TaskRef]) -> Self:
        """Parse refs. Raises InvalidInput about empty refs and invalid values."""
        refuse(_problems(field, refs))
        return cls(
            ids=tuple(id_in(ref.id) for ref in refs if ref.HasField("id")),
            groups=frozenset(ref.group for ref in refs if ref.HasField("group")),
            # Without the label that gRPC does not show.
            selectors=tuple(labels_in(ref.selector.labels) for ref in refs if ref.HasField("selector")),
        )

    @property
    def in_words(self) -> str:
        """Describe the refs for the audit log."""
        labels = [f"label {name}: {value}" for selector in self.selectors for name, value in selector.items()]
        named = [f"{len(self.ids)} named tasks"] if self.ids else []
        return ", ".join([*named, *(f"group {group}" for group in sorted(self.groups)), *labels])

    @property
    def only_group(self) -> str:
        """Return the only group that the refs name; empty when they name anything else."""
        [group] = self.groups if len(self.groups) == 1 and not (self.ids or self.selectors) else [""]
        return group

    def described(self, scope: GroupScope) -> TaskQuerySet:
        """Return the tasks of the groups and labels, within the scope."""
        tasks = Task.objects.get_queryset().within(scope)
        described = tasks.filter(group__in=self.groups)
        for labels in self.selectors:
            described |= tasks.bearing_any(labels)
        return described


def labels_in(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a message, without the one that only the store sets."""
    return {name: value for name, value in labels.items() if name != FAILED_FROM}


@contextmanager
def in_time(using: str) -> Iterator[None]:
    """Limit the time of a query for matching tasks. Raises CallRefused when it takes too long."""
    try:
        with at_most(LOOK_S, using=using):
            yield
    except TookTooLong:
        text = f"the search for matching tasks took longer than {LOOK_S:.0f} s: name groups instead of labels"
        raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text) from None


def refuse_repeated(field: str, refs: Sequence[pb.TaskRef]) -> None:
    """Raise InvalidInput when two refs name one id."""
    seen: set[int] = set()
    problems: list[Problem] = []
    for place, ref in enumerate(refs):
        if ref.HasField("id"):
            if ref.id in seen:
                problems.append((f"{field}[{place}].id", f"must name each task only once: {ref.id} is repeated"))
            seen.add(ref.id)
    refuse(problems)


def _problems(field: str, refs: Iterable[pb.TaskRef]) -> Iterator[Problem]:
    for place, ref in enumerate(refs):
        path = f"{field}[{place}]"
        kind = ref.WhichOneof("sel")
        if kind is None:
            yield path, WRONG_REF
        elif kind == "group":
            yield from text(f"{path}.group", ref.group, GROUP_LENGTH)
        elif kind == "selector":
            for name, value in ref.selector.labels.items():
                yield from text(f"{path}.selector.labels", name, LABEL_LENGTH)
                yield from text(f"{path}.selector.labels", value, LABEL_LENGTH)
