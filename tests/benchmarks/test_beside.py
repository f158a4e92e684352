"""Covey beside the best peer on PostgreSQL: who is asked again, who is the best, which way round."""

from __future__ import annotations

from benchmarks.contestants import COVEY
from benchmarks.postgres import hopeless, judged
from benchmarks.report import Figure, Remark
from benchmarks.timing import spread


def _block(p50: float, p99: float) -> list[float]:
    return [p50] * 98 + [p99, p99]


def test_who_is_more_than_twice_as_slow_as_the_best_peer_is_not_asked_again() -> None:
    seen = {
        COVEY: [_block(1, 2)],
        "best": [_block(5, 10)],
        "slow": [_block(10, 20)],
        "hopeless": [_block(10.1, 20.1)],
        "failed": [],
    }
    assert hopeless(seen) == ["hopeless"]


def test_covey_is_no_measure_of_who_is_hopeless() -> None:
    """Were it, nobody would be left to be compared with when Covey is twice as fast as all of them."""
    assert hopeless({COVEY: [_block(1, 1)], "a": [_block(9, 9)], "b": [_block(10, 10)]}) == []
    assert hopeless({COVEY: [_block(1, 1)]}) == []


def test_a_peer_whose_p99_may_be_the_best_is_asked_again_though_its_p50_is_not() -> None:
    assert hopeless({COVEY: [_block(5, 10)], "quick": [_block(4, 12)], "even": [_block(9, 9)]}) == []


def test_the_best_peer_is_the_quickest_by_the_median_of_its_blocks_for_each_share_on_its_own() -> None:
    seen = {
        COVEY: [_block(6, 30), _block(6, 12), _block(9, 12)],
        "a": [_block(4, 20), _block(5, 20), _block(8, 20)],
        "b": [_block(1, 10), _block(8, 10), _block(8, 10)],
        "once": [_block(40, 90)],
        "failed": [],
    }
    p50, blocks50, p99, blocks99 = judged(100, seen)
    assert isinstance(p50, Figure)
    assert isinstance(p99, Figure)
    assert (p50.ours, p50.theirs, p50.ratio, p50.verdict) == (6, 5, 1.2, "met")
    assert p50.reference == "a (a 5.0, b 8.0, once 40.0)"
    assert (p99.ours, p99.theirs, p99.ratio, p99.verdict) == (12, 10, 1.2, "met")
    assert p99.reference.startswith("b (")
    assert isinstance(blocks50, Remark)
    assert isinstance(blocks99, Remark)
    assert blocks50.text == (
        "pick-up p50, covey ÷ a, block by block: 1.50 1.20 1.12; least 1.12, median 1.20, greatest 1.50"
    )
    assert "covey ÷ b, block by block: 3.00 1.20 1.20; least 1.20" in blocks99.text


def test_a_slower_covey_has_not_met_it() -> None:
    figures = list(judged(100, {COVEY: [_block(7, 13)] * 3, "a": [_block(5, 10)] * 3}))
    assert [each.verdict for each in figures if isinstance(each, Figure)] == ["NOT met", "NOT met"]


def test_without_a_peer_there_is_a_remark_instead_of_a_figure() -> None:
    (told,) = judged(100, {COVEY: [_block(1, 1)], "failed": []})
    assert "nothing to compare with" in told.line()


def test_a_spread_shows_every_pair_in_its_order() -> None:
    assert spread([1.0, 3.0, 2.0], [1.0, 2.0, 4.0]) == "1.00 1.50 0.50; least 0.50, median 1.00, greatest 1.50"


def test_a_bound_is_met_at_the_bound_and_not_beyond_it() -> None:
    at = Figure("m", "w", 1.2, 1.0, "ms", "r", ("≤", 1.2))
    assert (at.verdict, Figure("m", "w", 1.21, 1.0, "ms", "r", ("≤", 1.2)).verdict) == ("met", "NOT met")
    at = Figure("m", "w", 1.2, 1.0, "/s", "r", ("≥", 1.2))
    assert (at.verdict, Figure("m", "w", 1.19, 1.0, "/s", "r", ("≥", 1.2)).verdict) == ("met", "NOT met")
    assert Figure("m", "w", 9.0, 1.0, "/s", "r", ("≥", 1.2), given=1.0).verdict == "NOT met", "the given ratio counts"
    assert Figure("m", "w", 9.0, 0.0, "/s", "r", ("≥", 1.2)).verdict == "NOT met", "beside nothing there is no ratio"
    assert Figure("m", "w", 1.0, 9.0, "/s", "r").verdict == ""
