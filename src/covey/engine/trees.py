"""What the ends of one transaction mean for the families of those that ended: counted, settled, cancelled, unblocked.

Ends are gathered first and counted per parent, so that a thousand children that end in one turn cost their parent one
update. `settle` goes upward until nothing is left to settle: parents, grandparents, lanes, uncles.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from random import Random

from msgspec import Struct

from ..core import clocks, tree
from ..core.machine import Signal, cancel_below, decide
from ..core.model import ENDED, JobRow, State
from ..store.store import Done, Store


class End(Struct, frozen=True):
    """A job that has ended in this transaction."""

    id: int
    state: State
    parent_id: int | None
    child_no: int | None
    lane: int | None = None
    waited_for: bool = True  # uncles may be waiting for it


class Trees:
    """One transaction's ends. Whoever ends, cancels or releases a job says so here, and settles before the commit."""

    def __init__(self, store: Store, now: int, rng: Random) -> None:
        self.store, self.now, self.rng = store, now, rng
        self.changed = False  # whether more was written than plain successes without a family
        self.opened = 0  # how many jobs became ready: worth a ring
        self.touched: set[int] = set()  # what a person's request has changed besides the jobs that were named
        self._ends: list[End] = []

    # ── what happened ───────────────────────────────────────────────────────────────────────────────────────────────

    def completed(self, done: Iterable[Done]) -> None:
        """Plain successes of jobs that have a family, a lane or uncles: most have none."""
        self._ends += [
            End(each.id, "completed", each.parent_id, each.child_no, each.lane, bool(each.waited_for)) for each in done
        ]

    def ended(self, row: JobRow, state: State) -> None:
        self._ends.append(End(row.id, state, row.parent_id, row.child_no, row.lane))

    def released(self, row: JobRow) -> None:
        """The processes of an ended job are gone: its tree may be over now."""
        root = row if row.parent_id is None else self.store.row(row.root_id)
        if root is not None and root.state in ENDED:
            self._over(root.id, root.state)

    def cancel(self, row: JobRow, error: str | None = None) -> State:
        """The job and everything below it is cancelled."""
        change = decide(row, Signal("cancel", error=error), self.now, self.rng)
        self.store.change(row, change, self.now)
        self.ended(row, change.state)
        self.cancel_below(row.id, f"cancelled with job {row.id}")
        return change.state

    def cancel_below(self, parent: int, error: str, after: int = -1) -> None:
        """Every unfinished descendant is cancelled; what runs keeps its pool until its processes are gone."""
        for id, parent_id, child_no in self.store.end_below(parent, after, cancel_below(error), self.now):
            self.touched.add(id)
            self._ends.append(End(id, "cancelled", parent_id, child_no))

    def expire(self, limit: int, noticed_at: int | None = None) -> int:
        """Trees whose time is over have ended: what they were waiting for is cancelled. How many there were.

        ``noticed_at``: those of them whose time a clock that was ahead has counted, which was noticed then.
        """
        if noticed_at is None:
            due = self.store.ask("expired", now=self.now, limit=limit)
        else:
            ahead = self.now + clocks.SLACK
            due = self.store.ask("expired_ahead", now=self.now, limit=limit, ahead=ahead, noticed_at=noticed_at)
        self.store.lock_trees([id for id, _ in due])
        for id, timeout_s in due:
            row = self.store.row(id)
            if row is None or row.state in ENDED or row.state == "processing":
                continue  # ended with an ancestor just now; or claimed, and its run has the time that was left
            error = f"its tree was not done within {timeout_s:g} s (tree_timeout)"
            change = decide(row, Signal("expired", error), self.now, self.rng)
            self.store.change(row, change, self.now)
            self.store.event("expired", now=self.now, job_id=id, text=error)
            self.ended(row, change.state)
            self.cancel_below(id, f"cancelled with job {id}, whose tree ran out of time")
        return len(due)

    def removed(self, root: int) -> None:
        """The root is no more: nobody waits for it any longer. Edges that closed well stay so."""
        self._close_edges(root, "gone")
        self.store.ask("release_lane", root=root)

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Every parent whose last child has ended has moved on, and so upward through all ancestors."""
        while self._ends:
            self.changed = True
            ends, self._ends = self._ends, []
            self._count(ends)
            self._close(ends)

    def look_at(self, parents: Iterable[int]) -> None:
        """These parents have moved on as far as their children let them."""
        rows = self.store.rows(list(parents))
        self._step(rows, dict.fromkeys(rows, -1), {})

    def _count(self, ends: list[End]) -> None:
        ended: dict[int, int] = defaultdict(int)
        failed: dict[int, int] = defaultdict(int)
        first: dict[int, int] = {}
        for end in ends:
            if end.parent_id is not None:
                ended[end.parent_id] += 1
                failed[end.parent_id] += end.state != "completed"
                first[end.parent_id] = min(first.get(end.parent_id, 1 << 62), end.child_no or 0)
        if ended:
            self.store.many("count_ends", ({"id": id, "ended": n, "failed": failed[id]} for id, n in ended.items()))
            self._step(self.store.rows(list(ended)), first, failed)

    def _step(self, parents: dict[int, JobRow], first: dict[int, int], failed: dict[int, int]) -> None:
        due = []
        for parent in parents.values():
            match tree.after_ends(parent, failed=failed.get(parent.id, 0) > 0):
                case "settle":
                    due.append(parent)
                case "cancel_all":
                    self.cancel_below(parent.id, f"cancelled because another child of job {parent.id} did not complete")
                case "advance":
                    self._advance(parent, first[parent.id])
        if due:
            self._settle(due)

    def _settle(self, parents: list[JobRow]) -> None:
        infos: dict[int, list[str | None]] = defaultdict(list)
        for id, info, below in self.store.ask("infos_below", parents=json.dumps([parent.id for parent in parents])):
            infos[id] += (info, below)
        for parent in parents:
            if parent.id in infos:
                self.store.ask("set_children_info", id=parent.id, info=tree.sum_infos(infos[parent.id]))
            error = None
            if parent.children_failed:
                failed = self.store.ask("failed_children", parent=parent.id, limit=tree.NAMED)
                error = tree.describe(parent, [(id, state, why) for id, state, why in failed])
            change = decide(parent, Signal("children_ended", error), self.now, self.rng)
            self.store.change(parent, change, self.now)
            if change.ended:
                self.ended(parent, change.state)
            else:
                self.opened += 1

    def _advance(self, parent: JobRow, ended: int) -> None:
        """Serial children: what comes after a failed one is cancelled, else the next one's turn has come."""
        if parent.children_failed:
            failed = self.store.value("first_failed", parent=parent.id)
            text = f"cancelled because an earlier child of job {parent.id} did not complete"
            self.cancel_below(parent.id, text, after=failed)
        next_id = self.store.value("next_child", parent=parent.id, after=ended)
        child = None if next_id is None else self.store.row(next_id)
        if child is not None and child.state == "blocked":
            self._unblock(child)

    def _unblock(self, row: JobRow) -> None:
        self.store.change(row, decide(row, Signal("unblocked"), self.now, self.rng), self.now)
        self.opened += 1

    # ── roots: lanes and uncles ─────────────────────────────────────────────────────────────────────────────────────

    def _close(self, ends: list[End]) -> None:
        roots = [end for end in ends if end.parent_id is None and (end.lane is not None or end.waited_for)]
        if not roots:
            return
        waited = {row[0] for row in self.store.ask("waited_for", ids=json.dumps([end.id for end in roots]))}
        for end in roots:
            if end.lane is not None or end.id in waited:
                self._over(end.id, end.state)

    def _over(self, root: int, state: State) -> None:
        """The tree has ended. As long as a process of it is left it has not: the last one's end comes here again."""
        if self.store.ask("held_in_tree", root=root):
            return
        self.store.ask("release_lane", root=root)
        self._close_edges(root, tree.outcome(state))
        self.opened += 1

    def _close_edges(self, root: int, outcome: tree.EdgeOutcome) -> None:
        for (id,) in self.store.ask("close_edges", root=root, outcome=outcome):
            row = self.store.row(id)
            if row is None or row.state != "blocked":
                continue
            match tree.unblocks([(seen, always) for seen, always in self.store.ask("edges_of", id=id)]):
                case "unblocked":
                    self._unblock(row)
                case "cancel":
                    self.cancel(row, "everything it waited for was cancelled or removed")
