"""Fields of forms: their texts become numbers, labels and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms

from taskstore.errors import InvalidInput
from taskstore.types.scalars import INT64_MAX
from taskstore.types.sentences import why_no_json

from . import parameters


class TellingForm(forms.Form):
    """A form that shows what the store refuses at the field that it is about."""

    places: Mapping[str, str] = {}  # The fields, by the names that the store has for them.

    def tell(self, refused: InvalidInput) -> None:
        for path, texts in refused.fields.items():
            place = re.sub(r"^adds\[0\]\.", "", path)
            short = place.partition(".")[0]
            field = self.places.get(place) or self.places.get(short) or short
            is_seen = field in self.fields and not self[field].is_hidden
            self.add_error(field if is_seen else None, forms.ValidationError(list(texts)))


class WholeNumber(forms.CharField):
    """A whole number between `least` and `most`; None for an empty field that is not required."""

    def __init__(self, *, least: int = 0, most: int = INT64_MAX, **more: Any) -> None:
        super().__init__(**more)
        self._limits = {"least": least, "most": most}

    def clean(self, value: Any) -> int | None:
        text = super().clean(value).strip()
        try:
            return parameters.whole_number("number", text, **self._limits) if text else None
        except InvalidInput as wrong:
            raise forms.ValidationError(wrong.fields["number"]) from None


class Json(forms.CharField):
    """JSON of one type. `right`: what an error asks for. `empty`: the text that an empty field stands for."""

    def __init__(self, kind: type[Any], right: str, *, empty: str = "", **more: Any) -> None:
        super().__init__(**{"widget": forms.Textarea({"rows": 2}), "required": not empty, **more})
        self._kind, self._right, self._empty = kind, right, empty

    def clean(self, value: Any) -> Any:
        text = super().clean(value) or self._empty
        try:
            found = json.loads(text)
        except RecursionError:
            raise forms.ValidationError(f"{self._right}, and not be nested this deeply") from None
        except ValueError as problem:
            raise forms.ValidationError(f"{self._right}, but can't be parsed: {problem}") from None
        if type(found) is not self._kind:
            raise forms.ValidationError(self._right)
        if why := why_no_json(found):
            raise forms.ValidationError(why)
        return found
