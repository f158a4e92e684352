"""The state × signal table of the architecture, written out once more and compared with the rules."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from covey.core.machine import ADVICE, RULES, SECOND, SIGNALS, Signal, Transition, decide
from covey.core.model import ENDED, MAX_INTERRUPTIONS, STATES, JobRow
from covey.errors import Refused, StillStopping

NOW = 1_000 * SECOND


def row(state: str, **fields: Any) -> JobRow:
    values: dict[str, Any] = {
        "id": 7,
        "state": state,
        "fence": 4,
        "attempts": 1,
        "max_attempts": 3,
        "interruptions": 0,
        "pool": 1 if state == "processing" else None,
        "phase": "run",
        "backoff_base": 2.0,
        "backoff_cap_s": 300.0,
        "jitter": 0,
        "parent_id": None,
        "root_id": 7,
        "children_total": 0,
        "children_unfinished": 0,
        "children_failed": 0,
        "joins": 0,
        "on_error": None,
        "queue": "default",
        "key": None,
    }
    return JobRow(**values | fields)


def becomes(row: JobRow, name: str, **fields: Any) -> Transition:
    return decide(row, Signal(name, **fields), NOW, Random(0))  # type: ignore[arg-type]


PENDING = Transition("pending")
HANDED_BACK = Transition("pending", attempts=-1)
CANCELLED = Transition("cancelled", fence=1, error="e")
EXPIRED = Transition("dead", fence=1, error="e")

# What a job with one of three attempts used, without children, becomes. Every pair that is missing is refused.
TABLE: dict[tuple[str, str], Transition] = {
    ("scheduled", "due"): PENDING,
    ("failed", "due"): PENDING,
    ("pending", "block"): Transition("blocked"),
    ("scheduled", "block"): Transition("blocked"),
    ("blocked", "unblocked"): PENDING,
    ("pending", "claim"): Transition("processing", fence=1, attempts=1, keeps_pool=True),
    ("processing", "success"): Transition("completed"),
    ("processing", "failure"): Transition("failed", run_at=NOW + 2 * SECOND, error="e", charged=True),
    ("processing", "worker_lost"): Transition("failed", run_at=NOW + 2 * SECOND, error="e", charged=True),
    ("processing", "abort"): Transition("dead", error="e", charged=True),
    ("processing", "snooze"): Transition("scheduled", attempts=-1, run_at=NOW),
    ("processing", "taken_back"): HANDED_BACK,
    ("processing", "stopped"): HANDED_BACK,
    ("processing", "pool_lost"): Transition("pending", fence=1, attempts=-1, interruptions=1),
    ("processing", "stranded"): Transition("pending", fence=1, attempts=-1),
    ("processing", "cancel"): Transition("cancelled", fence=1, keeps_pool=True, error="e"),
    ("cancelled", "gone"): Transition("cancelled", keeps_error=True),
    ("cancelled", "stranded"): Transition("cancelled", keeps_error=True),
    ("cancelled", "pool_lost"): Transition("cancelled", keeps_error=True),
    ("waiting", "children_ended"): Transition("completed"),
    ("waiting", "child_reopened"): Transition("waiting", phase="run"),
    ("dead", "child_reopened"): Transition("waiting", phase="run"),
    ("scheduled", "expired"): EXPIRED,
    ("blocked", "expired"): EXPIRED,
    ("pending", "expired"): EXPIRED,
    ("waiting", "expired"): EXPIRED,
    ("failed", "expired"): EXPIRED,
    ("scheduled", "cancel"): CANCELLED,
    ("blocked", "cancel"): CANCELLED,
    ("pending", "cancel"): CANCELLED,
    ("waiting", "cancel"): CANCELLED,
    ("failed", "cancel"): CANCELLED,
    ("failed", "retry"): PENDING,
    ("dead", "retry"): Transition("pending", fresh_attempts=True),
    ("cancelled", "retry"): Transition("pending", fresh_attempts=True),
}


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_meets_every_signal(state: str, signal: str) -> None:
    if expected := TABLE.get((state, signal)):
        assert becomes(row(state), signal, error="e") == expected
    else:
        with pytest.raises(Refused) as refusal:
            becomes(row(state), signal, error="e")
        assert "7" in str(refusal.value)


def test_the_table_and_the_rules_name_the_same_pairs() -> None:
    assert TABLE.keys() == RULES.keys()


def test_an_ended_row_changes_only_by_retry_or_by_letting_its_pool_go() -> None:
    allowed = {signal for state, signal in RULES if state in ENDED}
    assert allowed == {"retry", "child_reopened", "gone", "stranded", "pool_lost"}
    for state, signal in RULES:
        if state in ENDED and signal not in ("retry", "child_reopened"):
            assert becomes(row(state), signal).state == state


def test_no_rule_lowers_a_fence_and_every_claim_reap_and_cancel_of_a_run_raises_it() -> None:
    for (state, signal), change in TABLE.items():
        assert change.fence >= 0
        if signal in ("claim", "cancel") or (state == "processing" and signal in ("pool_lost", "stranded")):
            assert change.fence == 1


def test_an_attempt_is_counted_at_the_claim_and_given_back_only_where_the_job_is_not_to_blame() -> None:
    given_back = {signal for (_, signal), change in TABLE.items() if change.attempts == -1}
    assert given_back == {"snooze", "taken_back", "stopped", "pool_lost", "stranded"}
    assert [signal for (_, signal), change in TABLE.items() if change.attempts == 1] == ["claim"]


def test_the_last_attempt_s_failure_is_death() -> None:
    for signal in ("failure", "worker_lost"):
        for attempts, state in ((1, "failed"), (2, "failed"), (3, "dead"), (4, "dead")):
            change = becomes(row("processing", attempts=attempts), signal, error="why")
            assert (change.state, change.error, change.charged) == (state, "why", True)
    assert becomes(row("processing", max_attempts=1), "failure").error == "failed without a reason"


def test_a_failure_may_name_its_own_delay() -> None:
    assert becomes(row("processing"), "failure", after_s=0.5).run_at == NOW + SECOND // 2
    assert becomes(row("processing"), "snooze", after_s=60.0).run_at == NOW + 60 * SECOND


@pytest.mark.parametrize("after_s", [float("nan"), float("-inf"), -1.0])
def test_a_delay_that_is_no_delay_means_now(after_s: float) -> None:
    assert becomes(row("processing"), "failure", after_s=after_s).run_at == NOW
    assert becomes(row("processing"), "snooze", after_s=after_s).run_at == NOW


def test_a_pool_may_be_lost_ten_times() -> None:
    at_limit = row("processing", interruptions=MAX_INTERRUPTIONS - 1)
    assert becomes(at_limit, "pool_lost").state == "pending"
    above = becomes(replace(at_limit, interruptions=MAX_INTERRUPTIONS), "pool_lost")
    assert (above.state, above.fence, above.attempts) == ("dead", 1, 0)
    assert "11 times" in (above.error or "")


def test_a_family_that_is_still_stopping_is_not_retried() -> None:
    for state in ("cancelled", "dead"):
        with pytest.raises(StillStopping):
            becomes(row(state, pool=3), "retry")


# ── families ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_success_with_children_waits_for_them() -> None:
    assert becomes(row("processing"), "success", children=2) == Transition("waiting")


def test_a_join_is_due_at_once_when_the_children_it_asked_for_are_somebody_else_s() -> None:
    change = becomes(row("processing"), "success", joins=True)
    assert (change.state, change.phase, change.fresh_attempts) == ("pending", "join", True)
    assert becomes(row("processing", phase="join"), "success", joins=True) == Transition("completed")


def test_what_is_unblocked_still_waits_for_its_own_hour() -> None:
    later = NOW + SECOND
    assert becomes(row("blocked", run_at=later), "unblocked") == Transition("scheduled", run_at=later)
    assert becomes(row("blocked", run_at=NOW), "unblocked") == PENDING


def test_a_retried_job_whose_predecessors_have_not_ended_is_blocked() -> None:
    assert becomes(row("cancelled"), "retry", blocked=True) == Transition("blocked", fresh_attempts=True)


@pytest.mark.parametrize(
    ("joins", "on_error", "failed", "expected"),
    [
        (0, "wait", 0, ("completed", None)),
        (0, "wait", 1, ("dead", None)),
        (1, "wait", 0, ("pending", "join")),
        (1, "wait", 1, ("dead", None)),
        (1, "cancel", 1, ("dead", None)),
        (1, "collect", 1, ("pending", "join")),
        (0, "collect", 1, ("dead", None)),
    ],
)
def test_a_waiting_parent_ends_as_its_children_did_or_joins(
    joins: int, on_error: str, failed: int, expected: tuple[str, str | None]
) -> None:
    parent = row("waiting", children_total=3, children_failed=failed, joins=joins, on_error=on_error)
    change = becomes(parent, "children_ended")
    assert (change.state, change.phase) == expected
    assert change.fresh_attempts == (change.phase == "join")
    assert (change.error is not None) == (change.state == "dead")


def test_a_retried_parent_waits_for_its_reopened_children_unless_everything_is_to_run_again() -> None:
    parent = row("dead", children_total=3)
    assert becomes(parent, "retry") == Transition("waiting", fresh_attempts=True, opens_children=True)
    assert becomes(parent, "retry", all=True) == Transition(
        "pending", fresh_attempts=True, phase="run", drops_children=True
    )
    in_join = row("dead", children_total=3, phase="join")
    assert becomes(in_join, "retry") == Transition("pending", fresh_attempts=True)


@pytest.mark.parametrize(
    ("state", "signal", "error"),
    [
        ("processing", "failure", "failed without a reason"),
        ("processing", "worker_lost", "failed without a reason"),
        ("processing", "abort", "aborted"),
        ("waiting", "expired", "its tree ran out of time"),
    ],
)
def test_whoever_gives_no_reason_is_given_one(state: str, signal: str, error: str) -> None:
    assert becomes(row(state), signal).error == error


@pytest.mark.parametrize(
    ("state", "name", "advice"),
    [
        ("completed", "retry", "`retry --again` queues it as a new job"),
        ("pending", "retry", "already waiting for a worker"),
        ("processing", "retry", "cancel it first"),
        ("scheduled", "retry", "`edit --run-at now` starts it sooner"),
        ("blocked", "retry", "it waits for other jobs"),
        ("waiting", "retry", "its children are still at work"),
        ("completed", "cancel", "it has completed already"),
        ("dead", "cancel", "`remove` deletes it"),
        ("cancelled", "cancel", "it is cancelled already"),
    ],
)
def test_who_is_refused_hears_what_to_do_instead(state: str, name: Any, advice: str) -> None:
    with pytest.raises(Refused, match=advice):
        decide(row(state), Signal(name), NOW, Random(1))
    assert len(ADVICE) == 9
