"""Values that the store does not take, each named by its field."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tasks_app.core import validation
from tasks_app.core.operations import EVERY_GROUP, Claim, Commit, GroupScope, Query, Update
from tasks_app.core.validation import validate
from taskstore.errors import InvalidInput, LimitExceeded
from taskstore.types import sentences
from taskstore.types.scalars import LATEST_MS, Limits
from taskstore.types.tasks import FAILED_FROM, FIELDS, Change, Kept, NewTask

pytestmark = pytest.mark.once

ANN = 7
SMALL = Limits(data_bytes=4, changes=4, labels=2, error_length=4)
ADD = NewTask(group="mail")
CHANGE = Change(id=1)
CLAIM = Claim(groups=("mail",), owner=ANN)


def fields_refused(operation, limits=Limits()):  # noqa: B008 - frozen.
    """The names of the fields that are refused; none when the operation is taken."""
    try:
        validate(operation, limits)
    except InvalidInput as refused:
        return list(refused.fields)
    return []


def commit(**asked):
    return Commit(**{"owner": ANN, **asked})


@pytest.mark.parametrize(
    "operation",
    [
        commit(),
        commit(adds=(ADD,), updates=(CHANGE,), deletes=(2,), depends=(3, 4)),
        commit(owner=-(2**63), deletes=(2**63 - 1, -(2**63), 0)),
        commit(adds=(replace(ADD, group="é/% \t\u202e" + "x" * 248),)),
        commit(adds=(replace(ADD, timespec_ms=LATEST_MS, priority=100, data=b"\0\xff"),)),
        commit(updates=(replace(CHANGE, timespec_ms=-(LATEST_MS // 2), priority=-100, labels={"": ""}),)),
        # The rules say what makes no sense: as a refusal, together with all other reasons.
        commit(adds=(replace(ADD, group=""),), deletes=(1, 1)),
        structs.replace(CLAIM, duration_ms=-5, limit=1_000, depends=(1, 1)),
        structs.replace(CLAIM, duration_ms=LATEST_MS // 2),
        # In MassTasker's words: no name, no end of the wait.
        Query(groups=("",), wait_ms=10**12, at_ms=LATEST_MS),
        Update(adds=(replace(ADD, group=""),)),
    ],
)
def test_it_takes_what_is_at_the_edge(operation):
    assert fields_refused(operation) == []


@pytest.mark.parametrize(
    ("operation", "field"),
    [
        (commit(owner=2**63), "clientid"),
        (commit(owner=-(2**63) - 1), "clientid"),
        (commit(deletes=(1, 2**63)), "deletes[1]"),
        (commit(depends=(-(2**63) - 1,)), "depends[0]"),
        (commit(deletes=(1, float("nan"))), "deletes[1]"),
        (commit(updates=(CHANGE, replace(CHANGE, id=2**63))), "updates[1].id"),
        (commit(adds=(replace(ADD, group="x" * 256),)), "adds[0].group"),
        (commit(adds=(replace(ADD, group="a\0b"),)), "adds[0].group"),
        (commit(adds=(replace(ADD, group="a\ud800"),)), "adds[0].group"),
        (commit(adds=(replace(ADD, timespec_ms=LATEST_MS + 1),)), "adds[0].timespec"),
        (commit(adds=(replace(ADD, timespec_ms=-(LATEST_MS // 2) - 1),)), "adds[0].timespec"),
        (commit(adds=(replace(ADD, priority=101),)), "adds[0].priority"),
        (commit(adds=(replace(ADD, error="\0"),)), "adds[0].error"),
        (commit(adds=(replace(ADD, data_type="\udfff"),)), "adds[0].data_type"),
        (commit(adds=(replace(ADD, data_type="x" * 1_001),)), "adds[0].data_type"),
        (commit(adds=(replace(ADD, labels={"a\0": "x"}),)), "adds[0].labels"),
        (commit(adds=(replace(ADD, labels={"x" * 256: "x"}),)), "adds[0].labels"),
        (commit(adds=(replace(ADD, labels={"team": "\0"}),)), "adds[0].labels.team"),
        (commit(updates=(replace(CHANGE, priority=-101),)), "updates[0].priority"),
        (commit(updates=(replace(CHANGE, group=""),)), "updates[0].group"),
        (commit(updates=(replace(CHANGE, labels={"team": "x" * 256}),)), "updates[0].labels.team"),
        (structs.replace(CLAIM, owner=2**63), "clientid"),
        (structs.replace(CLAIM, groups=("",)), "group"),
        (structs.replace(CLAIM, groups=("a\0",)), "group"),
        (structs.replace(CLAIM, limit=0), "limit"),
        (structs.replace(CLAIM, limit=1_001), "limit"),
        (structs.replace(CLAIM, duration_ms=LATEST_MS // 2 + 1), "duration"),
        (structs.replace(CLAIM, duration_ms=-(2**63) - 1), "duration"),
        (structs.replace(CLAIM, depends=(2**63,)), "depends[0]"),
        (Query(groups=("a\0",)), "group"),
        (Query(groups=("mail",), at_ms=-1), "now"),
        (Query(groups=("mail",), at_ms=LATEST_MS + 1), "now"),
        (Query(groups=("mail",), at_ms=LATEST_MS, duration_ms=1), "duration"),
    ],
)
def test_it_names_the_field_that_is_wrong(operation, field):
    assert fields_refused(operation) == [field]


def test_it_names_every_field_that_is_wrong():
    wrong = commit(
        owner=2**63,
        adds=(replace(ADD, group="\0", priority=101),),
        updates=(replace(CHANGE, error="\0"),),
        deletes=(2**63,),
    )
    assert set(fields_refused(wrong)) == {
        "clientid", "deletes[0]", "adds[0].group", "adds[0].priority", "updates[0].error"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "field"),
    [
        (commit(adds=(ADD, ADD), updates=(CHANGE,), deletes=(2,), depends=(3,)), ""),
        (commit(adds=(replace(ADD, data=b"12345"),)), "adds[0].data"),
        (commit(updates=(replace(CHANGE, data=b"12345"),)), "updates[0].data"),
        (commit(adds=(replace(ADD, labels={"a": "", "b": "", "c": ""}),)), "adds[0].labels"),
        (commit(adds=(replace(ADD, error="12345"),)), "adds[0].error"),
        (structs.replace(CLAIM, depends=(1, 2, 3, 4, 5)), "depends"),
    ],
)
def test_it_names_the_limit_that_is_passed(operation, field):
    with pytest.raises(LimitExceeded) as refused:
        validate(operation, SMALL)
    assert list(refused.value.fields) == [field]
    assert any(str(limit) in refused.value.fields[field][0] for limit in (2, 4))


def test_what_is_wrong_and_too_much_is_not_called_too_much():
    with pytest.raises(InvalidInput) as refused:
        validate(commit(owner=2**63, adds=(replace(ADD, data=b"12345"),)), SMALL)
    assert not isinstance(refused.value, LimitExceeded)
    assert set(refused.value.fields) == {"clientid", "adds[0].data"}


def test_only_the_first_add_in_the_place_of_a_task_is_its_successor():
    add = NewTask(group="jobs/mail/failed", id=5, unique="once")
    with pytest.raises(InvalidInput) as refused:
        validate(commit(adds=(add, replace(add)), deletes=(5,)), Limits())
    assert list(refused.value.fields) == ["adds[1].unique"]


def edges(field):
    """Values of the field that are just right, and such that are just wrong, by what its type and the settings say."""
    kind, bounds = validation.kind_of(field.type)
    most = bounds.get("max_length") or getattr(Limits(), field.limit or "data_bytes")
    if kind is int:
        least, largest = bounds["ge"], bounds["le"]
        return [least, 0, largest], [least - 1, largest + 1]
    if kind is dict:
        names = {f"{number:0255}": "x" * 255 for number in range(most + 1)}
        several = dict(list(names.items())[1:])
        return [{}, {"": ""}, several], [names, {"x" * 256: ""}, {"a": "x" * 256}, {"\0": "a"}, {"a": "\ud800"}]
    sign = b"x" if kind is bytes else "x"
    wrong = [] if kind is bytes else ["a\0", "\ud800"]
    return [sign, sign * most], [sign * (most + 1), *wrong]


@pytest.mark.parametrize(
    "field", [field for field in FIELDS if field.kept is Kept.CONTENT or field.wire == "timespec"], ids=str
)
@pytest.mark.parametrize(("like", "path"), [(ADD, "adds[0]"), (CHANGE, "updates[0]")], ids=["add", "change"])
def test_the_checker_knows_the_limits_of_every_field(field, like, path, monkeypatch):
    right, wrong = edges(field)
    name = "timespec_ms" if field.wire == "timespec" else field.name

    def asked(value):
        item = replace(like, **{name: value})
        return commit(adds=(item,)) if like is ADD else commit(updates=(item,))

    for value in wrong:
        with pytest.raises((InvalidInput, LimitExceeded)) as refused:
            validate(asked(value), Limits())
        assert {each.removeprefix(f"{path}.").partition(".")[0] for each in refused.value.fields} == {field.wire}
    for value in right:
        validate(asked(value), Limits())
    # What is right passes the quick look: the careful one is asked only about what may be wrong.
    monkeypatch.setattr(validation, "_wrong_item", lambda *_: pytest.fail("looked twice"))
    for value in right:
        validate(asked(value), Limits())


def test_what_is_sent_of_the_label_of_the_rules_is_never_wrong():
    validate(commit(adds=(replace(ADD, labels={FAILED_FROM: "x" * 1_000}),)), Limits())


# ---- What is said about a wrong field, whichever way in it came


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (sentences.between(1, 1_000, 5_000), "must be between 1 and 1000, not 5000"),
        (sentences.between(1, 1_000, "5"), "must be an integer between 1 and 1000, not a string"),
        (sentences.between(1, 1_000, True), "must be an integer between 1 and 1000, not a boolean"),
        (sentences.between(1, 1_000, 1.0), "must be an integer between 1 and 1000, not a floating-point number"),
        (sentences.between(1, 1_000), "must be an integer between 1 and 1000"),
        (sentences.between(1, 1_000, 10**20), "must be between 1 and 1000"),
        (sentences.int64(2**63), "must be a 64-bit integer, not 9223372036854775808"),
        (sentences.int64([]), "must be a 64-bit integer, not a list"),
        (sentences.at_most(64, "labels", 65), "must have at most 64 labels, not 65"),
        (sentences.one_of(["random", "oldest"], "newest"), 'must be one of random, oldest, not "newest"'),
        (sentences.one_of(["random", "oldest"], "\ud800"), 'must be one of random, oldest, not "\\ud800"'),
        (sentences.one_of(["random", "oldest"], "x" * 99), "must be one of random, oldest"),
        (sentences.one_of(["random", "oldest"], {}), "must be one of random, oldest, not an object"),
        (sentences.unknown("field", ["reason"]), "is not a known field; use reason"),
        (sentences.unknown("field", ["ids", "reason"]), "is not a known field; use one of ids, reason"),
        (sentences.unknown("parameter", []), "is not a known parameter; none are allowed here"),
        (sentences.not_together("state", "q"), "must not be given together with state or q"),
    ],
)
def test_it_says_what_would_be_right(said, sentence):
    assert said == sentence


# ---- Which groups a scope allows


NAMES = st.text(alphabet="pay/rol*P", max_size=8)


@given(NAMES)
def test_without_patterns_it_allows_every_group(name):
    assert EVERY_GROUP.allows(name)


@given(NAMES)
def test_with_an_empty_list_of_patterns_it_allows_none(name):
    assert not GroupScope(()).allows(name)


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("pay", ["pay"], ["payroll", "pay/x", "Pay", "pa", "", "pay*"]),
        ("pay/*", ["pay/", "pay/x", "pay/x/y"], ["pay", "payroll", "PAY/x", "xpay/"]),
        ("pay*", ["pay", "payroll", "pay/x"], ["Pay", "pa"]),
        ("*", ["pay", "", "anything"], []),
        ("", [""], ["pay"]),
    ],
)
def test_a_pattern_allows_the_name_or_what_begins_like_it(pattern, allowed, refused):
    scope = GroupScope((pattern,))
    assert [name for name in allowed + refused if scope.allows(name)] == allowed
