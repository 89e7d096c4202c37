"""What is shown of a table where the terminal is narrow."""

import io

import pytest
from rich.console import Console

from taskstore.cli.tables import Column, table

pytestmark = pytest.mark.once

COLUMNS = (
    Column(title="group", is_long=True, is_folded=True),
    Column(title="worker", is_spare=True),
    Column(title="error", is_long=True),
)
ROWS = [("jobs/default/failed", "ann", "x" * 40), ("jobs/default/succeeded", "", "")]


def shown(width):
    output = io.StringIO()
    Console(file=output, width=width).print(table(COLUMNS, ROWS))
    return [line.split() for line in output.getvalue().splitlines()]


def test_all_of_it_is_shown_where_there_is_room():
    assert shown(100) == [["group", "worker", "error"], ["jobs/default/failed", "ann", "x" * 40], [ROWS[1][0]]]


def test_what_can_be_spared_is_left_out_where_there_is_none():
    assert shown(60)[0] == ["group", "error"]


def test_the_end_of_a_long_group_is_not_cut():
    lines = shown(30)
    assert [line[0] for line in lines] == ["group", "jobs/default/", "failed", "jobs/default/", "succeeded"]
    assert lines[1][1].endswith("x…")
