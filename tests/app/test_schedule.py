"""app.schedule(…) and what a task knows of its tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from covey import Context, Covey
from covey.core.model import Claim
from covey.errors import InvalidInput


def sample(ctx: Context, shard: int = 0) -> None: ...


def test_a_task_and_a_call_of_it_are_declared_and_nothing_is_written() -> None:
    app = Covey("/nowhere/at/all.db", name="shop")
    task = app.task(name="m.f", queue="office", schedule="30 2 * * *")(sample)
    other = app.schedule(
        task.using(priority=3).call(shard=2), every=timedelta(minutes=5), name="other", overlap="allow"
    )
    assert set(app.schedules) == {"m.f", "other"}
    assert app.schedules["m.f"].body.job == {"task": "m.f", "kind": "sync", "queue": "office"}
    assert other.body.job["args"] == {"shard": 2}
    assert other.body.job["priority"] == 3
    assert [at.minute for at in app.schedules["m.f"].next(3)] == [30] * 3
    with pytest.raises(InvalidInput, match="exists already"):
        app.schedule(task, every="1h")


def test_nonsense_is_refused_where_it_is_said() -> None:
    app = Covey("/nowhere/at/all.db")
    task = app.task(name="m.f")(sample)
    with pytest.raises(InvalidInput, match="needs five fields"):
        app.schedule(task, cron="daily")
    with pytest.raises(InvalidInput, match="with a time zone"):
        app.schedule(task, at=datetime(2031, 1, 1))  # noqa: DTZ001
    assert app.schedules == {}


def test_a_task_knows_its_tick() -> None:
    told = '[[],{},{"schedule":"s","tick":1000000,"previous_tick":null,"previous_success":0}]'
    claim = Claim(1, 1, "m.f", "sync", 1, 3, None, "q", None, None, 0, 0, told)
    ctx = Context.from_claim(claim)
    assert (ctx.schedule, ctx.tick) == ("s", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert (ctx.previous_tick, ctx.previous_success) == (None, datetime(1970, 1, 1, tzinfo=UTC))
    assert Context.detached().tick is None
