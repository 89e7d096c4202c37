"""Which groups a scope allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.core.operations import EVERY_GROUP, GroupScope

pytestmark = pytest.mark.once

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
