"""The text of a search and its terms."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.reading.search.grammar import MOST_TERMS, Bound, Key, Term, label, label_term, lone_id, parse, quoted
from taskstore.errors import InvalidInput
from taskstore.types.tasks import State

pytestmark = pytest.mark.once

HOUR_MS = 3_600_000


def problems(text):
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert set(refused.value.fields) == {"q"}
    return refused.value.fields["q"]


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("17", Term(key=Key.ID, value=17)),
        ("id:17", Term(key=Key.ID, value=17)),
        ("-17", Term(key=Key.ID, value=17, is_excluded=True)),
        ("group:mail", Term(key=Key.GROUP, value="mail")),
        ("group:pay/*", Term(key=Key.GROUP, value="pay/*")),
        ('group:"a b"', Term(key=Key.GROUP, value="a b")),
        ("state:failed", Term(key=Key.STATE, value=State.FAILED)),
        ("state:Ready", Term(key=Key.STATE, value=State.READY)),
        ("owner:-5", Term(key=Key.OWNER, value=-5)),
        ("owner:ann", Term(key=Key.OWNER, value="ann")),
        (r'error:"say \"no\" \\ never"', Term(key=Key.ERROR, value=r'say "no" \ never')),
        ("error:a:b", Term(key=Key.ERROR, value="a:b")),
        ("label.tier:gold", Term(key=Key.LABEL, name="tier", value="gold")),
        ('label."a: b":c', Term(key=Key.LABEL, name="a: b", value="c")),
        ("label.shop.example/tier:a:b", Term(key=Key.LABEL, name="shop.example/tier", value="a:b")),
        ('label."":""', Term(key=Key.LABEL, name="", value="")),
        ("label:tier", Term(key=Key.LABEL, name="tier", value=None)),
        ("-label:tier", Term(key=Key.LABEL, name="tier", value=None, is_excluded=True)),
        ("data:hello", Term(key=Key.DATA, value="hello")),
        ("data.user.id:42", Term(key=Key.DATA, name="user.id", value="42")),
        ("-data:hello", Term(key=Key.DATA, value="hello", is_excluded=True)),
        ("age:>1h", Term(key=Key.AGE, value=Bound(ms=HOUR_MS, is_upper=False))),
        ("age:<90min", Term(key=Key.AGE, value=Bound(ms=HOUR_MS * 3 // 2, is_upper=True))),
        ("available:<now", Term(key=Key.AVAILABLE, value=Bound(ms=0, is_upper=True, is_relative=True))),
        ("available:>now+1h", Term(key=Key.AVAILABLE, value=Bound(ms=HOUR_MS, is_upper=False, is_relative=True))),
        ("available:<now-1h", Term(key=Key.AVAILABLE, value=Bound(ms=-HOUR_MS, is_upper=True, is_relative=True))),
        ("available:<1970-01-01T01:00", Term(key=Key.AVAILABLE, value=Bound(ms=HOUR_MS, is_upper=True))),
        ("available:>1970-01-02", Term(key=Key.AVAILABLE, value=Bound(ms=24 * HOUR_MS, is_upper=False))),
        ("available:>1970-01-01T02:00+01:00", Term(key=Key.AVAILABLE, value=Bound(ms=HOUR_MS, is_upper=False))),
    ],
)
def test_a_term(text, term):
    assert parse(text) == [term]


@pytest.mark.parametrize(("text", "number"), [("48 201 883", 48_201_883), ("7", 7), ("7 group:a", None), ("-7", None)])
def test_an_id_alone_leads_to_a_task(text, number):
    assert lone_id(parse(text)) == number


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("timeout", "specify where to search: error:timeout, data:timeout or group:timeout"),
        (
            "colour:red",
            "colour is not a search key; use one of id, group, state, owner, error, label, data, age, available",
        ),
        ("group.x:red", "use one of id, group"),
        ("grup:mail", "grup is not a search key; did you mean group?"),
        ("Group:mail", "Group is not a search key; did you mean group?"),
        ("state:redy", "one of ready, claimed, expired, scheduled, retrying, failed, finished"),
        ("error:", "must be part of the error; * matches any text"),
        ('group:""', "must be a name, or a prefix followed by *"),
        ("age:", "must be > or < and a time span, as in >1h or <10min"),
        ("available:", "must be < or > and a time, as in <now, >now+1h or <2026-01-31T12:00"),
        ("label:", "must be label.NAME:VALUE, or label:NAME for any value"),
        ("label.tier:", "must be label.NAME:VALUE"),
        ("label.:x", "must be label.NAME:VALUE"),
        ("label.tier:" + "x" * 256, "at most 255 characters"),
        ("data.:x", "must be data:TEXT, or data.PATH:VALUE in JSON"),
        ("id:x", "must be an integer between 1 and 9223372036854775807"),
        ("0", "must be an integer between 1 and"),
        ("99999999999999999999", "must be an integer between 1 and"),
        ("age:5", "must begin with > for older or < for newer, as in age:>1h or age:<10min"),
        ('age:">1 year"', 'must be a number and one of ms, s, min, h, d, w, as in age:>1h, not "1 year"'),
        ("age:>", 'must be a number and one of ms, s, min, h, d, w, as in age:>1h, not ""'),
        ("available:now", "must begin with < for before or > for after, as in available:<now"),
        ("available:<2026-13-01", 'or a UTC date or time such as 2026-01-31T12:00, not "2026-13-01"'),
        ("available:<now*1h", 'not "now*1h"'),
        ('error:"timed out', "a quotation mark is not closed"),
        ("x" * 1_001, "a search can have at most 1000 characters, not 1001"),
        (" ".join(["state:ready"] * (MOST_TERMS + 1)), "at most 20 terms, not 21"),
        ("error:\0", "the NUL character"),
        ("error:\ud800", "lone surrogates"),
        ("group:" + "x" * 300, "at most 255 characters"),
    ],
)
def test_what_makes_no_sense_is_named_with_what_would(text, told):
    assert any(told in problem for problem in problems(text))


def test_every_mistake_is_named():
    assert len(problems("state:redy timeout age:1h group:mail")) == 3


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_whatever_is_quoted_is_meant_as_it_is(value):
    text = f"error:{quoted(value)}"
    if len(text) <= 1_000 and text.encode(errors="replace").decode() == text:
        assert parse(text) == [Term(key=Key.ERROR, value=value)]


LABEL_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)


@given(LABEL_TEXTS, LABEL_TEXTS)
def test_whatever_a_label_is_its_term_finds_it(name, value):
    assert parse(label_term(name, value)) == [Term(key=Key.LABEL, name=name, value=value)]
    assert parse(label_term(name)) == [Term(key=Key.LABEL, name=name, value=None)]
    assert label(label_term(name, value).removeprefix("label."), "label") == (name, value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tier:gold", ("tier", "gold")),
        ("tier", ("tier", None)),
        ("my tier: a b", ("my tier", " a b")),
        ('"a:b":c', ("a:b", "c")),
    ],
)
def test_a_label_has_a_field_of_its_own(text, found):
    assert label(text, "label") == found


@pytest.mark.parametrize("text", ["", ":", "tier:", ":gold", 'ti"er', 'tier:"gold', "a\0b", "x" * 256])
def test_a_field_that_names_no_label_is_named(text):
    with pytest.raises(InvalidInput) as refused:
        label(text, "label")
    assert set(refused.value.fields) == {"label"}


@given(st.text(alphabet='abc:.-*"\\<>0123456789 \n', max_size=60) | st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    with suppress(InvalidInput):
        assert all(isinstance(term, Term) for term in parse(text))
