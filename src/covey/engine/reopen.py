"""A person wants an ended job after all: what is not completed below it runs again, dead ancestors wait again."""

from __future__ import annotations

from ..core import tree
from ..core.machine import Signal, Transition, decide
from ..core.model import ENDED, JobRow
from ..errors import Refused, StillStopping
from .trees import Trees


def retry(row: JobRow, trees: Trees, *, all: bool) -> Transition:
    """The job runs again, and its family takes it back; Refused where the family cannot."""
    again = Reopening(trees)
    change = again.retry(row, all=all)
    again.finish()
    return change


class Reopening:
    def __init__(self, trees: Trees) -> None:
        self.trees, self.store, self.now = trees, trees.store, trees.now
        self._opened: list[int] = []
        self._waiting: list[int] = []  # parents that wait again, perhaps for nobody

    def retry(self, row: JobRow, *, all: bool) -> Transition:
        change = decide(row, Signal("retry", all=all, blocked=self._is_blocked(row)), self.now, self.trees.rng)
        if row.state not in ENDED:
            self.store.change(row, change, self.now)
            return change  # its back-off is cut short; nobody else notices
        again = tree.reopened(row, self._ancestors(row))
        if change.drops_children:
            self._drop(row)
        self._open(row, change)
        if again and again[0].child_mode == "serial":
            self._open_later(again[0], row)
        self._wait_again(row, again)
        return change

    def finish(self) -> None:
        self.store.open(self._opened, self.now)
        self.trees.touched.update(self._opened)
        self.trees.look_at(self._waiting)

    # ── downward ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, row: JobRow, change: Transition) -> None:
        self.store.change(row, change, self.now)
        self._opened.append(row.id)
        if row.parent_id is None:
            self.store.ask("reopen_edges", root=row.id)
        if change.opens_children:
            self._open_children(row)
            self._waiting.append(row.id)

    def _open_children(self, parent: JobRow) -> None:
        """Those that did not complete run again; serial ones one after the other."""
        self._refuse_pruned(parent)
        opened = 0
        for page in self.store.reopenable(parent.id):
            for child in sorted(self.store.rows(page).values(), key=lambda row: row.child_no or 0):
                blocked = parent.child_mode == "serial" and opened > 0
                signal = Signal("retry", blocked=blocked)
                self._open(child, decide(child, signal, self.now, self.trees.rng))
                opened += 1
        self._count(parent.id, opened)

    def _open_later(self, parent: JobRow, child: JobRow) -> None:
        """A serial child takes along those that were cancelled because it did not complete."""
        for page in self.store.reopenable(parent.id, after=child.child_no or 0):
            for later in self.store.rows(page).values():
                self._open(later, decide(later, Signal("retry", blocked=True), self.now, self.trees.rng))
            self._count(parent.id, len(page))

    def _drop(self, row: JobRow) -> None:
        """The handler starts over: what it spawned, and its result, are gone."""
        if held := self.store.value("held_below", parent=row.id):
            raise StillStopping(f"job {held}, below job {row.id}, is still stopping; its processes are not gone yet")
        self.store.ask("drop_below", parent=row.id)
        self.store.ask("drop_children_of", id=row.id)
        self.store.ask("remove_result", id=row.id)

    # ── upward ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wait_again(self, row: JobRow, ancestors: list[JobRow]) -> None:
        """Each ancestor counts one more unfinished and one less failed child, up to the first that never ended."""
        for ancestor in ancestors:
            self._count(ancestor.id, 1)
            if ancestor.state in ENDED:
                self._open(ancestor, decide(ancestor, Signal("child_reopened"), self.now, self.trees.rng))

    def _ancestors(self, row: JobRow) -> list[JobRow]:
        """Nearest first."""
        found: list[JobRow] = []
        while row.parent_id is not None and (parent := self.store.row(row.parent_id)):
            found.append(parent)
            row = parent
        return found

    def _is_blocked(self, row: JobRow) -> bool:
        """Whether something that must come before the job has not ended; Refused if it ended otherwise than well."""
        if row.parent_id is None:
            return bool(self.store.value("open_edges", id=row.id))
        parent = self.store.row(row.parent_id)
        if parent is None or parent.child_mode != "serial":
            return False
        earlier = self.store.ask("earlier_child", parent=parent.id, before=row.child_no)
        if not earlier:
            return False
        id, ended = earlier[0]
        if ended and row.state in ENDED:
            raise Refused(f"job {id} comes before job {row.id} and did not complete; retry {id} first")
        return True

    def _count(self, parent: int, opened: int) -> None:
        self.store.many("count_ends", [{"id": parent, "ended": -opened, "failed": -opened}])

    def _refuse_pruned(self, parent: JobRow) -> None:
        if self.store.value("children_there", parent=parent.id) != parent.children_total:
            raise Refused(f"some children of job {parent.id} are pruned already; `retry --all` starts it over")
