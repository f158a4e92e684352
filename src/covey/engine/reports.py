"""What turns report, and what their pools no longer have: how a transaction of turns moves jobs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ..core.check import storable
from ..core.machine import Signal, decide
from ..core.model import JobRow, Report
from ..core.turn import Held, Reply, Turn
from ..store.store import Store
from .spawns import Spawning
from .trees import Trees


class Reports:
    """The part of the engine that applies reports. Everything is fenced."""

    store: Store
    clock: Callable[[], int]
    rng: Random

    def _add_queues(self, names: set[str], now: int) -> None:
        raise NotImplementedError

    def _apply(self, turn: Turn, reply: Reply, trees: Trees) -> int:
        """Fenced: a report about a run that is no longer the job's changes nothing. How many jobs ended or moved on."""
        if not turn.reports:
            return 0
        reports = [storable(report) for report in _first_of_each(turn.reports)]
        done = self._complete_plain(turn.pool, [report for report in reports if _is_plain(report)], trees)
        others = [report for report in reports if report.id not in done]
        if not others:
            return len(done)
        trees.changed = True
        rows = self.store.rows([report.id for report in others])
        return len(done) + sum(
            self._apply_one(report, rows.get(report.id), turn.pool, reply, trees) for report in others
        )

    def _complete_plain(self, pool: int, reports: list[Report], trees: Trees) -> set[int]:
        """Successes without children or output, all at once: the rules make each COMPLETED, the fence guards them."""
        if not reports:
            return set()
        done, kin = self.store.complete(pool, reports, trees.now)
        if results := [report for report in reports if report.result is not None and report.id in done]:
            self.store.set_results(results)
        trees.completed(kin)
        return done

    def _apply_one(self, report: Report, row: JobRow | None, pool: int, reply: Reply, trees: Trees) -> bool:
        """Whether the report moved its job."""
        now = trees.now
        if row is None or report.fence != row.fence or (row.state == "processing" and row.pool != pool):
            if row is None or not self._release(row, pool, report, trees):
                reply.refused.append(Held(report.id, report.fence))
            return False
        if row.state != "processing":
            return False  # my own earlier report: its answer was lost
        if report.outcome == "gone":
            reply.refused.append(Held(report.id, report.fence))  # nobody cancelled it
            return False
        signal = Signal(report.outcome, report.error, report.after_s)
        if report.outcome == "success" and report.spawned:
            spawning = Spawning(self.store, row, report, now=now, rng=self.rng, add_queues=self._add_queues)
            report, signal = spawning.report, spawning.signal
            trees.opened += spawning.opened
        change = decide(row, signal, now, self.rng)
        self.store.change(row, change, now, report)
        if change.ended:
            trees.ended(row, change.state)
        if change.charged or report.output is not None:
            self.store.add_attempt(row, report, report.outcome, now)
        if signal.name == "success" and report.result is not None:
            self.store.set_results([report])
        return True

    def _release(self, row: JobRow, pool: int, report: Report, trees: Trees) -> bool:
        """A cancelled job's family is gone, however its run ended."""
        if row.state != "cancelled" or row.pool != pool or report.fence != row.fence - 1:
            return False  # not the run that was cancelled
        self.store.change(row, decide(row, Signal("gone"), trees.now, self.rng), trees.now, report)
        self.store.add_attempt(row, report, "cancelled", trees.now)
        trees.released(row)
        return True

    def _unknown(self, turns: Sequence[Turn]) -> dict[int, list[Held]]:
        """Of each pool that says what it has, what it does not know of: an answer was lost."""
        known = {turn.pool: {(held.id, held.fence) for held in turn.held} for turn in turns if turn.held is not None}
        unknown: dict[int, list[Held]] = {pool: [] for pool in known}
        for pool, id, fence in self.store.held_by(list(known)) if known else ():
            if (id, fence) not in known[pool]:
                unknown[pool].append(Held(id, fence))
        return unknown

    def _reconcile(self, turn: Turn, unknown: Sequence[Held], reply: Reply, trees: Trees) -> int:
        """Rows that the pool neither knows it has nor has just reported are handed back. How many."""
        if not unknown:
            return 0
        told = {(each.id, each.fence) for each in turn.reports} - {(each.id, each.fence) for each in reply.refused}
        return self._strand(turn.pool, [held for held in unknown if (held.id, held.fence) not in told], trees)

    def _strand(self, pool: int, strays: Sequence[Held], trees: Trees) -> int:
        """What the pool still holds of these is pending again or released. How many."""
        ids = [held.id for held in strays]
        if not ids:
            return 0
        self.store.lock_trees(ids)
        moved = 0
        for row in self.store.rows(ids).values():
            if row.pool != pool:
                continue  # it was ended meanwhile
            moved += 1
            change = decide(row, Signal("stranded"), trees.now, self.rng)
            self.store.change(row, change, trees.now)
            if change.ended:
                trees.released(row)
        return moved


def _first_of_each(reports: list[Report]) -> list[Report]:
    """One report per run: if it is told twice, the first counts."""
    return list({(report.id, report.fence): report for report in reversed(reports)}.values())


def plain_only(reports: list[Report]) -> list[Report] | None:
    """One for each run, as it can be stored; None if not all of them are plain successes."""
    if not all(map(_is_plain, reports)):
        return None
    told = [storable(report) for report in _first_of_each(reports)]
    return told if all(map(_is_plain, told)) else None


def _is_plain(report: Report) -> bool:
    return report.outcome == "success" and report.output is None and not report.spawned
