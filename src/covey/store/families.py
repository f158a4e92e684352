"""Rows of trees: children in, outcomes out. The part of `Store` that knows parents, lanes and edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Raw

from ..core.machine import Transition
from ..core.model import MAX_FAILED, MAX_OUTCOMES, Child
from .asking import Asking, json_text


class Families(Asking):
    def end_below(self, parent: int, after: int, change: Transition, now: int) -> list[Any]:
        """Every unfinished descendant, from the children behind ``after`` on, has ended.

        (id, parent, child number, key of the cache) of each.
        """
        ids = [row[0] for row in self.ask("unfinished_below", parent=parent, after=after)]
        if not ids:
            return []
        return self.ask(
            "change_many", ids=json_text(ids), state=change.state, fence=change.fence, error=change.error, now=now
        )

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
