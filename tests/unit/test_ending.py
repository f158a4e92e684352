"""What signals mean for a pool, and until when its jobs may run on."""

from __future__ import annotations

from signal import SIGCHLD, SIGHUP, SIGINT, SIGTERM

import pytest

from covey.pool.ending import GIVE_UP_S, Ending


@pytest.fixture
def ending() -> Ending:
    return Ending(grace_s=10.0)


def test_after_int_what_runs_may_finish(ending: Ending) -> None:
    assert ending.hear([SIGINT], 100.0)
    assert (ending.begun, ending.kill_at) == (True, None)
    assert not ending.must_kill(1e9)


@pytest.mark.parametrize("number", [SIGTERM, SIGHUP])
def test_after_term_it_has_the_grace(ending: Ending, number: int) -> None:
    assert ending.hear([number], 100.0)
    assert not ending.must_kill(109.9)
    assert ending.must_kill(110.0)
    assert not ending.must_kill(110.1)  # once


def test_a_second_signal_means_at_once(ending: Ending) -> None:
    assert ending.hear([SIGINT], 100.0)
    assert not ending.hear([SIGINT], 101.0)
    assert ending.must_kill(101.0)
    assert not ending.is_overdue(101.0 + GIVE_UP_S)
    assert ending.is_overdue(101.1 + GIVE_UP_S)


def test_the_first_signal_after_worker_stop_is_the_first(ending: Ending) -> None:
    ending.begin(None)
    assert not ending.hear([SIGTERM], 100.0)  # it has stopped claiming already
    assert ending.kill_at == 110.0


def test_other_signals_mean_nothing(ending: Ending) -> None:
    assert not ending.hear([SIGCHLD], 100.0)
    assert not ending.begun
    assert ending.hear([SIGCHLD, SIGTERM], 100.0)


def test_without_its_parent_a_pool_ends_within_the_grace_and_no_later(ending: Ending) -> None:
    ending.hear([SIGINT], 100.0)
    assert ending.lose_parent(200.0)
    assert ending.kill_at == 210.0
    assert not ending.lose_parent(205.0)
    assert ending.must_kill(210.0)
    assert not ending.lose_parent(215.0)
