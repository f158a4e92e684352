"""The checks, by name, and what a run has come to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct
from tests.kit.checker import check_queue

from covey.core.model import ENDED, MAX_INTERRUPTIONS

from . import audit
from .evidence import Evidence, Row
from .jobs import gather, is_command, is_tree

PAUSE = "pause"  # SIGSTOP for longer than the lease, then SIGCONT: no kill, but counted beside them
KILLED = ("worker lost: ", "killed by signal 9", "exit code 137", "interrupted ")  # how runs end that were killed


class Findings(Struct):
    """What the checker has to say. ``problems`` is empty when every promise was kept.

    ``missed``: kinds that should have been struck, and nobody was there.
    """

    checks: dict[str, list[str]]
    strikes: Counter[str]
    figures: dict[str, int]
    seconds: float
    missed: Counter[str] = Counter()

    @property
    def problems(self) -> list[str]:
        return [f"{name}: {problem}" for name, found in self.checks.items() for problem in found]

    @property
    def kills(self) -> Counter[str]:
        return Counter({kind: count for kind, count in self.strikes.items() if kind != PAUSE})


def verdict(evidence: Evidence) -> dict[str, list[str]]:
    """Every broken promise in one line each, under the name of its check."""
    return {name: list(check(evidence)) for name, check in CHECKS.items()}


# ── what clients were told ──────────────────────────────────────────────────────────────────────────────────────────


def lost(evidence: Evidence) -> Iterator[str]:
    """Acknowledged, and not there under that id."""
    for request in evidence.requests:
        for id, token in request.acknowledged():
            row = evidence.rows.get(id)
            if row is None:
                yield f"job {id} was acknowledged ({token}) and is not there"
            elif row.token != token:
                yield f"job {id} was acknowledged as {token} and is {row.token}"


def unexpected(evidence: Evidence) -> Iterator[str]:
    """There, and nobody asked for it, or not so often, or its client was told that nothing was written."""
    asked = {token: request for request in evidence.requests for token in request.tokens()}
    there = Counter(row.token for row in evidence.roots)
    for token, count in there.items():
        if token not in asked:
            yield f"{count} jobs {token} that no client asked for"
        elif count > 1:
            yield f"{count} jobs {token}, which was asked for once"
        elif (why := asked[token].refused) is not None:
            yield f"job {token} is there although its client was told: {why}"
    for request in evidence.requests:
        part = sum(token in there for token in request.tokens())
        if not request.is_answered and 0 < part < request.count:
            yield f"{part} of the {request.count} jobs of request {request.name}: all or none must be there"


# ── how jobs ended ──────────────────────────────────────────────────────────────────────────────────────────────────


def completed_twice(evidence: Evidence) -> Iterator[str]:
    ends = Counter(step.job for step in evidence.steps if step.state == "completed")
    yield from (f"job {job} completed {count} times" for job, count in ends.items() if count > 1)


def stranded(evidence: Evidence) -> Iterator[str]:
    """Not ended although all is drained; held by a pool that is gone; ended in a way that nobody asked for."""
    for row in evidence.rows.values():
        if row.state not in ENDED:
            yield f"job {row.id} is {row.state}"
        elif row.pool is not None:
            yield f"job {row.id} is {row.state} and pool {row.pool} still holds it"
        elif row.state == "cancelled" and not _was_cancelled(evidence, row):
            yield f"job {row.id} is cancelled and nobody asked for it"
        elif row.state == "dead" and row.interruptions <= MAX_INTERRUPTIONS and not row.children_failed:
            yield f"job {row.id} is dead after {row.attempts} attempts and {row.interruptions} interruptions"


def _was_cancelled(evidence: Evidence, row: Row) -> bool:
    """By somebody, with its parent, or behind a sibling that did not complete."""
    if row.id in evidence.cancels:
        return True
    parent = evidence.rows.get(row.parent_id or 0)
    if parent is None:
        return False
    before = [each for each in evidence.families[parent.id] if (each.child_no or 0) < (row.child_no or 0)]
    behind = parent.child_mode == "serial" and any(each.state in ("dead", "cancelled") for each in before)
    return parent.state == "cancelled" or behind


def never_ran(evidence: Evidence) -> Iterator[str]:
    """Completed, and no run of it left a trace."""
    ran = {job for job, _, _ in evidence.starts}
    yield from (
        f"job {row.id} never ran" for row in evidence.rows.values() if row.state == "completed" and row.id not in ran
    )


# ── how they got there ──────────────────────────────────────────────────────────────────────────────────────────────


def fences(evidence: Evidence) -> Iterator[str]:
    yield from audit.wrong_steps(evidence.steps)


def attempts(evidence: Evidence) -> Iterator[str]:
    """Counted at the claim, told to the run, given back when it was not the job's; none charged without a start."""
    yield from audit.wrong_counts(evidence.steps)
    claims = Counter((step.job, step.phase, step.attempts) for step in evidence.steps if step.is_claim)
    for run, count in evidence.starts.items():
        if count > claims[run]:
            yield f"job {run[0]}: attempt {run[2]} ({run[1]}) started {count} times and was claimed {claims[run]} times"
    ended_by_kill = {run for run, _, error in evidence.attempts if error.startswith(KILLED)}
    for step in evidence.steps:
        run = (step.job, step.phase, step.attempts)
        if step.is_charged and run not in evidence.starts and run not in ended_by_kill:
            yield f"job {step.job}: attempt {step.attempts} ({step.phase}) was charged and never started"
    for (job, phase, number), outcome, error in evidence.attempts:
        if error and outcome != "cancelled" and not error.startswith(KILLED):
            yield f"job {job}: attempt {number} ({phase}) ended by itself: {outcome}, {error}"
    for row in evidence.rows.values():
        if not 0 <= row.attempts <= row.max_attempts:
            yield f"job {row.id}: {row.attempts} attempts of at most {row.max_attempts}"


def overlap(evidence: Evidence) -> Iterator[str]:
    yield from (f"job {job} ran twice at a time" for job in evidence.overlaps)


# ── the whole ───────────────────────────────────────────────────────────────────────────────────────────────────────


def conservation(evidence: Evidence) -> Iterator[str]:
    """What is there is what was enqueued and what was spawned, in whatever state; and each row is sound in itself."""
    asked = {token for request in evidence.requests for token in request.tokens()}
    enqueued = sum(row.token in asked for row in evidence.roots)
    spawned = sum(row.children_total for row in evidence.rows.values())
    counted = sum(evidence.engine.status().counts.values())
    if not counted == len(evidence.rows) == enqueued + spawned:
        yield f"{enqueued} enqueued and {spawned} spawned; there are {len(evidence.rows)}, and status counts {counted}"
    yield from check_queue(evidence.engine)


def trees(evidence: Evidence) -> Iterator[str]:
    """A family is what its run asked for, complete, added up, and its parent ended last."""
    ends = {step.job: step.n for step in evidence.steps if step.state in ENDED and step.was not in ENDED}
    spawned = {step.job for step in evidence.steps if step.state == "waiting"}
    yield from (f"job {id} has children and is not there" for id in evidence.families.keys() - evidence.rows.keys())
    for row in evidence.rows.values():
        children = evidence.families.get(row.id, [])
        if not is_tree(row.task):
            if children:
                yield f"job {row.id} has {len(children)} children and asked for none"
            continue
        wanted = len(row.sketches()) if row.id in spawned else 0
        if len(children) != wanted:
            yield f"job {row.id} has {len(children)} children and asked for {wanted}"
        yield from (f"job {row.id}: {problem}" for problem in _family(row, children, ends))


def _family(row: Row, children: list[Row], ends: dict[int, int]) -> Iterator[str]:
    early = [each.id for each in children if ends.get(each.id, 0) > ends.get(row.id, 1 << 62)]
    if early and row.state != "cancelled":  # a cancel takes all of them in one transaction, from the top
        yield f"it ended before its children {early}"
    failed = sum(each.state in ("dead", "cancelled") for each in children)
    counted = (row.children_total, row.children_unfinished, row.children_failed)
    if counted != (len(children), 0, failed):
        yield f"it counts {counted} children; there are {len(children)}, {failed} of them failed"
    if children and row.state in ("completed", "dead"):
        # What a cancelled child still has to say may come after its parent's end.
        least, most = _sums(each for each in children if each.state != "cancelled"), _sums(children)
        sums: Counter[str] = Counter(json.loads(row.children_info or "{}"))
        if not least <= sums <= most:
            yield f"it adds up {dict(sums)}, its children have {dict(least)}"
        if least["leaves"] < _leaves(children):
            yield f"its children count {least['leaves']} leaves, {_leaves(children)} completed"
    joined = row.task == gather.name and row.state == "completed" and bool(children)
    if joined and json.loads(row.result or "null") != [len(children), failed]:
        yield f"its join saw {row.result}, there are {len(children)} children and {failed} failed"


def _sums(children: Iterable[Row]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for child in children:
        for text in (child.info, child.children_info):
            sums.update(msgspec.json.decode(text, type=dict[str, int]) if text else {})
    return sums


def _leaves(children: list[Row]) -> int:
    return sum(not is_command(each.task) and not is_tree(each.task) and each.state == "completed" for each in children)


CHECKS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "lost": lost,
    "unexpected": unexpected,
    "completed twice": completed_twice,
    "stranded": stranded,
    "completed without a run": never_ran,
    "steps and fences": fences,
    "attempts": attempts,
    "two runs at a time": overlap,
    "conservation": conservation,
    "trees": trees,
}
