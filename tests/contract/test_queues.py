"""Queues and settings: pause, resume, configuration."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey import settings as config
from covey.core.machine import SECOND
from covey.core.view import rfc3339
from covey.engine.engine import Engine
from covey.errors import InvalidInput, NotFound
from covey.testing import FakeClock
from tests.kit import HandPool, command


def test_a_pause_during_a_backlog_holds_from_the_next_turn(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command(queue="a") for _ in range(1000)] + [command(queue="b")])
    assert len(pool.claim(10)) == 10
    engine.pause("a")
    assert [claim.queue for claim in pool.claim(10)] == ["b"]
    assert pool.claim(10) == []
    engine.resume("a")
    assert len(pool.claim(10)) == 10


def test_a_pause_for_a_while_ends_by_itself_with_an_event(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.enqueue([command()])
    engine.pause("default", for_s=3600)
    (queue,) = engine.queues()
    assert (queue.paused, queue.resume_at) == (True, rfc3339(clock() + 3600 * SECOND))
    clock.advance(3599)
    assert pool.claim(1) == []
    clock.advance(1)
    assert not engine.queues()[0].paused
    assert len(pool.claim(1)) == 1
    clock.advance(60)
    pool.beat()
    assert "resumed" in [event.kind for event in engine.events()]


def test_pausing_again_replaces_the_end_of_the_pause(engine: Engine, clock: FakeClock) -> None:
    engine.pause("a", for_s=60)
    engine.pause("a")
    clock.advance(61)
    assert engine.queues()[0].paused


def test_a_queue_may_be_paused_before_its_first_job(engine: Engine, pool: HandPool) -> None:
    engine.pause("later")
    engine.enqueue([command(queue="later")])
    assert pool.claim(1) == []
    assert [(queue.name, queue.paused) for queue in engine.queues()] == [("later", True)]


def test_a_running_job_of_a_paused_queue_may_end_and_be_retried_later(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    engine.pause("default")
    pool.fail(claim)
    clock.advance(10)
    assert pool.claim(1) == []
    engine.resume("default")
    assert pool.claim_one().id == made.id


def test_bad_pauses_are_refused(engine: Engine) -> None:
    for name in ("", "a b", "a\x00"):
        with pytest.raises(InvalidInput):
            engine.pause(name)
    with pytest.raises(InvalidInput):
        engine.pause("a", for_s=-1.0)
    with pytest.raises(InvalidInput):
        engine.pause("a", for_s=float("nan"))
    with pytest.raises(NotFound):
        engine.resume("never-heard-of")
    assert engine.queues() == []


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_are_shared_through_the_database(engine: Engine, connect: Callable[[], Engine]) -> None:
    assert engine.set_setting("max_attempts", "5") == ("max_attempts", 5)
    other = connect()
    assert other.settings()["max_attempts"] == 5
    assert other.stored_settings() == {"max_attempts": "5"}
    assert other.unset_setting("max-attempts") == "max_attempts"
    assert engine.settings()["max_attempts"] == config.SETTINGS["max_attempts"].default == 3


@pytest.mark.parametrize("name", ["max_attempts", "max-attempts", "max_retries", "max-retries", "MAX-RETRIES"])
def test_every_spelling_of_a_setting_is_the_same_setting(engine: Engine, name: str) -> None:
    assert engine.set_setting(name, " 4 ") == ("max_attempts", 4)
    assert engine.settings()["max_attempts"] == 4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_attempts", "0"),
        ("max_retries", "0"),
        ("max_attempts", "-1"),
        ("max_attempts", "abc"),
        ("max_attempts", ""),
        ("max_attempts", "2.5"),
        ("backoff_base", "0.5"),
        ("backoff_base", "nan"),
        ("backoff_base", "inf"),
        ("max_backoff_seconds", "-1"),
        ("job_timeout_seconds", "0"),
        ("job_timeout_seconds", "soon"),
        ("durability", "maybe"),
        ("backoff_jitter", "perhaps"),
        ("lock_lease_seconds", "0"),
        ("no_such_key", "1"),
        ("", "1"),
    ],
)
def test_a_wrong_key_or_value_is_refused_and_nothing_changes(engine: Engine, name: str, text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        engine.set_setting(name, text)
    assert refusal.value.exit_code == 2
    assert "\n" not in str(refusal.value)
    assert engine.stored_settings() == {}


def test_no_runs_at_all_is_refused_with_an_explanation(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match="counts all runs"):
        engine.set_setting("max_retries", "0")


def test_a_lease_stays_at_least_three_beats_long(engine: Engine) -> None:
    with pytest.raises(InvalidInput):
        engine.set_setting("lock_lease_seconds", "10")
    engine.set_setting("heartbeat_seconds", "1")
    engine.set_setting("lock_lease_seconds", "3")
    with pytest.raises(InvalidInput):
        engine.set_setting("heartbeat_seconds", "2")
    with pytest.raises(InvalidInput):  # the default beat would be too slow for this lease
        engine.unset_setting("heartbeat_seconds")
    assert engine.stored_settings() == {"heartbeat_seconds": "1", "lock_lease_seconds": "3"}
    engine.unset_setting("lock_lease_seconds")
    engine.unset_setting("heartbeat_seconds")
    assert engine.stored_settings() == {}


def test_never_switches_a_limit_off(engine: Engine) -> None:
    assert engine.set_setting("job_timeout_seconds", "never") == ("job_timeout_seconds", None)
    assert engine.settings()["job_timeout_seconds"] is None


def test_a_pool_gets_the_settings_when_it_registers(engine: Engine) -> None:
    engine.set_setting("poll_seconds", "0.5")
    pool = HandPool(engine)
    assert pool.config["poll_seconds"] == 0.5
    assert pool.config.keys() == config.SETTINGS.keys()


def test_what_was_done_to_a_queue_is_in_the_events(engine: Engine) -> None:
    engine.set_queue("q", serial=True)
    engine.pause("q")
    engine.resume("q")
    assert [(event.kind, event.text) for event in engine.events()] == [
        ("resumed", "q"),
        ("paused", "q"),
        ("queue_set", "q"),
    ]
