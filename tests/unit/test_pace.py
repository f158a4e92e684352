"""Where no bell can be hung, pools and waiting people look again and again: often at first, then ever more seldom."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.engine import turn, views
from covey.open import open_engine
from tests.kit import HandPool, command


def deaf(who: str) -> None:
    raise OSError("no socket can be bound there")


def test_a_pool_without_a_bell_looks_ever_more_seldom_until_it_gets_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(str(tmp_path / "q.db"))
    naps: list[float] = []
    monkeypatch.setattr(turn.time, "sleep", naps.append)
    monkeypatch.setattr(engine.store, "listen", deaf)
    try:
        pool = HandPool(engine)
        least, most = pool.config["poll_seconds"], pool.config["max_poll_seconds"]
        for _ in range(turn.PATIENT_POLLS):
            assert engine.wait(pool.id, None, 60) is True
        assert naps == [least] * turn.PATIENT_POLLS
        for _ in range(200):
            engine.wait(pool.id, None, 60)
        assert naps[turn.PATIENT_POLLS] == pytest.approx(least * turn.SLACKEN)
        assert naps[-1] == most
        engine.wait(pool.id, None, most / 2)
        assert naps[-1] == most / 2
        engine.wake()  # nobody can be woken, and nobody minds
        engine.enqueue([command()])
        pool.claim_one()
        engine.wait(pool.id, None, 60)
        assert naps[-1] == least
    finally:
        engine.close()


def test_who_waits_for_a_job_without_a_bell_looks_ten_times_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(str(tmp_path / "q.db"))
    monkeypatch.setattr(engine.store, "listen", deaf)
    try:
        pool = HandPool(engine)
        (made,) = engine.enqueue([command()])
        claim = pool.claim_one()
        naps: list[float] = []

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 3:
                pool.succeed(claim)

        monkeypatch.setattr(views.time, "sleep", sleep)
        assert engine.wait_for([made.id], None) is True
        assert naps == [0.1] * 3
        (made,) = engine.enqueue([command()])
        assert engine.wait_for([made.id], 0) is False
        assert engine.wait_for([made.id], 0.05) is False
        assert naps[3] <= 0.05
    finally:
        engine.close()
