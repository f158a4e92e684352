"""The rules of one job: which signal turns which state into what. Pure; SQL applies what is decided here.

`RULES` is the whole table as data. A pair that is not in it is refused, and a test walks every state × signal.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal

from msgspec import Struct

from ..errors import Refused, StillStopping
from .model import ENDED, MAX_INTERRUPTIONS, JobRow, State
from .retry import backoff_s

SECOND = 1_000_000
LONGEST_S = 100 * 365 * 86400.0  # no delay is longer, so that every instant has a year that can be written

Name = Literal[
    "due",
    "block",
    "unblocked",
    "claim",
    "success",
    "failure",
    "abort",
    "snooze",
    "taken_back",
    "stopped",
    "worker_lost",
    "pool_lost",
    "stranded",
    "gone",
    "children_ended",
    "child_reopened",
    "expired",
    "cancel",
    "retry",
]
SIGNALS: tuple[Name, ...] = Name.__args__  # type: ignore[attr-defined]


class Signal(Struct, frozen=True):
    """Something that happened to a job."""

    name: Name
    error: str | None = None
    after_s: float | None = None  # failure: instead of the back-off; snooze: how long
    children: int = 0  # success: how many children there are now
    joins: bool = False  # success: children were asked for, so that a join is due even if there are none
    all: bool = False  # retry: delete the children and start over
    blocked: bool = False  # retry: what it waits for has not ended yet


class Transition(Struct, frozen=True):
    """What a signal does to a row. Counters are steps, so that one statement can apply a Transition to many rows."""

    state: State
    fence: int = 0
    attempts: int = 0
    fresh_attempts: bool = False  # attempts begin at 0 again
    interruptions: int = 0
    run_at: int | None = None
    keeps_pool: bool = False
    error: str | None = None
    keeps_error: bool = False
    phase: str | None = None
    drops_children: bool = False
    opens_children: bool = False  # descendants that are not completed become pending
    charged: bool = False  # an attempt that ended badly: worth a row of history

    @property
    def ended(self) -> bool:
        return self.state in ENDED


Rule = Callable[[JobRow, Signal, int, Random], Transition]

PENDING = Transition("pending")
BLOCKED = Transition("blocked")
WAITING = Transition("waiting")
JOIN = Transition("pending", phase="join", fresh_attempts=True)
CLAIMED = Transition("processing", fence=1, attempts=1, keeps_pool=True)
COMPLETED = Transition("completed")
HANDED_BACK = Transition("pending", attempts=-1)
STRANDED = Transition("pending", fence=1, attempts=-1)
RELEASED = Transition("cancelled", keeps_error=True)


def ready(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    return PENDING


def claim(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    return CLAIMED


def block(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    return BLOCKED


def unblock(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """What it waited for is over; its own hour may still have to come."""
    return Transition("scheduled", run_at=row.run_at) if row.run_at is not None and row.run_at > now else PENDING


def succeed(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """Children first. A join whose children all turned out to be somebody else's is due at once."""
    if signal.children:
        return WAITING
    return JOIN if signal.joins and row.phase == "run" else COMPLETED


def fail(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """Back off while attempts are left, else bury."""
    error = signal.error or "failed without a reason"
    if row.attempts >= row.max_attempts:
        return Transition("dead", error=error, charged=True)
    delay_s = signal.after_s
    if delay_s is None:
        delay_s = backoff_s(
            row.attempts, base=row.backoff_base, cap_s=row.backoff_cap_s, jitter=bool(row.jitter), rng=rng
        )
    return Transition("failed", run_at=_later(now, delay_s), error=error, charged=True)


def abort(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    return Transition("dead", error=signal.error or "aborted", charged=True)


def snooze(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    return Transition("scheduled", attempts=-1, run_at=_later(now, signal.after_s or 0.0))


def _later(now: int, delay_s: float) -> int:
    """A task may ask for any delay, also for one that is no number: a report must never fail for it."""
    return now + int(min(delay_s, LONGEST_S) * SECOND) if delay_s > 0 else now


def hand_back(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    return HANDED_BACK


def strand(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """Claimed in an answer that its pool never saw. The fence rises, should the answer turn up after all."""
    return STRANDED


def lose_pool(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """A pool runs no user code, so its loss costs the job nothing; bounded, because something may well kill pools."""
    if row.interruptions + 1 > MAX_INTERRUPTIONS:
        error = f"interrupted {row.interruptions + 1} times: each time its pool was lost while it ran"
        if signal.error:
            error += f"; the last time, {signal.error}"
        return Transition("dead", fence=1, interruptions=1, error=error, charged=True)
    return Transition("pending", fence=1, attempts=-1, interruptions=1)


def release(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    return RELEASED


def settle(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """The last child has ended: the join runs, or the job ends as its children did."""
    if row.joins and (not row.children_failed or row.on_error == "collect"):
        return JOIN
    if row.children_failed:
        return Transition(
            "dead", error=signal.error or f"{row.children_failed} of {row.children_total} children failed"
        )
    return COMPLETED


def wait_again(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """One of its children is to run once more, and after it the join, if there is one."""
    return Transition("waiting", phase="run")


def expire(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """The time of its whole tree is over. What runs is left to its claim's time-out, which ends no later."""
    return Transition("dead", fence=1, error=signal.error or "its tree ran out of time")


def cancel(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """A running family keeps its pool, and with it limits and lanes, until it is gone."""
    return Transition("cancelled", fence=1, keeps_pool=row.pool is not None, error=signal.error)


def cancel_below(error: str) -> Transition:
    """What a cancel makes of every unfinished descendant, whatever its state."""
    return Transition("cancelled", fence=1, keeps_pool=True, error=error)


def try_again(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    return Transition("pending", run_at=None)


def reopen(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """A person wants it after all: a fresh count of attempts, the history kept."""
    if row.pool is not None:
        raise StillStopping(f"job {row.id} is still stopping; its processes are not gone yet")
    state: State = "blocked" if signal.blocked else "pending"
    if signal.all:
        return Transition(state, fresh_attempts=True, phase="run", drops_children=True)
    if row.children_total and row.phase == "run":
        return Transition("waiting", fresh_attempts=True, opens_children=True)
    return Transition(state, fresh_attempts=True)


RULES: dict[tuple[State, Name], Rule] = {
    ("scheduled", "due"): ready,
    ("failed", "due"): ready,
    ("pending", "block"): block,
    ("scheduled", "block"): block,
    ("blocked", "unblocked"): unblock,
    ("pending", "claim"): claim,
    ("processing", "success"): succeed,
    ("processing", "failure"): fail,
    ("processing", "worker_lost"): fail,
    ("processing", "abort"): abort,
    ("processing", "snooze"): snooze,
    ("processing", "taken_back"): hand_back,
    ("processing", "stopped"): hand_back,
    ("processing", "pool_lost"): lose_pool,
    ("processing", "stranded"): strand,
    ("cancelled", "gone"): release,
    ("cancelled", "stranded"): release,
    ("cancelled", "pool_lost"): release,
    ("waiting", "children_ended"): settle,
    ("waiting", "child_reopened"): wait_again,
    ("dead", "child_reopened"): wait_again,
    ("scheduled", "expired"): expire,
    ("blocked", "expired"): expire,
    ("pending", "expired"): expire,
    ("waiting", "expired"): expire,
    ("failed", "expired"): expire,
    ("scheduled", "cancel"): cancel,
    ("blocked", "cancel"): cancel,
    ("pending", "cancel"): cancel,
    ("processing", "cancel"): cancel,
    ("waiting", "cancel"): cancel,
    ("failed", "cancel"): cancel,
    ("failed", "retry"): try_again,
    ("dead", "retry"): reopen,
    ("cancelled", "retry"): reopen,
}

ADVICE: dict[tuple[State, Name], str] = {
    ("completed", "retry"): "it completed; `retry --again` queues it as a new job",
    ("pending", "retry"): "it is already waiting for a worker",
    ("processing", "retry"): "it is running; cancel it first",
    ("scheduled", "retry"): "it has not run yet; `edit --run-at now` starts it sooner",
    ("blocked", "retry"): "it waits for other jobs",
    ("waiting", "retry"): "its children are still at work",
    ("completed", "cancel"): "it has completed already",
    ("dead", "cancel"): "it is a dead letter already; `remove` deletes it",
    ("cancelled", "cancel"): "it is cancelled already",
}


def decide(row: JobRow, signal: Signal, now: int, rng: Random) -> Transition:
    """The change that ``signal`` makes to ``row``; Refused if it makes none."""
    rule = RULES.get((row.state, signal.name))
    if rule is None:
        advice = ADVICE.get((row.state, signal.name), f"a job that is {row.state} cannot be changed that way")
        raise Refused(f"cannot {signal.name.replace('_', ' ')} job {row.id}: {advice}")
    return rule(row, signal, now, rng)
