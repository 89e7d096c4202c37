"""A task as a form: what a person writes becomes an add, or a change that makes a successor."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django import forms

from taskstore.errors import InvalidInput
from taskstore.types.scalars import GROUP_LENGTH
from taskstore.types.tasks import FAILED_FROM, FIELDS, PLAIN, Change, NewTask, TaskField

from .core.operations import Commit
from .core.validation import kind_of, validate
from .managers import limits
from .models import Task

NOBODY = 0  # Whose the task is: whoever claims it.
EDITABLE_BYTES = 256 * 1024  # Larger data stays as it is: a browser's text field chokes on it.

TEXT, BASE64 = "text", "base64"
DATA_FIELDS = frozenset({"content", "encoding", "data_type"})


MOMENT = forms.SplitDateTimeWidget(
    date_attrs={"type": "date", "aria-label": "Date"},
    date_format="%Y-%m-%d",
    time_attrs={"type": "time", "step": "1", "aria-label": "Time"},
    time_format="%H:%M:%S",
)


class LongText(forms.CharField):
    """Text of several lines. Browsers send CRLF for every line's end, whatever was there."""

    widget = forms.Textarea

    def to_python(self, value: Any) -> str:
        return with_plain_ends(super().to_python(value) or "")

    def has_changed(self, initial: Any, data: Any) -> bool:
        return with_plain_ends(initial or "") != with_plain_ends(data or "")


class Labels(forms.CharField):
    """Labels, one on each line as name=value."""

    widget = forms.Textarea({"rows": 2})

    def clean(self, value: Any) -> Mapping[str, str]:
        pairs = _pairs(super().clean(value))
        if any(not name.strip() or not equals for name, equals, _ in pairs):
            raise forms.ValidationError("must have one label per line, as name=value")
        return _labels(pairs)


def written_labels(labels: Mapping[str, str]) -> str:
    """Write labels for the field."""
    return "\n".join(f"{name}={value}" for name, value in sorted(labels.items()))


def can_be_written(labels: Mapping[str, str]) -> bool:
    """Return whether the field reads the labels again: they have no line breaks, nor spaces at their ends."""
    return _labels(_pairs(written_labels(labels))) == labels


def _pairs(text: str) -> list[tuple[str, str, str]]:
    return [line.partition("=") for line in text.splitlines() if line.strip()]


def _labels(pairs: list[tuple[str, str, str]]) -> Mapping[str, str]:
    return {name.strip(): value.strip() for name, _, value in pairs}


def form_field(field: TaskField) -> forms.Field:
    """Return an input with the limits and the description of a field that is a number or a text."""
    kind, meta = kind_of(field.type)
    label, description = (field.title or field.name).capitalize(), meta.get("description", "")
    if kind is str:
        return forms.CharField(
            required=False, strip=False, label=label, help_text=description, max_length=meta.get("max_length")
        )
    least, most = meta["ge"], meta["le"]
    hint = f"{least} to {most}. {description}".strip()
    return forms.IntegerField(min_value=least, max_value=most, initial=0, label=label, help_text=hint)


PlainFields = type("PlainFields", (forms.Form,), {each.name: form_field(each) for each in FIELDS if each.name in PLAIN})


class TaskForm(forms.ModelForm, PlainFields):  # type: ignore[type-arg, misc, valid-type]
    """Adds a task, or says how one is to be changed. It never touches the row: `operation` is for the store.

    Without `may_see_data` the data of a task that exists is neither shown nor changed.
    `refusal` is why the store refused what was asked for a moment ago: the form shows it.
    """

    group = forms.CharField(max_length=GROUP_LENGTH, strip=False)
    content = LongText(required=False, strip=False, label="Data")
    encoding = forms.ChoiceField(
        choices=[(TEXT, "text"), (BASE64, "base64")], initial=TEXT, help_text="How the data above is encoded."
    )
    data_type = forms.CharField(required=False, help_text="The type URL, if the data is a protobuf Any.")
    available_at = forms.SplitDateTimeField(
        required=False, widget=MOMENT, label="Available from", help_text="Leave empty for the current time."
    )
    labels = Labels(required=False, help_text="One per line, as name=value.")
    error = LongText(
        required=False,
        strip=False,
        widget=forms.Textarea({"rows": 3}),
        help_text="A task with an error counts as failed.",
    )
    reason = forms.CharField(required=False, max_length=1000, help_text="Optional, recorded in the audit log.")

    @property
    def plain(self) -> list[forms.BoundField]:
        return [self[name] for name in PLAIN]

    class Meta:
        model = Task
        fields = ()

    def __init__(self, *args: Any, may_see_data: bool, refusal: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal = refusal
        self.replaces = self.instance if self.instance.pk else None
        if self.replaces:
            self.initial.update(initial_of(self.replaces, may_see_data=may_see_data))
            if not can_be_written(labels_of(self.replaces)):
                del self.fields["labels"]
            if not (may_see_data and is_editable(bytes(self.replaces.data))):
                for name in DATA_FIELDS:
                    del self.fields[name]

    def clean(self) -> dict[str, Any]:
        if self._refusal:
            raise forms.ValidationError(self._refusal)
        if not self.errors:
            try:
                self.operation = self._operation()
                if isinstance(self.operation, NewTask):
                    commit = Commit(owner=NOBODY, adds=(self.operation,))
                else:
                    commit = Commit(owner=NOBODY, updates=(self.operation,))
                validate(commit, limits())
            except InvalidInput as wrong:
                for path, texts in wrong.fields.items():
                    name = re.sub(r"^(adds|updates)\[0\]\.", "", path).partition(".")[0]
                    field = {"timespec": "available_at", "data": "content"}.get(name, name)
                    errors = forms.ValidationError([sentence(text) for text in texts])
                    self.add_error(field if field in self.fields else None, errors)
        return self.cleaned_data

    def _post_clean(self) -> None:
        """Not Django's, which would write into the row: it is immutable."""

    def _operation(self) -> NewTask | Change:
        given = self.cleaned_data
        same = {name: given[name] for name in ("group", "labels", *PLAIN) if name in given}
        if not self.replaces:
            return NewTask(
                **same,
                error=given["error"],
                data=self._data(),
                data_type=given["data_type"],
                timespec_ms=self._timespec_ms(),
            )
        keeps_data = not DATA_FIELDS.intersection(self.changed_data)
        return Change(
            id=self.replaces.id,
            **same,
            error=given["error"] if "error" in self.changed_data else None,
            data=None if keeps_data else self._data(),
            data_type=None if keeps_data else given["data_type"],
            timespec_ms=self._timespec_ms(),
            release=True,  # Whoever held it holds it no longer: nobody does.
        )

    def _data(self) -> bytes:
        if self.replaces and not {"content", "encoding"}.intersection(self.changed_data):
            return bytes(self.replaces.data)
        text: str = self.cleaned_data["content"]
        if self.cleaned_data["encoding"] == TEXT:
            return text.encode()
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput({"data": ["must be Base64: letters, digits, + and /, padded with ="]}) from None

    def _timespec_ms(self) -> int:
        at: datetime | None = self.cleaned_data["available_at"]
        if at is None:
            return 0
        if self.replaces and "available_at" not in self.changed_data:
            return int(self.replaces.available_at_ms)  # The field shows seconds only.
        at_ms = round(at.timestamp() * 1000)
        if at_ms <= 0:
            raise InvalidInput({"timespec": ["must be after 1 January 1970"]})
        return at_ms


def initial_of(task: Task, *, may_see_data: bool) -> dict[str, Any]:
    """What the form shows of a task at first."""
    shown: dict[str, Any] = {name: getattr(task, name) for name in ("group", "labels", "error", *PLAIN)}
    shown["labels"] = written_labels(labels_of(task))
    data = bytes(task.data)
    if may_see_data and is_editable(data):
        encoding, text = written(data)
        shown |= {"content": text, "encoding": encoding, "data_type": task.data_type}
    # A lease is not carried on, so neither is its end.
    return shown if task.leased else shown | {"available_at": datetime.fromtimestamp(task.available_at_ms / 1000, UTC)}


def labels_of(task: Task) -> Mapping[str, str]:
    """Return the labels without the origin of a dead letter, which is not for hands."""
    return {name: value for name, value in task.labels.items() if name != FAILED_FROM}


def written(data: bytes) -> tuple[str, str]:
    """How data is written, and the data so written: text where a browser's text field gives it back as it was."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not is_plain_text(text):
        return BASE64, base64.b64encode(data).decode()
    return TEXT, text


def is_plain_text(text: str) -> bool:
    """Whether a browser's text field gives the text back as it was; the ends of lines may be those of Windows."""
    return re.search(r"[^\t\n -\U0010ffff]", text) is None


def is_editable(data: bytes) -> bool:
    return len(data) <= EDITABLE_BYTES


def sentence(text: str) -> str:
    """Return what is wrong with a field, for people: with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def with_plain_ends(text: str) -> str:
    return text.replace("\r\n", "\n")
