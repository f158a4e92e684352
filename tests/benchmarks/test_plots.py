"""Plots: SVG that can be read, with one bar or one line for everybody who was measured."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import ground, plots
from benchmarks.contestants import COVEY

from . import made_up

SVG = "{http://www.w3.org/2000/svg}"


def _drawn(path: Path) -> ElementTree.Element:
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    return root


def _bars(root: ElementTree.Element) -> list[float]:
    """How long they are, from top to bottom; the first rectangle is the ground."""
    _, *bars = root.iter(f"{SVG}rect")
    assert sorted(float(bar.attrib["y"]) for bar in bars) == [float(bar.attrib["y"]) for bar in bars]
    return [float(bar.attrib["width"]) for bar in bars]


def _names(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text") if text.attrib.get("text-anchor") == "end"]


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    plots.write(tmp_path / "plots", made_up.whole())
    return tmp_path / "plots"


def test_the_plots_are_those_that_the_page_shows(drawn: Path) -> None:
    page = (ground.ROOT / "docs" / "benchmarks.md").read_text()
    assert {path.name for path in drawn.iterdir()} == set(re.findall(r"\(benchmarks/([\w-]+\.svg)\)", page))


def test_every_plot_is_an_image_in_whose_frame_everything_lies(drawn: Path) -> None:
    for path in drawn.iterdir():
        root = _drawn(path)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for bar in root.iter(f"{SVG}rect"):
            assert float(bar.attrib.get("x", 0)) + float(bar.attrib["width"]) <= width
            assert float(bar.attrib.get("y", 0)) + float(bar.attrib["height"]) <= height
        for point in root.iter(f"{SVG}circle"):
            assert 0 < float(point.attrib["cx"]) < width
            assert 0 < float(point.attrib["cy"]) < height


def test_everybody_who_was_measured_has_one_bar(drawn: Path) -> None:
    for family, results in made_up.whole()["results"].items():
        root = _drawn(drawn / ("commands.svg" if family == "commands" else f"drain-{family}.svg"))
        assert sorted(_names(root)) == sorted(results)
        assert len(_bars(root)) == len(results)


def test_everybody_who_was_measured_has_a_point_for_each_backlog(drawn: Path) -> None:
    for family, results in made_up.whole()["results"].items():
        if family != "commands":
            root = _drawn(drawn / f"backlog-{family}.svg")
            assert len(list(root.iter(f"{SVG}polyline"))) == len(results)
            assert len(list(root.iter(f"{SVG}circle"))) == 4 * len(results)
            assert set(results) <= {text.text for text in root.iter(f"{SVG}text")}


def test_covey_beside_redis_stands_on_a_file_and_is_shown_once_in_the_pick_ups(drawn: Path) -> None:
    names = _names(_drawn(drawn / "pickup.svg"))
    assert len(names) == len(set(names))
    assert {name for name in names if name.startswith(COVEY)} == {"covey (sqlite)", "covey (postgres)"}
    measured = {
        name for family, results in made_up.whole()["results"].items() if family != "commands" for name in results
    }
    assert {name.partition(" (")[0] for name in names} == measured


def test_the_best_is_on_top_and_a_bar_is_longer_for_more(tmp_path: Path) -> None:
    book = made_up.book(
        {
            "sqlite": {
                COVEY: made_up.measured(drain2=[500.0], p50=[3.0]),
                "huey": made_up.measured(drain2=[90.0], p50=[2.0]),
                "litequeue": made_up.measured(drain2=[20_000.0], p50=[40.0]),
            }
        }
    )
    plots.write(tmp_path, book)
    rates, waits = _drawn(tmp_path / "drain-sqlite.svg"), _drawn(tmp_path / "pickup.svg")
    assert _names(rates) == ["litequeue", COVEY, "huey"]
    assert _bars(rates) == sorted(_bars(rates), reverse=True)
    assert _names(waits) == ["huey (sqlite)", "covey (sqlite)", "litequeue (sqlite)"]
    assert _bars(waits) == sorted(_bars(waits))
    assert "less is better" in (tmp_path / "pickup.svg").read_text()


def test_the_figure_beside_a_bar_is_the_median_of_the_rounds(tmp_path: Path) -> None:
    plots.write(tmp_path, made_up.book({"commands": {COVEY: made_up.measured(commands=[100.0, 900.0, 300.0])}}))
    assert "300" in [text.text for text in _drawn(tmp_path / "commands.svg").iter(f"{SVG}text")]


def test_who_was_not_measured_has_no_bar_and_who_did_nothing_has_one(tmp_path: Path) -> None:
    """Nothing has no place on a logarithmic scale, but who drained nothing must not vanish."""
    stuck = made_up.measured(drain2=[0.0]) | {"backlog": {"1000": 50.0, "10000": 0.0}}
    results = {
        COVEY: made_up.measured(drain2=[500.0]) | {"backlog": {"1000": 500.0, "10000": 600.0}},
        "huey": {"rounds": [], "missing": "no such package"},
        "litequeue": stuck,
        "persist-queue": made_up.measured(drain2=[None]) | {"backlog": {}},
    }
    plots.write(tmp_path, made_up.book({"sqlite": results}))
    root = _drawn(tmp_path / "drain-sqlite.svg")
    assert _names(root) == [COVEY, "litequeue"]
    assert _bars(root)[1] == 1.0
    assert "0" in [text.text for text in root.iter(f"{SVG}text")]
    assert len(list(_drawn(tmp_path / "backlog-sqlite.svg").iter(f"{SVG}circle"))) == 4


def test_names_and_titles_are_escaped(tmp_path: Path) -> None:
    plots._bars(tmp_path / "bars.svg", "less < more & so on", {'a "<b>" & c': 5.0})
    assert _names(_drawn(tmp_path / "bars.svg")) == ['a "<b>" & c']
    assert "less < more & so on (log scale)" in [text.text for text in _drawn(tmp_path / "bars.svg").iter(f"{SVG}text")]


def test_without_figures_there_is_no_plot(tmp_path: Path) -> None:
    plots.write(tmp_path / "plots", made_up.book({"sqlite": {COVEY: {"rounds": []}}}))
    assert list((tmp_path / "plots").iterdir()) == []
