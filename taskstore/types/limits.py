"""Limits of groups: how many tasks may be leased at once, and how many be claimed within a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct, field

from . import sentences
from .checks import wrong_members
from .requests import Asked
from .scalars import LABEL_LENGTH, PLAIN, GroupInPath, Limits, Reason
from .tasks import Problem

MOST_RUNNING, MOST_CLAIMS, MOST_PER_MS = 1_000_000, 10_000, 3_600_000

Running = Annotated[
    int, Meta(ge=1, le=MOST_RUNNING, description="How many tasks of the group may be leased at the same time.")
]
By = Annotated[
    str,
    Meta(
        max_length=LABEL_LENGTH,
        pattern=PLAIN,
        description="The name of a label: the limit applies separately to each of its values. Tasks without the label "
        "share one.",
    ),
]


class Rate(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How many tasks may be claimed within a time."""

    claims: Annotated[int, Meta(ge=1, le=MOST_CLAIMS, description="The maximum number of claimed tasks.")]
    per_ms: Annotated[int, Meta(ge=1, le=MOST_PER_MS, description="In any period of this many milliseconds.")] = field(
        name="per"
    )

    def __str__(self) -> str:
        return f"{self.claims} per {self.per_ms:g} ms" if self.per_ms % 1_000 else f"{self.claims} per {self.seconds}"

    @property
    def seconds(self) -> str:
        return f"{self.per_ms // 1_000} s" if self.per_ms > 1_000 else "second"


class LimitsByGroup(Asked, frozen=True):
    """The name of a group, or a prefix of names with a star at the end."""

    name: Annotated[
        GroupInPath, Meta(description="The name of the group; with `*` at the end, every group that begins so.")
    ]


class ReasonByLimits(LimitsByGroup, frozen=True):
    reason: Reason = ""


class LimitsRequest(ReasonByLimits, frozen=True, kw_only=True):
    running: Running | None = None
    rate: Rate | None = None
    by: By = ""

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if self.running is None and self.rate is None:
            yield "running", "is required, unless rate is given"


class LimitUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a limit is used."""

    value: Annotated[str, Meta(description="The value of the label; empty for tasks without it.")] = ""
    leased: Annotated[int, Meta(description="Leased tasks, including those whose lease has expired.")] = 0
    claimed: Annotated[int, Meta(description="Tasks that were claimed within the period of the rate.")] = 0
    why: Annotated[str, Meta(description="Why nothing is claimed now; absent if the limit allows a claim.")] = ""


class GroupLimit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limit of a group, and how much of it is used."""

    name: Annotated[str, Meta(description="The group that it was set for, or a prefix with a star.")]
    running: Running | None = None
    rate: Rate | None = None
    by: By = ""
    use: Annotated[
        tuple[LimitUse, ...],
        Meta(description="By value of the label, those at their limit first; at most 100. Absent for a prefix."),
    ] = ()
    why: Annotated[str, Meta(description="Why tasks are not claimed now, like `20 of 20 running`.")] = ""

    def __str__(self) -> str:
        parts = [f"{self.running} running"] if self.running is not None else []
        parts += [str(self.rate)] if self.rate else []
        return " and ".join(parts) + (f", by {self.by}" if self.by else "")


def problems_of(asked: LimitsRequest) -> Iterator[Problem]:
    """Yield what is wrong with limits that a program sets."""
    yield from sentences.group_name("name", asked.name)
    yield from wrong_members(asked, "running", "by")
    if asked.rate is not None:
        yield from [(f"rate.{name}", why) for name, why in wrong_members(asked.rate, "claims", "per_ms")]
    yield from asked.problems(Limits())
