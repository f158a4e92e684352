"""Schedules that apps declare: judged when a pool comes, leaves or is lost, and at no other time."""

from __future__ import annotations

from typing import Any

from covey.core.schedule_views import ScheduleBody
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool


def declared(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "every": "1h", "job": {"task": f"m.{name}"}} | fields


def pool(engine: Engine, *schedules: dict[str, Any], app: str = "shop", **fields: Any) -> HandPool:
    return HandPool(engine, project=app, schedules=list(schedules), **fields)


def states(engine: Engine) -> dict[str, str]:
    return {view.name: view.state for view in engine.schedules()}


def refused(engine: Engine) -> list[str]:
    return [event.text or "" for event in engine.events() if event.kind == "schedule_refused"]


def test_a_pool_brings_the_schedules_of_its_app(engine: Engine) -> None:
    pool(engine, declared("a"), declared("b", every="5m"))
    (a, b) = engine.schedules()
    assert (a.name, a.source, a.app, a.every) == ("a", "code", "shop", 3600)
    assert b.every == 300


def test_the_same_again_changes_nothing(engine: Engine, clock: FakeClock) -> None:
    pool(engine, declared("a"))
    engine.pause_schedule("a", reason="not now")
    before = engine.schedule("a")
    clock.advance(60)
    pool(engine, declared("a"))
    assert engine.schedule("a") == before


def test_two_versions_live_side_by_side_and_the_youngest_pool_says_what_a_name_is(engine: Engine) -> None:
    old = pool(engine, declared("a", every="1h"), declared("gone"))
    new = pool(engine, declared("a", every="2h"), declared("fresh"))
    assert states(engine) == {"a": "active", "fresh": "active", "gone": "active"}
    assert engine.schedule("a").every == 7200
    engine.leave(old.id)
    assert states(engine) == {"a": "active", "fresh": "active", "gone": "retired"}
    late = pool(engine, declared("a", every="1h"), declared("gone"))  # the old version, restarting last
    assert engine.schedule("a").every == 3600
    assert states(engine)["gone"] == "active"
    late.lose(engine)
    assert engine.schedule("a").every == 7200
    assert states(engine)["gone"] == "retired"
    engine.leave(new.id)
    assert states(engine) == {"a": "active", "fresh": "active", "gone": "retired"}, "nobody is left to judge by"


def test_what_is_retired_does_not_fire(engine: Engine, clock: FakeClock) -> None:
    old = pool(engine, declared("a"))
    worker = pool(engine)
    engine.leave(old.id)
    clock.advance(7200)
    assert worker.turn(want=1).claims == []
    assert engine.ticks("a") == []


def test_a_rolling_deploy_loses_no_tick_and_doubles_none(engine: Engine, clock: FakeClock) -> None:
    pools = [pool(engine, declared("a", overlap="allow")) for _ in range(3)]
    for step in range(6):
        clock.advance(1800)
        pools[0].turn(want=1)
        engine.leave(pools.pop(0).id)
        pools.append(pool(engine, declared("a", overlap="allow", jitter=None), declared(f"new-{step}")))
        pools[-1].turn(want=1)
    ticks = [tick for tick in engine.ticks("a") if tick.decision == "fired"]
    assert len(ticks) == 3


def test_a_name_that_is_somebody_elses_is_refused_and_the_others_are_not(engine: Engine) -> None:
    engine.put_schedule("mine", ScheduleBody(job={"command": "true"}, every="1h"))
    pool(engine, declared("theirs"), app="other")
    pool(engine, declared("mine"), declared("theirs", every="9m"), declared("sound"), declared("odd", every="soon"))
    assert engine.schedule("mine").source == "api"
    assert engine.schedule("theirs").every == 3600
    assert engine.schedule("sound").app == "shop"
    assert len(refused(engine)) == 3
    assert any("declared by the app other" in text for text in refused(engine))


def test_what_is_declared_is_changed_in_code_but_anybody_may_pause_it(engine: Engine) -> None:
    import pytest

    from covey.errors import Refused

    pool(engine, declared("a"))
    with pytest.raises(Refused, match="declared in code, by the app 'shop'"):
        engine.put_schedule("a", ScheduleBody(job={"command": "true"}, every="1h"))
    assert engine.pause_schedule("a").state == "paused"
