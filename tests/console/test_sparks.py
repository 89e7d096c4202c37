"""Lines that show where numbers have been going."""

import pytest

from tasks_app.console.group_table import points_of

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("numbers", "points"),
    [
        ([], ""),
        ([5], ""),
        ([0, 0], "0,20 1,20"),
        ([0, 5, 10], "0,20 1,10 2,0"),
        ([7, 7], "0,0 1,0"),
        ([1, 3], "0,13.3 1,0"),
    ],
)
def test_the_largest_is_at_the_top_and_nothing_at_the_bottom(numbers, points):
    assert points_of(numbers) == points
