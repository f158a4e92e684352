"""What was not said of a job is filled in when it is stored, as it is configured then."""

from __future__ import annotations

from covey.core.model import Spec
from covey.core.specs import shell_spec, task_spec
from covey.core.view import JobView
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, after, child, sibling


def said_of(job: JobView) -> tuple[object, ...]:
    return job.queue, job.priority, job.max_attempts, job.timeout


def stored(engine: Engine, spec: Spec) -> JobView:
    return engine.job(engine.enqueue([spec])[0].id)


def test_a_job_has_what_is_configured_at_that_moment(engine: Engine) -> None:
    assert said_of(stored(engine, shell_spec("true"))) == ("default", 0, 3, 3600.0)
    assert said_of(stored(engine, task_spec("t"))) == ("default", 0, 3, None)
    engine.set_setting("max_attempts", "9")
    engine.set_setting("job_timeout_seconds", "12")
    assert said_of(stored(engine, shell_spec("true"))) == ("default", 0, 9, 12.0)
    assert said_of(stored(engine, task_spec("t"))) == ("default", 0, 9, None)
    engine.set_setting("job_timeout_seconds", "never")
    engine.unset_setting("max_attempts")
    assert said_of(stored(engine, shell_spec("true"))) == ("default", 0, 3, None)


def test_what_was_said_wins(engine: Engine) -> None:
    engine.set_setting("max_attempts", "9")
    spec = shell_spec("true", queue="q", priority=0, max_attempts=1, timeout_s="never")
    assert said_of(stored(engine, spec)) == ("q", 0, 1, None)


def test_a_setting_of_somebody_else_holds_a_second_later_at_the_latest(
    engine: Engine, clock: FakeClock, pool: HandPool
) -> None:
    stored(engine, shell_spec("true"))
    with engine.store.transaction():
        engine.store.ask("set_config", key="max_attempts", value="9")
    clock.advance(1)
    assert stored(engine, shell_spec("true")).max_attempts == 9


def test_what_a_run_spawns_is_filled_in_when_the_run_succeeds(engine: Engine, pool: HandPool) -> None:
    root = stored(engine, shell_spec("true", queue="q", priority=5, max_attempts=2))
    claim = pool.claim_one()
    engine.set_setting("max_attempts", "9")
    engine.set_setting("job_timeout_seconds", "12")
    pool.succeed(claim, spawned=[child(key="a"), child(key="b", queue="r", priority=0), after()])
    inherits, chooses = engine.tree(root.id).children
    uncle = engine.job(chooses.id + 1)
    assert said_of(inherits) == ("q", 5, 9, 12.0)
    assert said_of(chooses) == ("r", 0, 9, 12.0)
    assert said_of(uncle) == ("q", 5, 9, 12.0)
    pool.succeed(pool.claim_one(), spawned=[sibling(key="c", timeout_s="never")])
    assert said_of(engine.tree(root.id).children[2]) == ("q", 5, 9, None)
