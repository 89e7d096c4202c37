"""Commands, as a person writes them down: a line each, and how all of them are to be run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from django import forms

from ..command_lists import Submission
from ..command_record import DEFAULT_PROJECT, LONGEST_PROJECT, why_no_project
from ..errors import InvalidInput
from .form_texts import number_in

MOST_EXPECTED_S = 366 * 86_400
MOST_FAILS = 1_000
PLACE = re.compile(r"commands\[(\d+)\]\.(\w+)")
# Where the form has what a submission calls otherwise.
FIELDS = {"commands": "lines", "cmd": "lines", "expected_duration": "expected"}


class SubmitForm(forms.Form):
    """Lines for a shell, the project that they belong to, and how they are run."""

    project = forms.CharField(max_length=LONGEST_PROJECT, strip=False, initial=DEFAULT_PROJECT)
    lines = forms.CharField(
        strip=False, widget=forms.Textarea({"rows": 10, "spellcheck": "false", "autocapitalize": "off"})
    )
    expected = forms.CharField(required=False)
    max_fails = forms.CharField(required=False)
    until = forms.CharField(required=False, widget=forms.DateTimeInput({"type": "datetime-local"}))
    stashed = forms.BooleanField(required=False)

    def clean_project(self) -> str:
        project: str = self.cleaned_data["project"]
        if why := why_no_project(project):
            raise forms.ValidationError(why)
        return project

    def clean_expected(self) -> int | None:
        text = self.cleaned_data["expected"]
        return number_in("expected", text, least=1, most=MOST_EXPECTED_S) if text else None

    def clean_max_fails(self) -> int | None:
        text = self.cleaned_data["max_fails"]
        return number_in("max_fails", text, least=1, most=MOST_FAILS) if text else None

    def clean_until(self) -> int | None:
        text = self.cleaned_data["until"]
        try:
            return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) if text else None
        except (ValueError, OverflowError):
            raise forms.ValidationError("a time such as 2026-01-31T14:00, in UTC") from None

    def submissions(self) -> list[Submission]:
        given = self.cleaned_data
        return [
            Submission(cmd=cmd, expected_duration=given["expected"], until=given["until"], max_fails=given["max_fails"])
            for cmd in self._numbered().values()
        ]

    def tell(self, refused: InvalidInput) -> None:
        """Say beside each field what is wrong with it; of a command in which line it is."""
        numbers = list(self._numbered())
        for path, texts in refused.fields.items():
            found = PLACE.fullmatch(path)
            name = found[2] if found else path
            field = FIELDS.get(name, name)
            where = f"line {numbers[int(found[1])]}: " if found and field == "lines" else ""
            self.add_error(field if field in self.fields else None, [f"{where}{text}" for text in texts])

    def _numbered(self) -> Mapping[int, str]:
        """The lines that are not blank, by their numbers. Browsers send CRLF for every line's end."""
        lines = self.cleaned_data["lines"].replace("\r\n", "\n").split("\n")
        return {number: line for number, line in enumerate(lines, 1) if line.strip()}
