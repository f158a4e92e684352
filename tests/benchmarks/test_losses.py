"""Where Covey loses: every loss has a row with a reason, and one without a reason is shouted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import compare, ground, reasons, table
from benchmarks.contestants import COVEY, PEERS

from . import made_up

PAGE = (ground.ROOT / "docs" / "benchmarks.md").read_text().partition(table.BEGIN)[2].partition(table.END)[0]
RATES = ("one", "many", "drain1", "drain2", "commands")


def test_every_loss_has_one_row_with_the_reason_for_that_peer() -> None:
    results = {
        "sqlite": {
            COVEY: made_up.measured(one=[10] * 3, p50=[4] * 3),
            "huey": made_up.measured(one=[20] * 3, p50=[5] * 3),
            "litequeue": made_up.measured(one=[90] * 3, p50=[3] * 3),
        }
    }
    page = table.markdown(made_up.book(results))
    assert made_up.explained(page) == {
        ("sqlite", "enqueue one", "huey"): reasons.ONE_ROW,
        ("sqlite", "enqueue one", "litequeue"): reasons.SYNCS_LATER,
        ("sqlite", "pick-up p50", "litequeue"): reasons.SYNCS_LATER,
    }
    assert "| sqlite: enqueue one | huey 0.50 |" in page
    assert "| sqlite: pick-up p50 | litequeue 1.33 |" in page


def test_peers_that_win_for_the_same_reason_share_a_row() -> None:
    results = {"redis": {COVEY: made_up.measured(one=[10]), **{
        name: made_up.measured(one=[20]) for name in ("arq", "saq", "rq")
    }}}  # fmt: skip
    page = table.markdown(made_up.book(results))
    assert f"| redis: enqueue one | rq 0.50, arq 0.50, saq 0.50 | {reasons.FROM_MEMORY} |" in page


def test_a_backlog_that_a_peer_drains_faster_is_a_loss_and_only_that() -> None:
    ours, theirs = made_up.measured(one=[10]), made_up.measured(one=[5])
    ours["backlog"] = {"1000": 50.0, "10000": 60.0, "100000": 70.0}
    theirs["backlog"] = {"1000": 100.0, "10000": 20.0}
    page = table.markdown(made_up.book({"sqlite": {COVEY: ours, "honker": theirs}}))
    assert made_up.explained(page) == {("sqlite", "drain of 1,000", "honker"): reasons.FORGETS}
    assert "| honker | **100 (0.50)** | 20 (3.00) | – | – |" in page
    assert "| covey | 50 | 60 | 70 | 1.17 |" in page


def test_a_loss_without_a_known_reason_is_shouted_on_the_page_and_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = made_up.whole()
    for each in book["results"]["sqlite"]["huey"]["rounds"]:
        each["drain2"] = 1e6
    assert ("sqlite", "drain2", "huey") not in reasons.REASONS
    page = _told(tmp_path, book)
    assert made_up.explained(page)["sqlite", "drain, 2 workers", "huey"] == reasons.UNKNOWN
    assert reasons.UNKNOWN.startswith("**")
    said = capsys.readouterr().out.splitlines()
    assert any("NO REASON IS KNOWN" in line and "sqlite: drain, 2 workers beside huey" in line for line in said)


def test_where_every_loss_has_its_reason_nothing_is_shouted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Covey wins what has no reason, and loses some of the rest."""
    book = made_up.whole()
    for results in book["results"].values():
        for name, found in results.items():
            rate = 1e6 if name == COVEY else 1.0
            for each in found["rounds"]:
                each |= dict.fromkeys(RATES, rate)
            found["backlog"] = dict.fromkeys(found.get("backlog", {}), rate)
    page = _told(tmp_path, book)
    assert made_up.bold(page) == made_up.explained(page).keys() != set()
    assert reasons.UNKNOWN not in page
    assert "NO REASON" not in capsys.readouterr().out


def _told(tmp_path: Path, book: dict[str, object]) -> str:
    """The page that `compare --resume` writes when nothing is left to measure."""
    file, page = compare.Book(tmp_path / "figures.json", quick=False, keep=False), tmp_path / "page.md"
    file.all = book
    file.save()
    assert compare.main(["--resume", "--json", str(tmp_path / "figures.json"), "--markdown", str(page)]) == 0
    return page.read_text()


def test_the_most_particular_reason_is_given() -> None:
    assert reasons.reason("sqlite", "one", "huey-nosync") == reasons.NEVER_SYNCS
    assert reasons.reason("sqlite", "one", "persist-queue") == reasons.ONE_ROW
    assert reasons.reason("redis", "start", "rq") == reasons.ONE_INTERPRETER
    assert reasons.reason("sqlite", "drain2", "huey") == reasons.UNKNOWN


def test_a_reason_is_about_a_family_a_measure_and_a_peer_that_there_are() -> None:
    """One that was misspelt would never be given."""
    keys = {measure.key for measure in (*table.MEASURES, *table.COMMANDS)} | {table.BACKLOG}
    for family, measure, peer in reasons.REASONS:
        assert family in {*PEERS, reasons.ANY}
        assert measure in keys
        assert peer == reasons.ANY or peer in PEERS[family]


# ── the page that is published ──────────────────────────────────────────────────────────────────────────────────────


def test_the_published_page_marks_every_loss_and_explains_it() -> None:
    marked = made_up.bold(PAGE)
    assert len(marked) > 10, "the page is not read as it should be"
    assert marked == made_up.explained(PAGE).keys()
    assert reasons.UNKNOWN not in PAGE


def test_no_cell_of_the_published_page_says_something_else_than_its_mark() -> None:
    for family in PEERS:
        less = {measure.title for measure in table.measures_of(family) if not measure.more}
        for (name, title), cell in made_up.cells(PAGE, family).items():
            if cell.ratio and cell.ratio != "1.00":
                found = float(cell.ratio.replace("∞", "inf"))
                assert cell.bold == (found > 1 if title in less else found < 1), (family, name, title, cell)


def test_the_published_page_has_a_row_or_a_reason_for_every_contestant() -> None:
    for family, peers in PEERS.items():
        there = {name for name, _ in made_up.cells(PAGE, family)}
        for name in (COVEY, *peers):
            assert name in there or f"- {name} was **not measured**: " in PAGE, name
