"""The rules of families: what a spawn, the end of a child and a second try mean for the others. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Refused
from .codec import decode
from .model import JobRow, Mode, Report, Spawn, Spec, State

KeyedCall = tuple[str, str | None]  # task, arguments: what a key stands for
Step = Literal["nothing", "settle", "cancel_all", "advance"]
EdgeOutcome = Literal["ok", "bad", "gone"]

NAMED = 5  # how many children an error names
LONGEST = 200  # characters of one child's error inside its parent's


class Plan(Struct, frozen=True):
    """What a success asks for, checked: specs with their queue and priority filled in."""

    children: list[Spec]
    siblings: list[Spec]
    uncles: list[tuple[Spec, bool]]  # (spec, run it however the root ended)
    mode: Mode


# ── spawning ────────────────────────────────────────────────────────────────────────────────────────────────────────


def plan(row: JobRow, report: Report, siblings: Mapping[str, KeyedCall]) -> Plan:
    """What the run may spawn; Refused says why it may not. ``siblings``: the calls that its parent's keys stand for."""
    mode = _mode(row, report)
    found: dict[str, list[Spawn]] = {"child": [], "sibling": [], "after": []}
    for spawn in report.spawned or ():
        found[spawn.relation].append(spawn)
    if row.phase == "join" and (found["child"] or found["sibling"]):
        raise Refused(f"the join of job {row.id} may not spawn; spawn from the task itself")
    if found["child"]:
        refuse_depth(row.id, row.depth, row.max_depth)
    if found["sibling"] and row.parent_id is None:
        raise Refused(f"job {row.id} is a root and has no siblings; spawn a child, or enqueue a job of its own")
    return Plan(
        distinct((_resolved(spawn, row) for spawn in found["child"]), {}, row.id),
        distinct((_resolved(spawn, row) for spawn in found["sibling"]), siblings, row.parent_id or 0),
        [(_resolved(spawn, row), spawn.when == "always") for spawn in found["after"]],
        mode,
    )


def refuse_depth(id: int, depth: int, max_depth: int) -> None:
    """Refused where a child would be deeper than its tree may be."""
    if depth + 1 > max_depth:
        raise Refused(
            f"job {id} is at depth {depth} and its tree may be {max_depth} deep, so it may not spawn; "
            "raise the max_depth of its root's queue"
        )


def _mode(row: JobRow, report: Report) -> Mode:
    told = report.child_mode
    if told is not None and row.child_mode is not None and told != row.child_mode:
        raise Refused(f"job {row.id} has {row.child_mode} children and its run asked for {told} ones; choose one")
    return told or row.child_mode or "concurrent"


def _resolved(spawn: Spawn, row: JobRow) -> Spec:
    queue = row.queue if spawn.queue is None else spawn.queue
    priority = row.priority if spawn.priority is None else spawn.priority
    return replace(spawn.spec, queue=queue, priority=priority)


def distinct(specs: Iterable[Spec], known: Mapping[str, KeyedCall], parent: int) -> list[Spec]:
    """Each key once and none that is known: the same key with the same call is the same child."""
    fresh: list[Spec] = []
    calls = dict(known)
    for spec in specs:
        if spec.key is not None:
            call = (spec.task, spec.args)
            seen = calls.setdefault(spec.key, call)
            if seen != call:
                raise Refused(f"the key {spec.key!r} names two different children of job {parent}; use two keys")
            if seen is not call:
                continue
        fresh.append(spec)
    return fresh


# ── the end of a child ──────────────────────────────────────────────────────────────────────────────────────────────


def after_ends(parent: JobRow, *, failed: bool) -> Step:
    """What is due for a parent once the ends of its children are counted. A parent that does not wait needs nothing.

    ``failed``: one of the children that just ended did not complete. An older failure cancels nobody: whoever runs
    beside it was retried by a person who knows.
    """
    if parent.state != "waiting":
        return "nothing"
    if parent.children_unfinished <= 0:
        return "settle"
    if failed and parent.on_error == "cancel":
        return "cancel_all"
    return "advance" if parent.child_mode == "serial" else "nothing"


def describe(parent: JobRow, failed: Sequence[tuple[int, str, str | None]]) -> str:
    """Why the parent is dead: its first children that did not complete, (id, state, error) each."""
    named = "; ".join(f"job {id} {_ending(state, error)}" for id, state, error in failed[:NAMED])
    more = parent.children_failed - min(len(failed), NAMED)
    rest = f"; and {more} more" if more > 0 else ""
    return f"{parent.children_failed} of {parent.children_total} children did not complete: {named}{rest}"


def _ending(state: str, error: str | None) -> str:
    if not error:
        return state
    return f"{state}: {error if len(error) <= LONGEST else error[:LONGEST] + '…'}"


def sum_infos(infos: Iterable[str | None]) -> str | None:
    """The numbers in these JSON objects, added up by name. What is not a number says nothing here."""
    sums: dict[str, Any] = {}
    for text in infos:
        value = None if text is None else decode(text)
        for name, number in value.items() if isinstance(value, dict) else ():
            if isinstance(number, int | float) and not isinstance(number, bool):
                sums[name] = sums.get(name, 0) + number
    sums = {name: number for name, number in sums.items() if not isinstance(number, float) or math.isfinite(number)}
    return json.dumps(sums) if sums else None


def with_children(own: Any, sums: Any) -> Any:
    """A job's own info with its children's numbers added: numbers add up, anything else of its own stays."""
    if sums is None or (own is not None and not isinstance(own, dict)):
        return own
    merged = dict(own or {})
    for name, number in sums.items():
        mine = merged.get(name, 0)
        if isinstance(mine, int | float) and not isinstance(mine, bool):
            merged[name] = mine + number
    return merged


# ── uncles ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def outcome(state: State) -> EdgeOutcome:
    """How an edge closes when the root it waits for has ended so."""
    return "ok" if state == "completed" else "bad" if state == "dead" else "gone"


def unblocks(edges: Sequence[tuple[str | None, int]]) -> Literal["unblocked", "cancel"] | None:
    """What a blocked job's edges, (outcome, always) each, make of it; None: it stays blocked.

    A dead root keeps its uncles: a retry may still turn it.
    """
    if any(outcome is None for outcome, _ in edges):
        return None
    if any(outcome == "ok" or always for outcome, always in edges):
        return "unblocked"
    return "cancel" if all(outcome == "gone" for outcome, _ in edges) else None


# ── second tries ────────────────────────────────────────────────────────────────────────────────────────────────────


def reopened(row: JobRow, ancestors: Sequence[JobRow]) -> list[JobRow]:
    """The ancestors that wait for ``row`` again, nearest first, up to the first one that never stopped waiting.

    Refused where one of them cannot: it was cancelled, has completed without the job, or runs its join.
    """
    for ancestor in reversed(ancestors):  # from the root down: a retry of the topmost takes the others along
        if ancestor.state == "cancelled":
            raise Refused(
                f"job {row.id} belongs to job {ancestor.id}, which was cancelled; retry {ancestor.id} instead"
            )
    again: list[JobRow] = []
    for ancestor in ancestors:
        if ancestor.state not in ("waiting", "dead"):
            word = "completed" if ancestor.state == "completed" else "joined what there was"
            raise Refused(f"job {ancestor.id}, its parent, has {word} without job {row.id}; `retry --again` copies it")
        again.append(ancestor)
        if ancestor.state == "waiting":
            break
    return again


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def time_left_s(timeout_s: float | None, deadline_at: int | None, now: int) -> float | None:
    """How long a run may take that starts now: its own time-out, but no longer than its tree has."""
    if deadline_at is None:
        return timeout_s
    left_s = max(0.001, (deadline_at - now) / 1e6)
    return left_s if timeout_s is None else min(timeout_s, left_s)
