"""One contestant on one kind of work, with real processes: Covey itself on a file, and a queue that is played."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import compare, contest, contestants, plots, table
from benchmarks.contestants import COVEY, PEERS
from benchmarks.stores import Files

from . import made_up, played
from .made_up import TINY

JOBS = 30


def test_a_tiny_contest_of_covey_on_a_file_ends_as_figures_a_page_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From real pools and workers to the page; beside Covey a queue whose single worker ends at once."""
    monkeypatch.setitem(PEERS, "sqlite", {"played": played.Entry("alone")})
    file = tmp_path / "figures.json"
    compare.Race("sqlite", [COVEY, "played"], compare.Book(file, quick=True, keep=False), TINY).run()

    book = compare.Book(file, quick=True, keep=True).all
    (ours,) = book["results"]["sqlite"][COVEY]["rounds"]
    assert "failed" not in ours
    assert {measure.key for measure in table.MEASURES} <= ours.keys()
    assert all(ours[key] > 0 for key in ("one", "many", "p50", "p99", "start", "memory"))
    assert not {"twice1", "twice2"} & ours.keys()
    assert book["results"]["sqlite"][COVEY]["backlog"].keys() == {"20", "40"}
    assert book["results"]["sqlite"][COVEY]["about"]["versions"].keys() == {"covey", "apsw"}

    page = table.markdown(book)
    shown = made_up.cells(page, "sqlite")
    assert all(shown[COVEY, measure.title].figure != "–" for measure in table.MEASURES)
    assert shown["played", "drain, 1 worker"].figure == "–"
    assert [title for (name, title), cell in shown.items() if name == "played" and not cell.ratio] == [
        "drain, 1 worker"
    ]
    assert "- played: drain, 1 worker **failed** in 1 of 1 rounds: a worker ended: the worker has no ears\n" in page
    assert made_up.bold(page) == made_up.explained(page).keys()

    plots.write(tmp_path / "plots", book)
    assert "played" in (tmp_path / "plots" / "drain-sqlite.svg").read_text()


def test_a_drain_counts_jobs_that_ran_twice() -> None:
    _, twice = contest.drain(played.contestant("twice"), Files(), 2, JOBS, 20.0)
    assert twice == JOBS
    _, twice = contest.drain(played.contestant(), Files(), 2, JOBS, 20.0)
    assert twice == 0


def test_a_round_says_how_many_ran_twice() -> None:
    found = contest._drain(played.contestant("twice"), Files(), 1, replace(TINY, drain=JOBS, drain_s=20.0))
    assert found["twice1"] == JOBS


def test_covey_runs_no_job_of_a_drain_twice() -> None:
    _, twice = contest.drain(contestants.covey(), Files(), 2, JOBS, 20.0)
    assert twice == 0


@pytest.mark.parametrize(
    ("variant", "failed"),
    [
        ("deaf", {"drain1", "drain2", "session"}),
        ("refuses", {"enqueue", "session"}),
    ],
)
def test_a_contestant_that_fails_in_some_measures_keeps_the_others(variant: str, failed: set[str]) -> None:
    found = contest.measures(played.contestant(variant), Files(), TINY)
    assert found["failed"].keys() == failed
    why = "not today, and not tomorrow" if variant == "refuses" else "a worker ended: the worker has no ears"
    assert all(why in each for each in found["failed"].values())
    assert ("one" in found) == ("enqueue" not in failed)
    assert ("drain2" in found) == ("drain2" not in failed)


def test_a_backlog_that_cannot_be_drained_says_where_it_stopped_and_why() -> None:
    found = contest.backlog(played.contestant("deaf"), Files(), TINY)
    assert found == {"backlog": {}, "stopped": {"at": 20, "why": "a worker ended: the worker has no ears"}}


def test_a_queue_without_a_call_for_bulk_has_no_figure_for_it_and_has_not_failed() -> None:
    found = contest._enqueue(played.contestant("single"), Files(), TINY)
    assert found["one"] > 0
    assert found["many"] is None


def test_an_interpreter_that_is_gone_fails_by_name(tmp_path: Path) -> None:
    found = contest.measures(contest.Contestant("huey", tmp_path / "python"), Files(), TINY)
    assert found["failed"].keys() == {"enqueue", "drain1", "drain2", "session"}
    assert all("No such file" in why for why in found["failed"].values())
