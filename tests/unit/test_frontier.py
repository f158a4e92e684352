"""Where a claim goes on: from the beginning, unless that has become slow."""

from __future__ import annotations

from covey.store.postgres.dead_entries import (
    LASTS_S,
    LONG,
    SHORTCUT_S,
    SLOW_LOOKS,
    SLOW_S,
    Frontier,
    Survey,
    Way,
)


class Lane:
    """Looks at a lane take as long as told; what was asked is remembered."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes_s = 0.0
        self.rows: list[tuple[int, ...]] = [(-5, 70, 71)]
        self.asked: list[str] = []
        self.frontier = Frontier()

    def look(self) -> list[tuple[int, ...]]:
        return self.frontier.look(self.now, lambda began: (began, self.now), self.whole, self.onward)

    def whole(self) -> list[tuple[int, ...]]:
        self.asked.append("whole")
        self.now += self.takes_s
        return self.rows

    def onward(self, frontier: Frontier) -> list[tuple[int, ...]]:
        self.asked.append(f"from {frontier.key}" if frontier.key else "behind")
        return self.rows


def test_quick_looks_are_always_at_the_whole_lane() -> None:
    lane = Lane()
    for _ in range(10):
        assert lane.look() == lane.rows
    assert lane.asked == ["whole"] * 10


def test_one_slow_look_is_no_reason() -> None:
    lane = Lane()
    for takes_s in (SLOW_S * 2, 0.0, SLOW_S * 2, SLOW_S * 2, 0.0, SLOW_S * 2):
        lane.takes_s = takes_s
        lane.look()
    assert set(lane.asked) == {"whole"}


def test_after_several_slow_looks_it_goes_on_from_the_first_job_for_a_second() -> None:
    lane = Lane()
    lane.takes_s = SLOW_S * 2
    for _ in range(SLOW_LOOKS):
        lane.look()
    lane.look()
    lane.rows = [(-5, 90, 91)]
    lane.look()
    lane.look()
    assert lane.asked[SLOW_LOOKS:] == ["from (5, 70, 71)", "from (5, 70, 71)", "from (5, 90, 91)"]
    lane.now += LASTS_S + SLOW_S * 100
    lane.look()
    assert lane.asked[-1] == "whole"


def test_of_an_empty_lane_it_looks_behind_the_newest_job() -> None:
    lane = Lane()
    lane.takes_s, lane.rows = SLOW_S * 2, []
    for _ in range(SLOW_LOOKS + 1):
        lane.look()
    assert lane.asked[-1] == "behind"


def test_the_long_way_takes_a_small_share_of_the_time() -> None:
    lane = Lane()
    lane.takes_s = 1.0
    for _ in range(SLOW_LOOKS):
        lane.look()
    for _ in range(100):
        lane.now += 0.1
        lane.look()
    assert lane.asked.count("whole") == SLOW_LOOKS


def test_which_lanes_have_work_is_asked_anew_each_time_while_that_is_quick_or_seldom_slow() -> None:
    survey = Survey()
    for took in (0.0, SLOW_S * 2, SLOW_S * 2, 0.0, SLOW_S * 2):
        survey.note(100.0, 100.0 + took, [("default", "sync")])
        assert survey.known(100.0 + took) is None


def test_after_several_slow_looks_the_answer_is_kept_for_twenty_times_as_long_as_it_took() -> None:
    survey = Survey()
    for _ in range(SLOW_LOOKS):
        survey.note(100.0, 100.1, [("default", "sync")])
    assert survey.known(102.0) == [("default", "sync")]
    assert survey.known(102.2) is None


SLOW = (100.0, 100.0 + SLOW_S * 2)
QUICK = (100.0, 100.0 + SLOW_S / 2)


def test_a_way_that_is_long_and_slow_several_times_in_a_row_is_not_taken_for_a_while() -> None:
    way = Way()
    for passed in (LONG * 2, LONG * 2, 0, LONG * 2, LONG * 2):
        way.note(*SLOW, passed, 0)
        assert way.until == 0.0
    way.note(*SLOW, LONG * 2, 0)
    assert way.until == SLOW[1] + SHORTCUT_S
    assert not way.is_short(SLOW[1])


def test_a_long_way_is_taken_as_long_as_it_is_quick_but_not_known_to_be_short() -> None:
    way = Way()
    for _ in range(SLOW_LOOKS * 2):
        way.note(*QUICK, LONG * 100, 0)
    assert way.until == 0.0
    assert not way.is_short(QUICK[1])


def test_a_short_way_is_taken_however_slow_it_is() -> None:
    way = Way()
    for _ in range(SLOW_LOOKS * 2):
        way.note(*SLOW, LONG, 0)
    assert way.until == 0.0
    assert way.is_short(SLOW[1])


def test_where_nobody_counts_entries_a_slow_way_is_not_taken_and_a_quick_one_is() -> None:
    way = Way()
    for looked in (QUICK, QUICK, QUICK, SLOW, SLOW, QUICK, SLOW, SLOW):
        way.note(*looked, None, 0)
        assert way.until == 0.0
        assert not way.is_short(looked[1])
    way.note(*SLOW, None, 0)
    assert way.until == SLOW[1] + SHORTCUT_S


def test_entries_of_jobs_that_were_found_do_not_make_a_way_long() -> None:
    way = Way()
    for _ in range(SLOW_LOOKS):
        way.note(100.0, 110.0, LONG + 1000, 1000)
    assert way.until == 0.0


def test_that_a_way_is_short_is_known_for_a_second_and_nothing_is_known_at_first() -> None:
    way = Way()
    assert not way.is_short(100.0)
    way.note(100.0, 100.0, 3, 0)
    assert way.is_short(100.0 + LASTS_S / 2)
    assert not way.is_short(100.0 + LASTS_S)
