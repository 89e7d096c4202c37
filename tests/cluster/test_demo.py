"""What the demo counts, from a history that is made up."""

from types import SimpleNamespace

import pytest

from lab.chaos.history import Event, History, Truth
from lab.chaos.outcome import Violation
from lab.cluster.demo import QUICK, Observed, Window, report
from lab.cluster.faults import PRIMARY, Happened
from lab.cluster.nodes import Cluster
from lab.management.commands import cluster as command

pytestmark = pytest.mark.once


def answered(at_s, *, path="/update", status=200, error=None):
    """The deletion of a task, unless it is a claim that found nothing."""
    return Event(
        client=1,
        path=path,
        body={"group": "mail"} if path == "/claim" else {"deletes": [int(at_s * 10)]},
        sent_s=at_s - 0.1,
        received_s=at_s,
        sent_ms=0,
        received_ms=0,
        status=status,
        answer={"tasks": [], "error": error},
    )


def observed(*events, faults=(), windows=()):
    return Observed(windows, faults, History(events, Truth(living={}, ended={})))


def killed(began_s, ended_s):
    return Happened(fault=PRIMARY, began_s=began_s, ended_s=ended_s)


def test_only_what_changed_something_counts_as_acknowledged():
    refused, unavailable = answered(2.0, error={"deletes": [20]}), answered(4.0, status=503)
    seen = observed(answered(1.0), refused, answered(3.0, path="/claim"), unavailable, answered(5.0))
    assert seen.acknowledged_s == [1.0, 5.0]


def test_a_gap_reaches_from_before_the_kill_until_after_all_is_there_again():
    seen = observed(*(answered(at_s) for at_s in (1.0, 2.0, 9.0, 9.5, 20.0)))
    assert seen.gap_s(killed(3.0, 9.2)) == 7.0
    assert seen.gap_s(killed(3.0, 10.0)) == 10.5


def test_a_gap_that_never_ends_lasts_until_the_clients_do():
    seen = observed(*map(answered, (1.0, 2.0)), *(answered(at_s, status=503) for at_s in (30.0, 60.0)))
    assert seen.gap_s(killed(3.0, 10.0)) == 58.0
    assert seen.gap_s(killed(20.0, 25.0)) == 58.0


def test_a_gap_elsewhere_does_not_count():
    seen = observed(*(answered(at_s) for at_s in (1.0, 50.0, 51.0, 52.0, 99.0)))
    assert seen.gap_s(killed(50.5, 51.5)) == 1.0


def test_changes_are_counted_within_their_time():
    seen = observed(*(answered(at_s) for at_s in (1.0, 2.0, 3.0, 4.0)))
    assert seen.changes(Window(nodes=1, began_s=2.0, ended_s=4.0, wal_bytes=0)) == 2


def test_the_report_names_the_gap_and_says_where_its_goal_is_missed():
    windows = [Window(nodes=1, began_s=0.0, ended_s=2.0, wal_bytes=5_000)]
    seen = observed(*map(answered, (0.5, 1.0, 1.5, 60.0)), faults=[killed(2.0, 61.0)], windows=windows)
    lines = report(seen, {"Machine": "small"}).splitlines()
    assert lines[0] == "* Machine: small"
    [gap] = [line for line in lines if line.startswith("| primary")]
    assert [cell.strip() for cell in gap.split("|")[2:-1]] == ["58.5", "30", "NO", "59.0"]
    [rate] = [line for line in lines if line.startswith("| 1 ")]
    assert [cell.strip() for cell in rate.split("|")[2:-1]] == ["2", "1 667"]


@pytest.mark.parametrize(("violations", "code"), [([Violation(text="task 5 is lost")], command.VIOLATED), ([], 0)])
def test_after_a_violation_the_logs_are_kept(monkeypatch, tmp_path, capsys, violations, code):
    class NotStarted(Cluster):
        def __init__(self):
            self.folder = tmp_path / "cluster"

        def start(self):
            """Leave the logs of an earlier run."""

    logs = {"haproxy/log": "a", "node.log": "b", "clients/1": "c", "db1/data/log/today": "d"}
    for name, text in logs.items():
        file = tmp_path / "cluster" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    seen = SimpleNamespace(outcome=SimpleNamespace(violations=violations))
    monkeypatch.setattr(command, "play", lambda *_: seen)
    monkeypatch.setattr(command, "report", lambda *_: "report")
    monkeypatch.setattr(command, "conditions_of", lambda _: {})
    assert command.Command().demo(NotStarted(), QUICK, "7", None, command.Progress(), keep=False) == code
    kept = {
        str(file.relative_to(folder)): file.read_text()
        for folder in tmp_path.glob("taskstore-cluster-logs-*")
        for file in folder.rglob("*")
        if file.is_file()
    }
    assert kept == (logs if violations else {})
    assert ("The logs of all programs are kept in" in capsys.readouterr().out) == bool(violations)
