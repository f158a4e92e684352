"""What a success asks for besides its result: children, siblings and uncles, written with it or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from random import Random

from msgspec.structs import replace

from ..core import check, tree
from ..core.machine import SECOND, Signal, decide
from ..core.model import MAX_DEPTH, JobRow, Report, Spec
from ..errors import CoveyError, Duplicate, Refused
from ..store.families import Place
from ..store.store import Store

AddQueues = Callable[[set[str], int], None]
UNSTARTED = ("blocked", "scheduled", "pending")


class Queues:
    """What new jobs inherit from their queues: depth and lanes. Only those that differ from the default are listed."""

    def __init__(self, store: Store) -> None:
        rows = store.ask("special_queues")
        self.sealed: str | None = rows[0][3]
        self._special = {name: (bool(serial), depth) for name, serial, depth, _ in rows if name is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._special

    def max_depth(self, name: str) -> int:
        return self._special[name][1] if name in self._special else MAX_DEPTH

    def lane(self, name: str, root: int, root_queue: str) -> int | None:
        """None: not serial. Only jobs in their root's own queue are bound by its lane; others may pass."""
        if name not in self._special or not self._special[name][0]:
            return None
        return root if name == root_queue else 0


class Spawning:
    """One success with spawns. `signal` says what became of it; what was refused has written nothing."""

    def __init__(
        self, store: Store, row: JobRow, report: Report, *, now: int, rng: Random, add_queues: AddQueues
    ) -> None:
        self.store, self.row, self.now, self.rng = store, row, now, rng
        self.opened = 0
        self._within = next((spawn.within for spawn in report.spawned or () if spawn.within is not None), None)
        try:
            plan = self._plan(report)
            uncles = self._uncles(plan)
        except CoveyError as refusal:
            error = f"what it spawned was refused: {refusal}"
            self.report = replace(report, outcome="abort", error=error, result=None, spawned=None)
            self.signal = Signal("abort", error)
            return
        self.report = report
        specs = plan.children + plan.siblings + [spec for spec, _, _ in uncles]
        add_queues({spec.queue for spec in specs}, now)
        self._queues = Queues(store)
        joins = row.joins if report.joins is None else report.joins
        asked = any(spawn.relation == "child" for spawn in report.spawned or ())
        self._adopt(row, plan.children, plan.mode, report)
        if plan.siblings and (parent := store.row(row.parent_id or 0)):
            self._adopt(parent, plan.siblings, parent.child_mode or "concurrent", None)
        self._insert_uncles(uncles)
        self.signal = Signal("success", children=len(plan.children), joins=bool(joins and asked))

    # ── deciding, before anything is written ────────────────────────────────────────────────────────────────────────

    def _plan(self, report: Report) -> tree.Plan:
        plan = tree.plan(self.row, report, self._calls_of_siblings(report))
        for spec in plan.children:
            check.check_spec(spec)
        for spec in plan.siblings:
            check.check_spec(spec)
        for spec, _ in plan.uncles:
            check.check_spec(spec)
        named = [spec for spec in plan.children + plan.siblings if spec.unique_key is not None]
        if not named and not any(spec.unique_key for spec, _ in plan.uncles):
            self._holders: dict[str, int] = {}
            return plan
        keys = [spec.unique_key for spec in named] + [spec.unique_key for spec, _ in plan.uncles]
        self._holders = dict(self.store.ask("ids_of_unique_keys", keys=json.dumps(keys)))
        for key, id in self._holders.items():
            self._check_sight(id, key)
        taken = set(self._holders)
        children, siblings = _unique(plan.children, taken), _unique(plan.siblings, taken)
        return tree.Plan(children, siblings, plan.uncles, plan.mode)

    def _calls_of_siblings(self, report: Report) -> dict[str, tree.KeyedCall]:
        keys = [s.spec.key for s in report.spawned or () if s.relation == "sibling" and s.spec.key is not None]
        if not keys or self.row.parent_id is None:
            return {}
        found = self.store.ask("calls_of_children", parent=self.row.parent_id, keys=json.dumps(keys))
        return {key: (task, args) for key, task, args in found}

    def _uncles(self, plan: tree.Plan) -> list[tuple[Spec, bool, JobRow | None]]:
        """(spec, always, the unstarted job that it merges into) each; within one report, too, a name stands for one."""
        spoken = {spec.unique_key for spec in plan.children + plan.siblings if spec.unique_key is not None}
        named: dict[tuple[str, str], tuple[Spec, bool, JobRow | None]] = {}
        uncles: list[tuple[Spec, bool, JobRow | None]] = []
        for spec, always in plan.uncles:
            if spec.unique_key in spoken:
                raise Refused(f"the unique_key {spec.unique_key!r} names a child and an uncle of job {self.row.id}")
            name = ("unique_key", spec.unique_key) if spec.unique_key is not None else ("key", spec.key)
            if name[1] is None:
                uncles.append((spec, always, None))
                continue
            first = named.get((name[0], name[1]))
            if first is not None:
                _refuse_other_call(spec, first[0].task, first[0].args, f"another uncle of job {self.row.id}")
                named[name[0], name[1]] = (first[0], first[1] or always, first[2])
            elif (holder := self._holder(spec)) is None or holder.state in UNSTARTED:
                named[name[0], name[1]] = (spec, always, holder)
        return uncles + list(named.values())

    def _holder(self, spec: Spec) -> JobRow | None:
        """The job that has the uncle's name already."""
        if spec.unique_key is not None:
            id = self._holders.get(spec.unique_key)
        else:
            id = self.store.value("id_of_key", key=spec.key)
        row = None if id is None else self.store.row(id)
        if row is None:
            return None
        self._check_sight(row.id, spec.key)
        if row.parent_id is not None:
            raise Refused(f"the unique_key {spec.unique_key!r} belongs to job {row.id}, a child; use another one")
        (task, args), *_ = self.store.ask("call_of", id=row.id)
        _refuse_other_call(spec, task, args, f"job {row.id}")
        return row

    def _check_sight(self, id: int, key: str | None) -> None:
        """A job of another queue neither stands for what is spawned here nor is held back by it."""
        if self._within is not None:
            refuse_foreign(self.store, id, key, self._within)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _adopt(self, parent: JobRow, specs: Sequence[Spec], mode: str, report: Report | None) -> None:
        """The parent has these children too, at the end of the line."""
        if not specs:
            return
        ids = self.store.dialect.take_ids("jobs", len(specs))
        self.store.insert_in_tree(ids, specs, self._places(parent, specs, ids, mode), self.now)
        told = report if report is not None else Report(0, 0, "success")
        joins = None if told.joins is None else int(told.joins)
        self.store.ask("adopt", id=parent.id, count=len(specs), mode=mode, joins=joins, on_error=told.on_error)
        self.opened += len(specs) if mode == "concurrent" else 1

    def _places(self, parent: JobRow, specs: Sequence[Spec], ids: Iterable[int], mode: str) -> Iterator[Place]:
        root_queue = self._root_queue(parent)
        first = parent.children_total
        for number, (id, spec) in enumerate(zip(ids, specs, strict=True), first):
            run_at = starts_at(spec, self.now)
            behind = mode == "serial" and number > 0
            yield Place(
                id=id,
                root_id=parent.root_id,
                seq=parent.seq,
                state="blocked" if behind else "pending" if run_at is None else "scheduled",
                run_at=run_at,
                max_depth=parent.max_depth,
                parent_id=parent.id,
                child_no=number,
                depth=parent.depth + 1,
                lane=self._queues.lane(spec.queue, parent.root_id, root_queue),
            )

    def _root_queue(self, row: JobRow) -> str:
        root = row if row.parent_id is None else self.store.row(row.root_id)
        return root.queue if root is not None else row.queue

    def _insert_uncles(self, uncles: Sequence[tuple[Spec, bool, JobRow | None]]) -> None:
        if not uncles:
            return
        specs = [spec for spec, _, holder in uncles if holder is None]
        ids = self.store.dialect.take_ids("jobs", len(specs))
        places = (self._place_of_uncle(id, spec) for id, spec in zip(ids, specs, strict=True))
        self.store.insert_in_tree(ids, specs, places, self.now)
        fresh = iter(ids)
        for _, always, holder in uncles:
            if holder is not None:
                self._hold(holder)
            id = next(fresh) if holder is None else holder.id
            self.store.ask("add_edge", job_id=id, root=self.row.root_id, always=int(always))

    def _place_of_uncle(self, id: int, spec: Spec) -> Place:
        return Place(
            id=id,
            root_id=id,
            seq=self.row.seq,  # its root's: the next round cannot overtake it
            state="blocked",
            run_at=starts_at(spec, self.now),
            max_depth=self._queues.max_depth(spec.queue),
            lane=self._queues.lane(spec.queue, id, spec.queue),
        )

    def _hold(self, holder: JobRow) -> None:
        """An unstarted job waits for this root too, and stands where the oldest of its roots stood."""
        if holder.state != "blocked":
            self.store.change(holder, decide(holder, Signal("block"), self.now, self.rng), self.now)
        self.store.ask("lower_seq", id=holder.id, seq=self.row.seq)


def refuse_foreign(store: Store, id: int, key: str | None, within: Container[str]) -> None:
    """Duplicate, without its id, if that job is of another queue than these."""
    row = store.row(id)
    if row is None or row.queue not in within:
        raise Duplicate(f"the key {key!r} is taken in another queue; choose another one", 0)


def starts_at(spec: Spec, now: int) -> int | None:
    """When it may start, or None if that is now."""
    at = spec.run_at if spec.delay_s is None else now + int(spec.delay_s * SECOND)
    return at if at is not None and at > now else None


def _unique(specs: list[Spec], taken: set[str]) -> list[Spec]:
    """Without those whose unique_key somebody has: that job stands for them."""
    fresh = []
    for spec in specs:
        if spec.unique_key is not None:
            if spec.unique_key in taken:
                continue
            taken.add(spec.unique_key)
        fresh.append(spec)
    return fresh


def _refuse_other_call(spec: Spec, task: str, args: str | None, who: str) -> None:
    if spec.unique_key is None and (task, args) != (spec.task, spec.args):
        raise Refused(f"the key {spec.key!r} belongs to {who}, which is another call; use another key")
