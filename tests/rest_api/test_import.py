"""Tasks out of NDJSON: all of them, or none and what is wrong with which line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.core.operations import TaskRecord
from tasks_app.models import Task
from tasks_app.reading import importing
from taskstore.errors import InvalidInput
from taskstore.types.scalars import INT64_MAX, LATEST_MS
from tests.console.store import one_of_each_state

from .api import answered


def send(api, body, status=200, path="/import", **headers):
    response = api.http.generic("POST", path, body, "application/x-ndjson", headers=headers)
    answer = answered(response)
    assert answer[0] == status, answer
    return answer[1]


def lines(*tasks):
    return "\n".join(json.dumps(task) for task in tasks)


def facts(task):
    return {name: value for name, value in task.items() if name not in ("id", "ownerid", "origin", "claims", "created")}


@pytest.mark.django_db
def test_what_was_exported_can_be_imported_as_it_is(api):
    one_of_each_state()
    api.add(data_base64="/w==", data_type="t/T", labels={"a": "ü"}, priority=7)
    exported = api.http.get("/export").getvalue()
    send(api, exported)
    before, after = exported.splitlines(), api.http.get("/export").getvalue().splitlines()
    assert len(after) == 2 * len(before)
    added = after[: len(before)]  # The newest come first, and so they were exported.
    assert [facts(json.loads(line)) for line in reversed(added)] == [facts(json.loads(line)) for line in before]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("line", "path", "told"),
    [
        ('{"group": "mail", "priority": 101}', "line 2: priority", "must be between -100 and 100, not 101"),
        (
            '{"group": "mail", "priority": "high"}',
            "line 2: priority",
            "must be an integer between -100 and 100, not a string",
        ),
        ('{"group": "mail", "colour": "red"}', "line 2: colour", "is not a known field; use one of data, data_base64"),
        (
            '{"group": "mail", "data": "a", "data_base64": ""}',
            "line 2: data_base64",
            "must not be given together with data",
        ),
        ('{"group": "mail", "data": "\\ud800"}', "line 2: data", "must be valid UTF-8 text"),
        ('{"group": "mail", "error": "\\u0000"}', "line 2: error", "must not contain the NUL character"),
        ('{"data": "a"}', "line 2: group", "must not be empty"),
        (f'{{"group": "{"x" * 256}"}}', "line 2: group", "must have at most 255 characters, not 256"),
        ('{"group": "mail"', "line 2", "must be valid JSON: Expecting ',' delimiter at column 17"),
        ('{"group": "mail", "group": "mail"}', "line 2", 'must not repeat a key: "group" occurs twice in an object'),
        ('[{"group": "mail"}]', "line 2", "must be an object, such as"),
    ],
)
def test_the_wrong_line_is_named_and_nothing_is_added(api, line, path, told):
    answer = send(api, f'{{"group": "mail"}}\n{line}\n{{"group": "mail"}}', 400)
    assert list(answer["errors"]) == [path]
    assert answer["errors"][path][0].startswith(told)
    assert answer["detail"].startswith(f"{path}: ")
    assert not Task.objects.exists()


@pytest.mark.django_db
def test_it_names_twenty_wrong_lines_and_every_field_of_them(api):
    answer = send(api, lines(*[{"group": "", "priority": 1_000}] * 30), 400)
    assert len(answer["errors"]) == 40
    assert "line 20: priority" in answer["errors"]
    assert "line 21: priority" not in answer["errors"]


@pytest.mark.django_db
def test_it_takes_as_many_as_a_commit_and_no_more(api, settings):
    settings.TASKSTORE_MAX_CHANGES = 3
    answer = send(api, lines(*[{"group": "mail"}] * 4), 413)
    assert answer["errors"] == {"lines": ["must have at most 3 tasks, not 4"]}
    assert send(api, lines(*[{"group": "mail"}] * 3))["imported"] == 3


@pytest.mark.django_db
def test_limits_of_bodies_and_data_hold(api, settings):
    settings.TASKSTORE_MAX_DATA_BYTES = 3
    answer = send(api, lines({"group": "mail", "data": "long"}), 400)
    assert answer["errors"] == {"line 1: data": ["must have at most 3 bytes, not 4"]}
    settings.TASKSTORE_MAX_REQUEST_BYTES = 10
    send(api, lines({"group": "mail"}), 413)
    assert send(api, "\n \n", 400)["errors"] == {"lines": ["must have at least one task, one per line"]}


@pytest.mark.django_db
def test_it_can_be_sent_again_with_a_key(api):
    body = lines({"group": "mail"})
    first, second = (send(api, body, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert first == second
    assert Task.objects.count() == 1
    send(api, lines({"group": "reports"}), 409, **{"Idempotency-Key": "k"})


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
TASKS = st.builds(
    TaskRecord,
    id=st.integers(1, INT64_MAX),
    group=TEXTS.filter(bool),
    data=st.binary(max_size=50),
    data_type=TEXTS,
    available_at_ms=st.integers(1, LATEST_MS),
    owner=st.integers(-INT64_MAX, INT64_MAX),
    error=TEXTS,
    labels=st.dictionaries(TEXTS, TEXTS, max_size=3),
    priority=st.integers(-100, 100),
    origin=st.integers(1, INT64_MAX),
    claims=st.integers(0, 2**31),
    leased_since_ms=st.just(0),
    created_at_ms=st.integers(1, LATEST_MS),
    made_at_ms=st.just(0),
    made_by_commit=st.just(0),
    payload=st.just(0),
    unique=st.just(""),
)
# Texts that are nearly a file: pieces of JSON and of lines, in any order.
NEARLY = st.lists(
    st.sampled_from(['{"group": "mail"', "}", "\n", "\r\n", '"priority"', ":", ",", "1e999", "-7", "null", '"\\ud800"'])
    | st.text(max_size=3)
).map("".join)


@pytest.mark.once
@given(st.binary() | NEARLY.map(lambda text: text.encode(errors="surrogatepass")))
def test_whatever_is_sent_is_read_or_refused_by_lines(body):
    tasks, wrong = outcome(body)
    assert tasks == sum(bool(line.strip()) for line in body.split(b"\n")) if not wrong else not tasks
    assert all(path == "lines" or path.startswith("line ") for path in wrong)


def outcome(body):
    """How many tasks were read, and what is wrong."""
    try:
        return len(importing.read(body)), []
    except InvalidInput as refused:
        return 0, [*refused.fields]
