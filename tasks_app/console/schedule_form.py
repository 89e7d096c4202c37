"""A schedule, as a person writes it down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from django import forms
from msgspec import UNSET

from taskstore.errors import InvalidInput, refuse
from taskstore.types.job_record import DEFAULT_QUEUE
from taskstore.types.schedules import CatchUp

from ..core.actors import REASON_LENGTH
from ..core.validation import GROUP_LENGTH, LABEL_LENGTH, MOST_PRIORITY
from ..schedules import PlannedJob, PlannedTask, ScheduledJobOptions, SchedulePlan
from ..schedules.record import NAME_LENGTH
from ..schedules.timetable import LONGEST
from .words import labels_in, number_in

CATCH_UPS = {
    CatchUp.SKIP: "add nothing; continue with the next due time",
    CatchUp.LATEST: "add one for all of them",
    CatchUp.ALL: "add one for each, at most the latest 1 000",
}
ADDS = {"task": "a task in a group", "job": "a function that a worker runs"}
MOST_TIMEOUT_S = 366 * 86_400
DATA = ("content", "arguments", "named_arguments")  # What only some may see.
# Where the form has what the plan calls otherwise.
FIELDS = {
    "task": "adds",
    "task.group": "group",
    "task.data": "content",
    "task.labels": "labels",
    "task.priority": "priority",
    "job": "function",
    "job.function": "function",
    "job.args": "arguments",
    "job.kwargs": "named_arguments",
    "job.queue": "queue",
    "job.group": "queue",
    "job.priority": "priority",
}


class ScheduleForm(forms.Form):
    """What is added, and when. `before` is the plan that it changes; without `sees_data` its data stays as it is."""

    name = forms.CharField(max_length=NAME_LENGTH)
    cron = forms.CharField(max_length=LONGEST)
    zone = forms.CharField()
    catch_up = forms.ChoiceField(choices=[(each, each) for each in CATCH_UPS])
    adds = forms.ChoiceField(choices=[(each, each) for each in ADDS])
    group = forms.CharField(required=False, max_length=GROUP_LENGTH, strip=False)
    content = forms.CharField(required=False, strip=False, widget=forms.Textarea({"rows": 4}))
    labels = forms.CharField(required=False, widget=forms.Textarea({"rows": 2}))
    function = forms.CharField(required=False, max_length=LABEL_LENGTH)
    arguments = forms.CharField(required=False, widget=forms.Textarea({"rows": 2}))
    named_arguments = forms.CharField(required=False, widget=forms.Textarea({"rows": 2}))
    queue = forms.CharField(required=False)
    max_attempts = forms.CharField(required=False)
    timeout_s = forms.CharField(required=False)
    priority = forms.CharField(required=False)
    reason = forms.CharField(required=False, max_length=REASON_LENGTH)

    def __init__(self, asked: Mapping[str, str] | None, before: SchedulePlan | None, *, sees_data: bool) -> None:
        super().__init__(asked, initial=_written(before) if before else NEW)
        self._before = before
        if before:
            del self.fields["name"]
            for name in () if sees_data else DATA:
                del self.fields[name]

    def clean_arguments(self) -> list[Any]:
        return list(_json(self.cleaned_data["arguments"] or "[]", list, "a JSON list, such as [1, true]"))

    def clean_named_arguments(self) -> dict[str, Any]:
        return dict(_json(self.cleaned_data["named_arguments"] or "{}", dict, 'a JSON object, such as {"to": "kim"}'))

    def clean_labels(self) -> Mapping[str, str]:
        return labels_in(self.cleaned_data["labels"])

    def clean_max_attempts(self) -> int:
        return number_in("max_attempts", self.cleaned_data["max_attempts"] or "1", least=1, most=1_000)

    def clean_timeout_s(self) -> int | None:
        text = self.cleaned_data["timeout_s"]
        return number_in("timeout_s", text, least=1, most=MOST_TIMEOUT_S) if text else None

    def clean_priority(self) -> int:
        text = self.cleaned_data["priority"] or "0"
        return number_in("priority", text, least=-MOST_PRIORITY, most=MOST_PRIORITY)

    def clean(self) -> dict[str, Any]:
        """Also as a whole: what would be refused is told beside its field."""
        if not self.errors:
            try:
                refuse(self.plan().problems())
            except InvalidInput as refused:
                self.tell(refused)
        return self.cleaned_data

    def plan(self) -> SchedulePlan:
        given = self.cleaned_data
        times = {"cron": given["cron"], "zone": given["zone"], "catch_up": CatchUp(given["catch_up"])}
        return (
            SchedulePlan(**times, job=self._job())
            if given["adds"] == "job"
            else SchedulePlan(**times, task=self._task())
        )

    def tell(self, refused: InvalidInput) -> None:
        """Say beside each field what is wrong with it."""
        for path, texts in refused.fields.items():
            place = ".".join(path.split(".")[:2])
            field = FIELDS.get(place, place)
            self.add_error(field if field in self.fields else None, forms.ValidationError(texts))

    def _task(self) -> PlannedTask:
        given = self.cleaned_data
        before = self._before.task if self._before else UNSET
        data = "" if before is UNSET else before.data
        if "content" in given:  # Browsers send CRLF for every line's end, whatever was typed.
            data = given["content"].replace("\r\n", "\n")
        return PlannedTask(group=given["group"], data=data, labels=given["labels"], priority=given["priority"])

    def _job(self) -> PlannedJob:
        given = self.cleaned_data
        before = self._before.job if self._before else UNSET
        job = PlannedJob(function="") if before is UNSET else before
        timeout_ms = given["timeout_s"] * 1_000 if given["timeout_s"] else UNSET
        options: ScheduledJobOptions = msgspec.structs.replace(
            job.options, max_attempts=given["max_attempts"], timeout_ms=timeout_ms
        )
        return PlannedJob(
            function=given["function"],
            args=tuple(given.get("arguments", job.args)),
            kwargs=given.get("named_arguments", job.kwargs),
            queue=given["queue"] or DEFAULT_QUEUE,
            priority=given["priority"],
            options=options,
        )


NEW = {
    "cron": "0 3 * * *",
    "zone": "UTC",
    "catch_up": CatchUp.SKIP,
    "adds": "task",
    "queue": DEFAULT_QUEUE,
    "max_attempts": "1",
    "priority": "0",
}


def _written(plan: SchedulePlan) -> dict[str, Any]:
    """A plan, as the fields of the form show it."""
    times = NEW | {"cron": plan.cron, "zone": plan.zone, "catch_up": plan.catch_up, "priority": plan.adds.priority}
    if isinstance(plan.adds, PlannedTask):
        labels = "\n".join(f"{name}={value}" for name, value in sorted(plan.adds.labels.items()))
        return times | {"adds": "task", "group": plan.adds.group, "content": plan.adds.data, "labels": labels}
    timeout_ms = plan.adds.options.timeout_ms
    return times | {
        "adds": "job",
        "function": plan.adds.function,
        "arguments": json.dumps(plan.adds.args, ensure_ascii=False) if plan.adds.args else "",
        "named_arguments": json.dumps(plan.adds.kwargs, ensure_ascii=False) if plan.adds.kwargs else "",
        "queue": plan.adds.queue,
        "max_attempts": plan.adds.options.max_attempts,
        "timeout_s": "" if timeout_ms is UNSET else timeout_ms // 1_000,
    }


def _json(text: str, kind: type, right: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise forms.ValidationError(f"must be {right}")
    return value
