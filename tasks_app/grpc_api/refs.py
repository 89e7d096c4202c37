"""What TaskRefs stand for: ids that they name, groups and labels that they describe tasks by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from grpc import StatusCode

from taskstore.errors import refuse
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.types.tasks import FAILED_FROM, Problem

from ..core.operations import GroupScope
from ..core.validation import GROUP_LENGTH, LABEL_LENGTH, text
from ..database.time_limits import TookTooLong, at_most
from ..managers import TaskQuerySet
from ..models import Task
from .requests import WRONG_REF, id_in
from .statuses import CallRefused

LOOK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refs:
    """Any number of TaskRefs together."""

    ids: tuple[int, ...] = ()  # As they were named, also twice.
    groups: frozenset[str] = frozenset()
    selectors: tuple[Mapping[str, str], ...] = ()  # A task that bears any of the labels is meant.

    @classmethod
    def read(cls, field: str, refs: Sequence[pb.TaskRef]) -> Self:
        """Raises InvalidInput about refs in which nothing is set, or that hold what no task has."""
        refuse(_problems(field, refs))
        return cls(
            ids=tuple(id_in(ref.id) for ref in refs if ref.HasField("id")),
            groups=frozenset(ref.group for ref in refs if ref.HasField("group")),
            # What gRPC does not show is not found by it either.
            selectors=tuple(labels_in(ref.selector.labels) for ref in refs if ref.HasField("selector")),
        )

    @property
    def in_words(self) -> str:
        """For the audit."""
        labels = [f"label {name}: {value}" for selector in self.selectors for name, value in selector.items()]
        named = [f"{len(self.ids)} named tasks"] if self.ids else []
        return ", ".join([*named, *(f"group {group}" for group in sorted(self.groups)), *labels])

    @property
    def only_group(self) -> str:
        """The one that all of them name; empty: there is none."""
        [group] = self.groups if len(self.groups) == 1 and not (self.ids or self.selectors) else [""]
        return group

    def described(self, scope: GroupScope) -> TaskQuerySet:
        """The tasks that the groups and labels stand for, of the groups in the scope."""
        tasks = Task.objects.get_queryset().within(scope)
        described = tasks.filter(group__in=self.groups)
        for labels in self.selectors:
            described |= tasks.bearing_any(labels)
        return described


def labels_in(labels: Mapping[str, str]) -> dict[str, str]:
    """Those of a message, without the one that only the store writes."""
    return {name: value for name, value in labels.items() if name != FAILED_FROM}


@contextmanager
def in_time(using: str) -> Iterator[None]:
    """Around the look for tasks that refs describe. Raises CallRefused when it takes too long."""
    try:
        with at_most(LOOK_S, using=using):
            yield
    except TookTooLong:
        text = f"the search for matching tasks took longer than {LOOK_S:.0f} s: name groups instead of labels"
        raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text) from None


def refuse_repeated(field: str, refs: Sequence[pb.TaskRef]) -> None:
    """Raise InvalidInput when two refs name one id."""
    refuse(_repeated(field, refs))


def _repeated(field: str, refs: Iterable[pb.TaskRef]) -> Iterator[Problem]:
    seen: set[int] = set()
    for place, ref in enumerate(refs):
        if ref.HasField("id"):
            if ref.id in seen:
                yield f"{field}[{place}].id", f"must name each task only once: {ref.id} is repeated"
            seen.add(ref.id)


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
