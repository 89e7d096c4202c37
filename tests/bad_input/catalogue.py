"""Reads the catalogue: tables of what nobody should send."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
STEP = re.compile(r"([^.\[\]]*)(?:\[(\d+)\])?")


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A request, and what has to come of it."""

    method: str
    path: str
    body: Any = b""  # Bytes as they are; a value becomes JSON once the ids in it are known.
    headers: dict[str, str] = field(default_factory=dict)
    who: str = "operator"
    status: int = 400
    names: list[str] | None = None
    refused: list[str] | None = None


Case = tuple[str, list[Bad]]  # What is bad, and the requests in which it is.


def bodies() -> Iterator[Case]:
    for entry in table("bodies")["texts"]:
        body = bytes.fromhex(entry["hex"]) if "hex" in entry else text_of(entry).encode()
        yield entry["it"], [Bad(method="POST", path=path, body=body) for path in ("/update", "/claim", "/tasks")]


def text_of(entry: dict[str, Any]) -> str:
    return str(entry["text"]) if "text" in entry else entry["repeat"] * int(entry["times"])


def fields() -> Iterator[Case]:
    catalogue = table("fields")
    for request in catalogue["requests"]:
        for path, kinds in request["fields"].items():
            values = [value for kind in kinds for value in catalogue["values"][kind]]
            yield f"{request['path']} {path}", [bad_field(request, path, value) for value in values]


def bad_field(request: dict[str, Any], path: str, value: Any) -> Bad:
    body = with_value(request["good"], path, value)
    return Bad(method="POST", path=request["path"], body=body, names=[path or "body"])


def requests() -> Iterator[Case]:
    for name in ("requests", "looking", "operating", "access"):
        for entry in table(name)["requests"]:
            yield entry.pop("it"), [request_of(entry)]
    for entry in table("commands")["requests"]:
        yield entry.pop("it"), [request_of({"as": "submitter", **entry})]


def request_of(entry: dict[str, Any]) -> Bad:
    """An entry says its method and path as `"post": "/update"`; a long path ends with `then`."""
    for method in ("get", "post", "put", "delete", "brew"):
        if path := entry.pop(method, ""):
            entry["method"], entry["path"] = method.upper(), path + expanded(entry.pop("then", ""), {})
    if "hex" in entry:
        entry["body"] = bytes.fromhex(entry.pop("hex"))
    elif "text" in entry:
        entry["body"] = expanded(entry.pop("text"), {}).encode()
    headers = expanded(entry.pop("headers", {}), {})
    return Bad(who=entry.pop("as", "operator"), headers=headers, **entry)


def table(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def with_value(tree: Any, path: str, value: Any) -> Any:
    """The tree with another value at `adds[0].labels.to`; the empty path is a member without a name."""
    changed = json.loads(json.dumps(tree))
    *steps, last = steps_of(path)
    inner = changed
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return changed


def steps_of(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for part in path.split("."):
        name, place = STEP.fullmatch(part).groups()  # type: ignore[union-attr]
        steps += [name] if place is None else [name, int(place)]
    return steps


def expanded(value: Any, ids: dict[str, int]) -> Any:
    """The value with ids in the place of their names, and repetitions written out."""
    match value:
        case str():
            return ids.get(value, value)
        case list():
            return [expanded(part, ids) for part in value]
        case {"$repeat": [repeated, times]}:
            return expanded(repeated, ids) * times
        case {"$bytes": text, "times": times}:
            return bytes.fromhex(text) * times
        case dict():
            return {name: expanded(part, ids) for name, part in value.items()}
    return value
