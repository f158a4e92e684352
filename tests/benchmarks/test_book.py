"""The file of figures: what is measured again and what stays."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare, table
from benchmarks.contestants import COVEY, PEERS

from . import made_up, played
from .made_up import TINY, UNBORN, WHY_UNBORN


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Figures in which nobody lacks anything."""
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(made_up.whole()))
    return path


def _results(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["results"]
    return found


def test_resuming_what_is_whole_measures_nothing_and_keeps_everything(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = file.read_text()
    assert compare.main(["--resume", "--json", str(file)]) == 0
    assert file.read_text() == before
    assert table.markdown(made_up.whole()) in capsys.readouterr().out


def test_a_contestant_that_is_named_is_measured_again_and_the_others_figures_stay(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named is one that cannot be had any more: its old figures go, the reason comes."""
    before = _results(file)
    monkeypatch.setitem(PEERS["sqlite"], "huey", UNBORN)
    assert compare.main(["huey", "--json", str(file)]) == 0
    after = _results(file)
    assert after["sqlite"].pop("huey") == {"rounds": [], "missing": WHY_UNBORN}
    del before["sqlite"]["huey"]
    assert after == before


def test_one_that_was_missing_is_tried_again_when_it_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = made_up.whole()
    book["results"]["sqlite"]["huey"] = {"rounds": [], "missing": "a reason of yesterday"}
    file.write_text(json.dumps(book))
    monkeypatch.setitem(PEERS["sqlite"], "huey", UNBORN)
    compare.main(["--resume", "--json", str(file)])
    assert _results(file)["sqlite"]["huey"]["missing"] == "a reason of yesterday", "not by itself"
    compare.main(["huey", "--json", str(file)])
    assert _results(file)["sqlite"]["huey"]["missing"] == WHY_UNBORN


def test_a_race_that_is_resumed_measures_only_what_is_lacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Covey has one round of one, the first peer all, the second only a round: its backlog is measured."""
    monkeypatch.setitem(PEERS, "sqlite", {"whole": UNBORN, "half": played.Entry()})
    book = compare.Book(tmp_path / "figures.json", quick=True, keep=False)
    for name, more in ((COVEY, {"backlog": {}}), ("whole", {"backlog": {}}), ("half", {})):
        book.of("sqlite", name).update(made_up.measured(one=[7.0]) | more)
    before = copy.deepcopy(book.all["results"]["sqlite"])
    compare.Race("sqlite", [COVEY, "whole", "half"], book, TINY).run()
    after = compare.Book(tmp_path / "figures.json", quick=True, keep=True).all["results"]["sqlite"]
    assert after["half"].pop("backlog").keys() == {"20", "40"}
    assert after == before, "and whoever is whole is not even installed"


def test_figures_of_another_run_than_coveys_say_so() -> None:
    """Their ratios are not of one round: the machine may have been slower, or quicker."""
    ours, same, again = (made_up.measured(one=[1.0, 2.0]) for _ in range(3))
    for found, runs in ((ours, ("monday", "monday")), (same, ("monday", "monday")), (again, ("monday", "tuesday"))):
        for each, run in zip(found["rounds"], runs, strict=True):
            each["run"] = run
    page = table.markdown(made_up.book({"sqlite": {COVEY: ours, "huey": same, "litequeue": again}}))
    assert "- litequeue: measured in another run than covey (tuesday)" in page
    assert "- huey: measured" not in page


def test_every_round_says_in_which_run_it_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "commands", {"xargs": PEERS["commands"]["xargs"]})
    book = compare.Book(tmp_path / "figures.json", quick=True, keep=False)
    book.of("commands", COVEY).update(made_up.measured(commands=[1.0]))
    compare.Race("commands", [COVEY, "xargs"], book, TINY).run()
    (found,) = book.all["results"]["commands"]["xargs"]["rounds"]
    assert found["commands"] > 0
    assert found["run"] == book.run
    assert "- xargs: measured in another run than covey" in table.markdown(book.all)


def test_quick_figures_and_full_ones_are_never_mixed(file: Path) -> None:
    with pytest.raises(SystemExit, match="full figures"):
        compare.main(["--resume", "--quick", "--json", str(file)])
    assert json.loads(file.read_text()) == made_up.whole()


def test_a_page_of_quick_figures_says_that_it_is_no_result() -> None:
    book = made_up.whole()
    assert "a full run" in table.markdown(book)
    assert "**a quick look: one short round, not a result**" in table.markdown(book | {"quick": True})


def test_without_names_and_without_resume_the_book_begins_anew(file: Path) -> None:
    assert compare.Book(file, quick=False, keep=False).all["results"] == {}
    assert _results(file), "but not before something was measured"


def test_a_peer_that_nobody_knows_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.main(["hueey", "--json", str(file)])
    assert "no peer hueey; there are huey, " in capsys.readouterr().err
