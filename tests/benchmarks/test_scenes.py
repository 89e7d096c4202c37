"""What can be chosen to be measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.benchmarks.clients.__main__ import CLIENTS
from lab.benchmarks.goals import GOALS
from lab.benchmarks.pace import FULL
from lab.benchmarks.report import page
from lab.benchmarks.run import _turns
from lab.benchmarks.scenes import chosen, names, scenes
from lab.benchmarks.workers import PROGRAMS

pytestmark = pytest.mark.once

ALL = scenes(FULL)
ELSEWHERE = Path("/srv/before")
BOTH = scenes(FULL, ELSEWHERE)


def contenders_of(scene):
    return {entry.contender.name for entry in scene.entries}


def test_everything_is_measured_where_nothing_is_named():
    assert chosen(ALL, []) == ALL


def test_a_scene_is_chosen_by_its_name():
    [scene] = chosen(ALL, ["cycles"])
    assert scene in ALL
    assert scene.name == "cycles"


def test_all_scenes_of_a_stage_are_chosen_by_its_name():
    found = [scene.name for scene in chosen(ALL, ["goals"])]
    assert found == ["peers-psycopg", "steady", "keys", "batches", "waiters"]


def test_servers_of_another_checkout_are_measured_in_turn_with_ours():
    for scene in chosen(BOTH, ["goals"]):
        entries = [entry for entry in scene.entries if entry.contender.server]
        for ours, before in zip(entries[::2], entries[1::2], strict=True):
            assert before == replace(ours, contender=ours.contender.before(ELSEWHERE))


def test_contenders_are_chosen_in_every_scene_that_has_them():
    found = chosen(ALL, ["writer-sqlite"])
    assert [scene.name for scene in found] == ["cycles", "durability", "many", "endurance", "wakeups"]
    assert all(contenders_of(scene) == {"writer-sqlite"} for scene in found)


def test_several_contenders_have_a_name_in_common():
    [scene] = chosen(ALL, ["cycles", "grpc", "psycopg"])
    assert contenders_of(scene) == {"grpc-uvicorn", "grpc-daphne", "psycopg"}


def test_what_does_not_go_together_leaves_nothing():
    assert chosen(ALL, ["waiters", "oban"]) == []


def test_a_name_means_one_thing_only():
    scene_names = [scene.name for scene in ALL]
    contenders = {entry.contender for scene in ALL for entry in scene.entries}
    assert not {*scene_names} & {name for one in contenders for name in (one.name, one.kind)}
    assert len(names(ALL)) == len({*names(ALL)})


def test_every_contender_has_a_client():
    contenders = {entry.contender for scene in ALL for entry in scene.entries}
    assert {one.client_name for one in contenders if not one.program} == {*CLIENTS}
    modules = {one.program.module for one in contenders if one.program}
    assert {f"{name}.py" for name in modules if name} < {file.name for file in PROGRAMS.iterdir()}


def test_workers_are_measured_in_turn_whatever_they_have_at_a_time():
    [scene] = chosen(ALL, ["workers"])
    entries = list(_turns(scene, replace(FULL, rounds=2)))
    assert entries == [*scene.entries, *scene.entries]


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.text)
def test_a_goal_is_about_what_is_measured(goal):
    def look(scene_name, entry_name, figure):
        [scene] = [scene for scene in BOTH if scene.name == scene_name]
        assert entry_name in {entry.name for entry in scene.entries}
        assert figure in {column.figure for column in scene.columns}
        return 1.0

    assert goal.value(look) in (0.0, 1.0)


def test_no_two_lines_of_a_scene_look_alike():
    for scene in BOTH:
        found = [entry.name for entry in scene.entries]
        assert len(found) == len({*found})


@pytest.mark.parametrize(
    ("parts", "told", "untold"),
    [
        (["open"], "The console shows", "Contenders were"),
        (["goals"], "Its processor time is", "The console shows"),
        (["cycles"], "Contenders were", "The console shows"),
        (["workers"], "Workers were started", "Contenders were"),
    ],
)
def test_a_report_says_how_its_scenes_were_measured(parts, told, untold):
    text = page("bench", chosen(ALL, parts), "figures")
    assert told in text
    assert untold not in text
