"""Rows of trees: children in, outcomes out. The part of `Store` that knows parents, lanes and edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ..core.machine import SECOND, Transition
from ..core.model import MAX_FAILED, MAX_OUTCOMES, Child, Spec


class Place(Struct, frozen=True):
    """Where a new job stands: its tree, its turn, its lane."""

    id: int
    root_id: int
    seq: int
    state: str
    run_at: int | None
    max_depth: int
    parent_id: int | None = None
    child_no: int | None = None
    depth: int = 0
    lane: int | None = None


class Families:
    ask: Callable[..., list[tuple[Any, ...]]]
    many: Callable[..., None]

    def insert_in_tree(self, ids: Sequence[int], specs: Sequence[Spec], places: Iterable[Place], now: int) -> None:
        """New jobs, each at its place. One after the other, never as a list of rows: there may be 100,000."""
        self.many("insert_in_tree", (_values(spec, place, now) for spec, place in zip(specs, places, strict=True)))
        self.many(
            "insert_payload", ((id, spec.args) for id, spec in zip(ids, specs, strict=True) if spec.args is not None)
        )

    def end_below(self, parent: int, after: int, change: Transition, now: int) -> list[tuple[int, int, int]]:
        """Every unfinished descendant, from the children behind ``after`` on, has ended: (id, parent, child number)."""
        ids = [row[0] for row in self.ask("unfinished_below", parent=parent, after=after)]
        if not ids:
            return []
        rows = self.ask(
            "change_many", ids=json_text(ids), state=change.state, fence=change.fence, error=change.error, now=now
        )
        return [(id, parent_id, child_no) for id, parent_id, child_no in rows]

    def open(self, ids: Sequence[int], now: int) -> None:
        """These jobs, new or re-opened, stand in their queue's lane as it is today, and their trees have time again."""
        listed = json_text(ids)
        self.ask("relane", ids=listed)
        self.ask("renew_deadlines", ids=listed, now=now)

    def outcomes(self, parent: int) -> str:
        """How the children ended, in the order of spawning: JSON of list[Child], with 16 MiB of results at most."""
        left = MAX_OUTCOMES
        children: list[Child] = []
        for id, key, task, state, body, error in self.ask("outcomes", parent=parent):
            size = 0 if body is None else len(body)
            fits = size <= left
            left -= size if fits else 0
            result = None if body is None or not fits else Raw(body)
            children.append(Child(id, key, task, state, result, error, not fits))
        return json_text(children)

    def failed_outcomes(self, parents: Iterable[int]) -> dict[int, str]:
        """Of each parent that has some: its first children that did not complete, as JSON of list[Child]."""
        found: dict[int, str] = {}
        for (parent,) in self.ask("parents_with_failures", ids=json_text(sorted(parents))):
            found[parent] = json_text(self.failed_children(parent))
        return found

    def failed_children(self, parent: int) -> list[Child]:
        """The first ones that did not complete, in the order of spawning."""
        rows = self.ask("failed_outcomes", parent=parent, limit=MAX_FAILED)
        return [Child(id, key, task, state, error=error) for id, key, task, state, error in rows]

    def reopenable(self, parent: int, after: int = -1, page: int = 1000) -> Iterator[list[int]]:
        """Ids of the children that have ended otherwise than well, in order, page by page."""
        while ids := self.ask("reopenable_children", parent=parent, after=after, limit=page):
            yield [row[0] for row in ids]
            after = ids[-1][1]


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _values(spec: Spec, place: Place, now: int) -> tuple[Any, ...]:
    """In the order in which `insert_in_tree` first names its parameters."""
    policy = spec.policy
    timeout_s = spec.tree_timeout_s
    return (
        place.id,
        spec.queue,
        spec.kind,
        spec.task,
        place.state,
        spec.priority,
        policy.max_attempts,
        place.run_at,
        now,
        policy.timeout_s,
        policy.backoff_base,
        policy.backoff_cap_s,
        int(policy.jitter),
        spec.key,
        spec.unique_key,
        int(spec.keep_background),
        spec.batch,
        None if spec.labels is None else json_text(spec.labels),
        spec.created_by,
        spec.cwd,
        int(spec.joins),
        spec.on_error,
        spec.child_mode,
        timeout_s,
        None if timeout_s is None else max(now, place.run_at or now) + int(timeout_s * SECOND),
        place.parent_id,
        place.root_id,
        place.seq,
        place.child_no,
        place.depth,
        place.max_depth,
        place.lane,
    )
