"""What a person may want of jobs: cancel, retry, edit, remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from ..core import check
from ..core.clocks import NEVER
from ..core.machine import RULES, Signal, decide
from ..core.model import ENDED, JobRow
from ..core.view import Change, Edit, JobView, PoolView
from ..env import failpoint, hostname
from ..errors import InvalidInput, NotFound, Refused, StillStopping
from ..store.store import Store
from . import cache_records, reopen
from .again import repeated
from .duties.prune import sweep
from .health import is_alive
from .sealing import writing
from .spawns import AddQueues
from .trees import Trees
from .views import Ref, Views, id_of


class Jobs:
    """Changes jobs as a person asks for it."""

    def __init__(
        self, store: Store, clock: Callable[[], int], rng: Random, views: Views, add_queues: AddQueues
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._views = views
        self._add_queues = add_queues

    def cancel(self, refs: Sequence[Ref]) -> list[Change]:
        """None of them will run any more, nor anything below them; what runs is being stopped. All or none."""
        return self._each(refs, self._cancel)

    def retry(self, refs: Sequence[Ref], *, again: bool = False, all: bool = False) -> list[Change]:
        """Failed, dead and cancelled jobs run again; with ``again``, ended ones are queued as new jobs.

        A parent does not run again itself, unless ``all`` of its tree shall: what did not complete below it does.
        """
        if again:
            return self._each(refs, self._again)
        return self._each(refs, lambda row, trees: self._retry(row, trees, all=all))

    def edit(self, ref: Ref, edit: Edit) -> JobView:
        """A job that has not started has the new settings."""
        self._each([ref], lambda row, trees: self._edit(row, edit, trees))
        return self._views.job(ref)

    def remove(self, refs: Sequence[Ref], *, force: bool = False) -> list[Change]:
        """The jobs and all that is known of them are gone.

        ``force`` cancels first. What ran is then still stopping: StillStopping, and the cancel stands; try again soon.
        What may not be removed is refused before anything is cancelled.
        """
        if force and any(self._row(ref).state not in ENDED for ref in refs):
            ids = {id_of(self._store, ref) for ref in refs}
            self._each(refs, lambda row, trees: self._stop(row, trees, ids))
        return self._each(refs, self._remove)

    def _stop(self, row: JobRow, trees: Trees, roots: set[int]) -> Change:
        """It will not run any more, and may go once its processes have; ``roots`` go too."""
        if row.root_id not in roots:
            raise _is_child(row)
        return Change(row.id, row.state, row.state) if row.state in ENDED else self._cancel(row, trees)

    def _each(self, refs: Sequence[Ref], change: Callable[[JobRow, Trees], Change]) -> list[Change]:
        try:
            return self._change_each(refs, change)
        except StillStopping as error:
            raise _explained(error, self._store, list(map(self._row, refs)), self._views.pool_views()) from None

    @repeated
    def _change_each(self, refs: Sequence[Ref], change: Callable[[JobRow, Trees], Change]) -> list[Change]:
        """Parents before their children, whatever the order asked for: what was done to a parent includes them."""
        if not refs:
            return []
        with writing(self._store):
            trees = Trees(self._store, self._clock(), self._rng)
            self._store.lock_queues()
            self._store.lock_trees([id_of(self._store, ref) for ref in refs])
            rows = {row.id: row for row in map(self._row, refs)}  # a job named twice is one job
            changes = {id: self._change(rows[id], trees, change) for id in sorted(rows)}
            self._store.ring("pool")
            self._store.ring("end")
            failpoint("change.before_commit")
        return [changes[id] for id in rows]

    def _change(self, row: JobRow, trees: Trees, change: Callable[[JobRow, Trees], Change]) -> Change:
        current = self._store.row(row.id)
        if current is None:  # it was there a moment ago: an earlier change of this call has dropped it with its parent
            return Change(row.id, "removed", row.state)
        if row.id in trees.touched:
            return Change(row.id, current.state, row.state)
        done = change(current, trees)
        trees.settle()
        return done

    def _row(self, ref: Ref) -> JobRow:
        row = self._store.row(id_of(self._store, ref))
        if row is None:
            raise NotFound(f"no job {ref!r}; `covey list` shows what there is")
        return row

    def _cancel(self, row: JobRow, trees: Trees) -> Change:
        state = trees.cancel(row)
        self._store.event("cancelled", now=trees.now, job_id=row.id, text=f"was {row.state}")
        return Change(row.id, state, row.state)

    def _retry(self, row: JobRow, trees: Trees, *, all: bool) -> Change:
        change = reopen.retry(row, trees, all=all)
        if row.state in ENDED:  # somebody else wants it now; whoever asked for it first has seen it end
            self._store.ask("untie", job=row.id)
        self._store.event("retried", now=trees.now, job_id=row.id, text=f"was {row.state}")
        return Change(row.id, change.state, row.state)

    def _again(self, row: JobRow, trees: Trees) -> Change:
        now = trees.now
        if row.state not in ENDED:
            raise Refused(f"job {row.id} is {row.state}; --again copies jobs that have ended")
        new_id = self._store.insert_copy(row.id, now)
        cache_records.copy(self._store, row, new_id)
        self._store.event("copied", now=now, job_id=row.id, text=f"as job {new_id}")
        return Change(row.id, row.state, row.state, new_id)

    def _edit(self, row: JobRow, edit: Edit, trees: Trees) -> Change:
        now = trees.now
        if (row.state, "edit") not in RULES:
            raise Refused(f"job {row.id} is {row.state}; only a job that waits to start can be edited")
        if isinstance(edit.max_attempts, int):
            check.check_attempts(edit.max_attempts)
            if edit.max_attempts <= row.attempts:
                raise InvalidInput(f"job {row.id} has run {row.attempts} times already; max_attempts must be higher")
        if isinstance(edit.priority, int):
            check.check_priority(edit.priority)
        if isinstance(edit.queue, str):
            check.check_queue(edit.queue)
            self._add_queues({edit.queue}, now)
        if isinstance(edit.run_at, int):
            check.check_run_at(edit.run_at)
        run_at = edit.run_at if isinstance(edit.run_at, int) else None
        reschedules = run_at is not None or edit.run_at is None
        change = decide(row, Signal("edit", run_at=run_at, reschedules=reschedules), now, self._rng)
        state = change.state
        self._store.ask(
            "edit_job",
            id=row.id,
            was=row.state,
            expected=row.fence,
            now=now,
            state=state,
            run_at=change.run_at,
            priority=edit.priority if isinstance(edit.priority, int) else None,
            queue=edit.queue if isinstance(edit.queue, str) else None,
            max_attempts=edit.max_attempts if isinstance(edit.max_attempts, int) else None,
        )
        if isinstance(edit.queue, str) and edit.queue != row.queue:
            self._store.ask("release_lane", root=row.id)
            self._store.ask("relane", ids=f"[{row.id}]")
            state = cache_records.move(self._store, row, edit.queue, state, trees)
        trees.moved(row)
        self._store.event("edited", now=now, job_id=row.id)
        return Change(row.id, state, row.state)

    def _remove(self, row: JobRow, trees: Trees) -> Change:
        if row.parent_id is not None:
            raise _is_child(row)
        if row.state not in ENDED:
            raise Refused(f"job {row.id} is {row.state}; cancel it first, or use --force")
        if row.pool is not None:
            raise StillStopping(f"job {row.id} is still stopping; remove it once its processes are gone")
        if row.children_total:
            if held := self._store.value("held_below", parent=row.id):
                raise StillStopping(f"job {held}, below job {row.id}, is still stopping; remove it once that is gone")
            self._store.ask("drop_below", parent=row.id)
        if row.cache_key is not None:  # what it has made goes with it
            self._store.ask("drop_record_of", id=row.id)
        trees.removed(row.id)
        self._store.ask("remove_job", id=row.id)
        return Change(row.id, "removed", row.state)

    @repeated
    def prune_window(self, cursor: int, ended_before: Mapping[str, int]) -> tuple[int | None, int]:
        """Of the next jobs after ``cursor``, those that ended before their state's instant are gone.

        (where to go on, or None at the end of the table; how many are gone). One bounded transaction.
        """
        with writing(self._store):
            noticed_at = self._store.value("duty_cursor", name="heal") or NEVER
            swept = sweep(self._store, cursor, ended_before, self._clock(), noticed_at)
            failpoint("prune.before_commit")
        return swept


def _is_child(row: JobRow) -> Refused:
    return Refused(f"job {row.id} is a child; remove its root {row.root_id} instead")


def _explained(error: StillStopping, store: Store, rows: Sequence[JobRow], pools: Sequence[PoolView]) -> Refused:
    """The same, unless the pool that has to end them is gone: then who hands the job back, or what to do about it."""
    known = {pool.id: pool for pool in pools}
    for held in _held(store, rows):
        pool = known.get(held.pool or 0)
        if pool is not None and is_alive(pool):
            continue
        whose = f"pool {held.pool}" if pool is None else f"pool {pool.id} ({pool.name} on {pool.host})"
        text = f"job {held.id} was cancelled while it ran, and {whose}, which has to end its processes, is gone"
        if any(is_alive(other) for other in pools):
            return StillStopping(f"{text}; another pool sees to that soon")
        reaps = pool is not None and pool.host == hostname()
        advice = "`covey worker reap` does it" if reaps else "a pool does it after a lease: `covey worker start`"
        return Refused(f"{text}; {advice}, then try again")
    return error


def _held(store: Store, rows: Sequence[JobRow]) -> list[JobRow]:
    """Of each job's tree one that a pool still has."""
    ids = [found[0][0] for row in rows if (found := store.ask("held_in_tree", root=row.root_id))]
    return [row for id in ids if (row := store.row(id)) is not None]
