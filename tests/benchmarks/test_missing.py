"""Who cannot be had, or fails, is named with the reason; nobody is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import compare, environments, table
from benchmarks.contestants import COVEY, PEERS
from benchmarks.environments import Missing

from . import made_up, played
from .made_up import TINY, UNBORN, WHY_UNBORN

# As pip and cargo have said it.
NO_CRATES = """\
  error: subprocess-exited-with-error
  × Preparing metadata (pyproject.toml) did not run successfully.
      Updating the index
      warning: spurious network error (1 try remaining): [6] Could not resolve hostname
      error: failed to get `parking_lot` as a dependency of package `honker-py v0.1.2`
      Caused by:
        [6] Could not resolve hostname (Could not resolve host: index)
"""
NO_VERSION = """\
WARNING: Retrying after connection broken
ERROR: Could not find a version that satisfies the requirement nobody (from versions: none)
ERROR: No matching distribution found for nobody
"""


def test_a_peer_that_cannot_be_installed_is_on_the_page_with_the_reason() -> None:
    results = {
        "sqlite": {
            COVEY: made_up.measured(one=[1.0]),
            "huey": {"rounds": [], "missing": "no such package"},
            "litequeue": made_up.measured(one=[2.0]),
        }
    }
    page = table.markdown(made_up.book(results))
    assert "- huey was **not measured**: no such package\n" in page
    assert {name for name, _ in made_up.cells(page, "sqlite")} == {COVEY, "litequeue"}


def test_a_whole_family_without_its_store_is_on_the_page_with_the_reason() -> None:
    missing = {name: {"rounds": [], "missing": "no server here"} for name in (COVEY, *PEERS["redis"])}
    page = table.markdown(made_up.book({"redis": missing}))
    for name in missing:
        assert f"- {name} was **not measured**: no server here\n" in page


def test_a_measure_that_failed_is_named_with_the_reason_beside_those_that_did_not() -> None:
    found = made_up.measured(one=[5.0, 6.0, 7.0], drain1=[10.0, None, None])
    found["rounds"][1]["failed"] = {"drain1": "stuck"}
    found["rounds"][2]["failed"] = {"drain1": "stuck again"}
    found["stopped"] = {"at": 100_000, "why": "too slow"}
    page = table.markdown(made_up.book({"sqlite": {COVEY: made_up.measured(one=[6.0] * 3), "huey": found}}))
    assert made_up.cells(page, "sqlite")["huey", "enqueue one"].figure == "6"
    assert "- huey: drain, 1 worker **failed** in 2 of 3 rounds: stuck again\n" in page
    assert "- huey: backlog of 100,000 not measured: too slow\n" in page


def test_a_failure_of_covey_is_named_like_any_other() -> None:
    ours = {"rounds": [{"one": 5.0, "failed": {"drain2": "the pool ended"}}]}
    page = table.markdown(made_up.book({"sqlite": {COVEY: ours, "huey": made_up.measured(one=[1.0], drain2=[9.0])}}))
    assert "- covey: drain, 2 workers **failed** in 1 of 1 rounds: the pool ended\n" in page


def test_the_round_in_which_most_jobs_ran_twice_is_told() -> None:
    found = made_up.measured(drain2=[5.0, 5.0, 5.0], twice2=[3, 12, None])
    page = table.markdown(made_up.book({"sqlite": {COVEY: made_up.measured(drain2=[5.0] * 3), "huey": found}}))
    assert "- huey: drain, 2 workers: up to 12 jobs **ran twice**\n" in page


def test_every_contestant_of_the_book_is_on_the_page_by_a_row_or_a_reason() -> None:
    book = made_up.whole()
    for results in book["results"].values():
        for name in list(results)[2::3]:
            results[name] = {"rounds": [], "missing": f"no {name} here"}
    page = table.markdown(book)
    for family, results in book["results"].items():
        there = {name for name, _ in made_up.cells(page, family)}
        for name, found in results.items():
            assert name in there or f"- {name} was **not measured**: {found['missing']}\n" in page


# ── in a race ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_race_goes_on_without_who_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def ready(self) -> None:
            raise OSError("the disk\nis full")

    monkeypatch.setitem(PEERS, "sqlite", {"unborn": UNBORN, "broken": Broken(), "played": played.Entry()})
    book = compare.Book(tmp_path / "figures.json", quick=True, keep=False)
    book.of("sqlite", COVEY).update(made_up.measured(one=[1.0]) | {"backlog": {}})
    compare.Race("sqlite", [COVEY, "unborn", "broken", "played"], book, TINY).run()
    found = compare.Book(tmp_path / "figures.json", quick=True, keep=True).all["results"]["sqlite"]
    assert found["unborn"]["missing"] == WHY_UNBORN
    assert found["broken"]["missing"] == "OSError: the disk is full"
    assert "failed" not in found["played"]["rounds"][0]
    said = capsys.readouterr().out
    assert f"unborn          not measured: {WHY_UNBORN}" in said
    assert "broken          not measured: OSError" in said


def test_without_a_store_all_are_missing_but_who_was_measured_before_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # neither redis-server nor apt-get
    book = compare.Book(tmp_path / "figures.json", quick=True, keep=False)
    book.of("redis", "arq").update(made_up.measured(one=[1.0]) | {"backlog": {}})
    compare.Race("redis", [COVEY, "rq", "arq"], book, TINY).run()
    found = book.all["results"]["redis"]
    why = "it is not on PATH, and there is no apt-get to fetch it"
    assert {name: each.get("missing") for name, each in found.items()} == {COVEY: why, "rq": why, "arq": None}


def test_a_command_that_is_not_there_fails_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    book = compare.Book(tmp_path / "figures.json", quick=True, keep=False)
    book.of("commands", COVEY).update(made_up.measured(commands=[1.0]))
    compare.Race("commands", [COVEY, "parallel"], book, TINY).run()
    page = table.markdown(book.all)
    assert "- parallel: commands **failed** in 1 of 1 rounds: it is not on PATH" in page


# ── what pip said ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_pip_that_fails_is_told_in_a_line(bench: Path) -> None:
    with pytest.raises(Missing) as told:
        environments.install("nobody", [str(bench / "no-such-directory.whl")])
    assert "no-such-directory" in str(told.value)
    assert "\n" not in str(told.value)
    assert not (bench / "peers" / "nobody" / "ready").exists(), "it would pass for installed the next time"


def test_an_environment_that_cannot_be_made_is_told_in_a_line(bench: Path) -> None:
    (bench / "peers").write_text("in the way")
    with pytest.raises(Missing, match=r"^no environment could be made: .*"):
        environments.install("nobody", ["nobody"])


def test_the_line_that_tells_most_is_told() -> None:
    assert environments._last_error(NO_CRATES) == "error: failed to get `parking_lot`; Could not resolve hostname"
    assert environments._last_error(NO_VERSION).startswith("ERROR: Could not find a version")
    assert environments._last_error("") == "no reason was given"
