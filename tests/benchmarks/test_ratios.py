"""Who loses: the median of the rounds' own ratios, the right way round, marked whatever rounding makes of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import table
from benchmarks.contestants import COVEY, PEERS
from benchmarks.table import COMMANDS, MEASURES, Measure
from benchmarks.timing import alternate, percentile, quotient, ratio_of_pairs

from . import made_up

ALL = [pytest.param(measure, id=measure.key) for measure in (*MEASURES, *COMMANDS)]


def _page(measure: Measure, ours: list[float | None], theirs: list[float | None]) -> tuple[made_up.Cell, bool]:
    """What the page says of one peer in one measure: its cell, and whether it's among what Covey loses."""
    family, peer = ("commands", "xargs") if measure in COMMANDS else ("redis", "rq")
    page = table.markdown(
        made_up.book(
            {family: {COVEY: made_up.measured(**{measure.key: ours}), peer: made_up.measured(**{measure.key: theirs})}}
        )
    )
    cell = made_up.cells(page, family)[peer, measure.title]
    assert not made_up.cells(page, family)[COVEY, measure.title].bold
    return cell, (family, measure.title, peer) in made_up.explained(page)


def test_which_measures_are_better_when_they_are_more() -> None:
    """By hand, once more: one of these turned round would turn a loss into a win."""
    more = {"one", "many", "drain1", "drain2", "commands"}
    less = {"p50", "p99", "idle", "start", "memory"}
    assert {measure.key for measure in (*MEASURES, *COMMANDS) if measure.more} == more
    assert {measure.key for measure in (*MEASURES, *COMMANDS) if not measure.more} == less


def test_the_ratio_is_the_median_of_the_rounds_own_ratios_not_the_quotient_of_the_medians() -> None:
    ours, theirs = [100.0, 10.0, 90.0], [50.0, 20.0, 10.0]
    assert ratio_of_pairs(ours, theirs) == 2  # of 2, 0.5 and 9; the medians are 90 and 20
    results = {COVEY: made_up.measured(one=ours), "huey": made_up.measured(one=theirs)}
    assert table.ratio(results, "huey", "one") == 2
    assert table.ratio(results, COVEY, "one") == 1


@pytest.mark.parametrize("measure", ALL)
def test_twice_as_much_is_lost_or_won_by_what_the_measure_means(measure: Measure) -> None:
    cell, lost = _page(measure, [20, 20, 20], [10, 10, 10])
    assert (cell.figure, cell.ratio) == ("10", "2.00")
    assert cell.bold == lost == (not measure.more)
    cell, lost = _page(measure, [10, 10, 10], [20, 20, 20])
    assert (cell.figure, cell.ratio) == ("20", "0.50")
    assert cell.bold == lost == measure.more


@pytest.mark.parametrize("measure", ALL)
def test_a_loss_that_rounding_would_hide_is_marked_and_does_not_read_as_even(measure: Measure) -> None:
    better, worse = (1_000, 997) if measure.more else (997, 1_000)
    cell, lost = _page(measure, [worse] * 3, [better] * 3)
    assert cell.bold
    assert lost
    assert cell.ratio == ("0.9970" if measure.more else "1.0030")
    cell, lost = _page(measure, [better] * 3, [worse] * 3)
    assert not cell.bold
    assert not lost
    assert cell.ratio != "1.00"


@pytest.mark.parametrize("measure", ALL)
def test_who_is_even_does_not_lose(measure: Measure) -> None:
    cell, lost = _page(measure, [5, 5, 5], [5, 5, 5])
    assert (cell.bold, lost, cell.ratio) == (False, False, "1.00")


@pytest.mark.parametrize("measure", ALL)
def test_a_peer_that_uses_nothing_beats_covey_and_one_that_does_nothing_is_beaten(measure: Measure) -> None:
    cell, lost = _page(measure, [0.25] * 3, [0, 0, 0])
    assert (cell.figure, cell.ratio) == ("0", "∞")
    assert cell.bold == lost == (not measure.more)
    cell, lost = _page(measure, [0, 0, 0], [0.25] * 3)
    assert cell.bold == lost == measure.more
    cell, lost = _page(measure, [0, 0, 0], [0, 0, 0])
    assert not cell.bold
    assert not lost


def test_rounds_are_compared_with_themselves_though_each_side_failed_in_one() -> None:
    ours, theirs = [None, 10.0, 100.0], [200.0, None, 50.0]
    results = {COVEY: made_up.measured(one=ours), "huey": made_up.measured(one=theirs)}
    assert table.ratio(results, "huey", "one") == 2, "only the third round has both"


def test_without_a_round_that_both_have_the_medians_are_compared() -> None:
    results = {COVEY: made_up.measured(one=[30.0, None]), "huey": made_up.measured(one=[None, 10.0])}
    assert table.ratio(results, "huey", "one") == 3


def test_without_figures_of_one_side_there_is_no_ratio() -> None:
    results = {COVEY: made_up.measured(one=[None, None]), "huey": made_up.measured(one=[1.0, 2.0])}
    assert table.ratio(results, "huey", "one") is None


def test_the_servers_share_of_idle_cpu_is_the_queues_own() -> None:
    found = {"rounds": [{"idle": 1.0, "idle_server": 2.5}]}
    assert table.rounds(found, "idle") == [3.5]
    assert "idle CPU 3.5" in table.brief(found["rounds"][0])


FIGURES = st.lists(st.integers(1, 10**6), min_size=3, max_size=3)


@settings(max_examples=40)
@given(st.data())
def test_a_cell_is_bold_exactly_if_covey_was_worse_in_most_rounds_and_then_has_a_row(data: st.DataObject) -> None:
    """The median of three ratios is below one exactly if two of them are: no division needed to know who loses."""
    results: dict[str, dict[str, dict[str, object]]] = {}
    worse: set[tuple[str, str, str]] = set()
    for family, peers in PEERS.items():
        names = [COVEY, *data.draw(st.lists(st.sampled_from(sorted(peers)), unique=True, max_size=2))]
        series = {name: {measure.key: data.draw(FIGURES) for measure in table.measures_of(family)} for name in names}
        results[family] = {name: made_up.measured(**series[name]) for name in names}
        for name in names[1:]:
            for measure in table.measures_of(family):
                pairs = list(zip(series[COVEY][measure.key], series[name][measure.key], strict=True))
                if sum(ours < theirs if measure.more else ours > theirs for ours, theirs in pairs) >= 2:
                    worse.add((family, measure.title, name))
    page = table.markdown(made_up.book(results))
    assert made_up.bold(page) == worse
    assert made_up.explained(page).keys() == worse


def test_sides_take_turns_and_every_other_round_goes_backwards() -> None:
    order: list[str] = []

    def side(name: str, value: float) -> float:
        order.append(name)
        return value

    found = alternate(3, lambda: side("a", 1.0), lambda: side("b", 2.0), lambda: side("c", 3.0))
    assert "".join(order) == "abccbaabc"
    assert found == [[1.0] * 3, [2.0] * 3, [3.0] * 3]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(200, 0, -1)]
    assert percentile(values, 0.99) == 198
    assert percentile(values, 0.5) == 100
    assert percentile([7.0], 0.99) == 7


def test_nothing_over_nothing_is_even() -> None:
    assert quotient(0, 0) == 1
    assert quotient(0, 2) == 0
    assert quotient(2, 0) == math.inf
