"""The local engine: a Client for producers and people, a Source for pools. Each verb is one transaction."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from msgspec import UNSET, UnsetType

from .. import settings as config
from ..core import check
from ..core.clocks import NEVER
from ..core.machine import SECOND
from ..core.model import ENDED, Enqueued, JobRow, Spec
from ..core.turn import Caller
from ..core.view import Change, Edit, Filter, JobView
from ..env import failpoint
from ..errors import InvalidInput, NotFound, Refused, StillStopping
from ..store.store import Store
from . import arrivals, duties, reopen, requests, stopping
from .again import repeated
from .callers import Callers
from .live_output import Live
from .loans import Loans
from .sealing import refuse, writing
from .siblings import Siblings
from .spawns import Queues
from .tokens import Tokens
from .trees import Trees
from .views import Views

Ref = str | int


class Engine(Loans, Views, Tokens, Live, Callers, Siblings):
    """Everything that can be asked of one database. Safe to share between threads; not across a fork."""

    def __init__(self, store: Store, *, clock: Callable[[], int], rng: Random) -> None:
        self.store = store
        self.clock = clock
        self.rng = rng
        self._known_queues: set[str] = set()
        self.database_id: str = store.value("meta")
        self._listeners_init()

    # ── enqueue ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(
        self,
        specs: Sequence[Spec],
        *,
        request: str | None = None,
        caller: Caller | None = None,
        token: int = 0,
        within: tuple[str, ...] | None = None,
    ) -> list[Enqueued]:
        """All of them are on disk, in order, or none is.

        With a ``request``, a name that the client chose for this very call, the same again is answered the same and
        writes nothing, for an hour. With a ``caller``, those that are new end with him: there is no moment in which
        one of them exists and is not tied to him. ``token`` and ``within``: who asks, and the only queues that he may
        see.
        """
        for spec in specs:
            check.check_spec(spec)
        if request is not None:
            check.check_text(request, "request", most=200)
        if caller is not None:
            check.check_caller(caller)
        elif (
            request is None
            and len(specs) == 1
            and specs[0].queue in self._known_queues
            and arrivals.is_express(specs[0])
        ):
            id = self._express(specs[0])
            if id is not None:
                return [Enqueued(id)]
        return self._enqueue(specs, request, caller, token, within) if specs else []

    @repeated
    def _express(self, spec: Spec) -> int | None:
        return self.store.insert_express(spec, self.clock())

    @repeated
    def _enqueue(
        self,
        specs: Sequence[Spec],
        request: str | None,
        caller: Caller | None,
        token: int,
        within: tuple[str, ...] | None,
    ) -> list[Enqueued]:
        with self.store.transaction():
            now = self.clock()
            queues = Queues(self.store)
            refuse(queues.sealed)
            if request is not None and (before := requests.take(self.store, request, specs, now, token)) is not None:
                return before
            answers = arrivals.admit(specs, self.store, within=within)
            fresh = arrivals.fresh(specs, answers)
            self._add_queues({spec.queue for spec in fresh}, now)
            ids = arrivals.insert(fresh, now, self.store, queues)
            if caller is not None:
                self._tie(ids, caller)
            if ids:
                self.store.ring_for((spec.queue, spec.kind, spec.priority) for spec in fresh)
            enqueued = arrivals.named(answers, ids)
            if request is not None:
                requests.answer(self.store, request, enqueued, token)
            failpoint("enqueue.before_commit")
        failpoint("enqueue.after_commit")
        self._known_queues.update(spec.queue for spec in fresh)
        return enqueued

    def enqueue_in(self, tx: object, specs: Sequence[Spec]) -> list[Enqueued]:
        """All of them, in order, are part of the transaction that is open on the caller's connection, or none is."""
        for spec in specs:
            check.check_spec(spec)
        self.check_lendable()
        from .guests import Guest  # drivers, which others need not have

        guest = Guest(self.store, self.database_id, tx)
        return guest.enqueue(specs, now=self.clock(), add_queues=self._settle_queues) if specs else []

    def check_lendable(self) -> None:
        """A caller's connection can lead to this queue."""
        if self.store.dialect.name != "postgres":
            where = self.store.dialect.url
            raise InvalidInput(f"a connection as tx= needs a queue on PostgreSQL, not {where}; use app.transaction()")

    def _add_queues(self, names: set[str], now: int) -> None:
        for name in names - self._known_queues:
            self.store.ask("add_queue", name=name, now=now)

    def _settle_queues(self, names: set[str], now: int) -> None:
        """Outside of a transaction: they are there for good."""
        self._add_queues(names, now)
        self._known_queues.update(names)

    # ── changes that a person asks for ──────────────────────────────────────────────────────────────────────────────

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
        self._each([ref], lambda row, trees: self._edit(row, edit, trees.now))
        return self.job(ref)

    def remove(self, refs: Sequence[Ref], *, force: bool = False) -> list[Change]:
        """The jobs and all that is known of them are gone.

        ``force`` cancels first. What ran is then still stopping: StillStopping, and the cancel stands; try again soon.
        What may not be removed is refused before anything is cancelled.
        """
        if force and any(self._row(ref).state not in ENDED for ref in refs):
            ids = {self._id(ref) for ref in refs}
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
            raise stopping.explained(error, self.store, list(map(self._row, refs)), self.pool_views()) from None

    @repeated
    def _change_each(self, refs: Sequence[Ref], change: Callable[[JobRow, Trees], Change]) -> list[Change]:
        """Parents before their children, whatever the order asked for: what was done to a parent includes them."""
        if not refs:
            return []
        with writing(self.store):
            trees = Trees(self.store, self.clock(), self.rng)
            self.store.lock_queues()
            self.store.lock_trees([self._id(ref) for ref in refs])
            rows = {row.id: row for row in map(self._row, refs)}  # a job named twice is one job
            changes = {id: self._change(rows[id], trees, change) for id in sorted(rows)}
            self.store.ring("pool")
            self.store.ring("end")
            failpoint("change.before_commit")
        return [changes[id] for id in rows]

    def _change(self, row: JobRow, trees: Trees, change: Callable[[JobRow, Trees], Change]) -> Change:
        current = self.store.row(row.id)
        if current is None:  # it was there a moment ago: an earlier change of this call has dropped it with its parent
            return Change(row.id, "removed", row.state)
        if row.id in trees.touched:
            return Change(row.id, current.state, row.state)
        done = change(current, trees)
        trees.settle()
        return done

    def _row(self, ref: Ref) -> JobRow:
        row = self.store.row(self._id(ref))
        if row is None:
            raise NotFound(f"no job {ref!r}; `covey list` shows what there is")
        return row

    def _id(self, ref: Ref) -> int:
        """The id behind an id or a key."""
        text = str(ref)
        if text.isdecimal():
            return int(text) if len(text) < 19 else -1
        check.check_refs([text])
        id = self.store.value("id_of_key", key=text)
        if id is None:
            raise NotFound(f"no job with the key {text!r}; `covey list` shows what there is")
        return int(id)

    def _cancel(self, row: JobRow, trees: Trees) -> Change:
        state = trees.cancel(row)
        self.store.event("cancelled", now=trees.now, job_id=row.id, text=f"was {row.state}")
        return Change(row.id, state, row.state)

    def _retry(self, row: JobRow, trees: Trees, *, all: bool) -> Change:
        change = reopen.retry(row, trees, all=all)
        if row.state in ENDED:  # somebody else wants it now; whoever asked for it first has seen it end
            self.store.ask("untie", job=row.id)
        self.store.event("retried", now=trees.now, job_id=row.id, text=f"was {row.state}")
        return Change(row.id, change.state, row.state)

    def _again(self, row: JobRow, trees: Trees) -> Change:
        now = trees.now
        if row.state not in ENDED:
            raise Refused(f"job {row.id} is {row.state}; --again copies jobs that have ended")
        new_id = self.store.insert_copy(row.id, now)
        self.store.event("copied", now=now, job_id=row.id, text=f"as job {new_id}")
        return Change(row.id, row.state, row.state, new_id)

    def _edit(self, row: JobRow, edit: Edit, now: int) -> Change:
        if row.state not in ("pending", "scheduled", "failed", "blocked"):
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
        reschedules = edit.run_at is None or isinstance(edit.run_at, int)
        later = edit.run_at if isinstance(edit.run_at, int) and edit.run_at > now else None  # the past is now
        state = row.state
        if reschedules and row.state != "blocked":
            state = "pending" if later is None else "failed" if row.state == "failed" else "scheduled"
        self.store.ask(
            "edit_job",
            id=row.id,
            was=row.state,
            expected=row.fence,
            now=now,
            state=state,
            reschedules=reschedules,
            run_at=later,
            priority=edit.priority if isinstance(edit.priority, int) else None,
            queue=edit.queue if isinstance(edit.queue, str) else None,
            max_attempts=edit.max_attempts if isinstance(edit.max_attempts, int) else None,
        )
        if isinstance(edit.queue, str) and edit.queue != row.queue:
            self.store.ask("release_lane", root=row.id)
            self.store.ask("relane", ids=f"[{row.id}]")
        self.store.event("edited", now=now, job_id=row.id)
        return Change(row.id, state, row.state)

    def _remove(self, row: JobRow, trees: Trees) -> Change:
        if row.parent_id is not None:
            raise _is_child(row)
        if row.state not in ENDED:
            raise Refused(f"job {row.id} is {row.state}; cancel it first, or use --force")
        if row.pool is not None:
            raise StillStopping(f"job {row.id} is still stopping; remove it once its processes are gone")
        if row.children_total:
            if held := self.store.value("held_below", parent=row.id):
                raise StillStopping(f"job {held}, below job {row.id}, is still stopping; remove it once that is gone")
            self.store.ask("drop_below", parent=row.id)
        trees.removed(row.id)
        self.store.ask("remove_job", id=row.id)
        return Change(row.id, "removed", row.state)

    def newest_id(self) -> int:
        """The highest id in the table, 0 when it is empty: how far a sweep has to go."""
        page = self.jobs(Filter(limit=1)).jobs
        return page[0].id if page else 0

    @repeated
    def prune_window(self, cursor: int, ended_before: Mapping[str, int]) -> tuple[int | None, int]:
        """Of the next jobs after ``cursor``, those that ended before their state's instant are gone.

        (where to go on, or None at the end of the table; how many are gone). One bounded transaction.
        """
        with writing(self.store):
            noticed_at = self.store.value("duty_cursor", name="heal") or NEVER
            swept = duties.sweep(self.store, cursor, ended_before, self.clock(), noticed_at)
            failpoint("prune.before_commit")
        return swept

    # ── queues, settings, pools ─────────────────────────────────────────────────────────────────────────────────────

    def pause(self, queue: str, for_s: float | None = None) -> None:
        """Nothing of that queue is claimed until it is resumed, or until the time is over."""
        check.check_delay(for_s)
        self._change_queue(
            "pause_queue", queue, resume_at=None if for_s is None else self.clock() + int(for_s * SECOND)
        )

    def resume(self, queue: str) -> None:
        self._change_queue("resume_queue", queue)

    @repeated
    def set_queue(
        self,
        queue: str,
        *,
        serial: bool | UnsetType = UNSET,
        concurrency: int | UnsetType | None = UNSET,
        max_depth: int | UnsetType = UNSET,
    ) -> None:
        """The queue has these rules from now on; ``concurrency=None``: no limit. Depth holds for new trees."""
        check.check_queue(queue)
        check.check_limits(concurrency, max_depth)
        with writing(self.store, alone=True):  # nobody inserts by the old rules any more
            now = self.clock()
            self.store.ask("add_queue", name=queue, now=now)
            self.store.ask(
                "set_queue",
                name=queue,
                serial=None if serial is UNSET else int(bool(serial)),
                max_depth=None if max_depth is UNSET else max_depth,
                limits=concurrency is not UNSET,
                concurrency=None if concurrency is UNSET else concurrency,
            )
            if serial is not UNSET:
                self._relane(queue)
            self.store.event("queue_set", now=now, text=queue)
            failpoint("rules.before_commit")
        self.store.ring("pool")

    def _relane(self, queue: str) -> None:
        """Its live jobs stand in the lane, or in none; the oldest tree that has begun owns it."""
        ids = [row[0] for row in self.store.ask("live_in_queue", queue=queue)]
        self.store.ask("relane", ids=json.dumps(ids))
        self.store.ask("own_lane", name=queue, root=self.store.value("busy_root", queue=queue))

    @repeated
    def _change_queue(self, statement: str, queue: str, **params: Any) -> None:
        check.check_queue(queue)
        with writing(self.store):
            now = self.clock()
            if not any(name == queue for name, *_ in self.store.ask("queues")):
                if statement == "resume_queue":
                    raise NotFound(f"no queue {queue!r}; `covey queue list` shows what there is")
                self.store.ask("add_queue", name=queue, now=now)
            self.store.ask(statement, name=queue, **({"now": now} if params else {}), **params)
            self.store.event(statement.replace("_queue", "d"), now=now, text=queue)
            failpoint("pause.before_commit")
        self.store.ring("pool")

    @repeated
    def stop_pools(self, pools: Sequence[int]) -> None:
        """Each of these pools has been asked to finish what it runs and leave."""
        with writing(self.store):
            now = self.clock()
            for pool in pools:
                self.store.ask("request_stop", pool=pool, now=now)
            failpoint("stop.before_commit")
        self.store.ring("pool")

    def stored_settings(self) -> dict[str, str]:
        return {key: value for key, value in self.store.ask("config") if key in config.SETTINGS}

    def settings(self) -> dict[str, Any]:
        """Every setting's value as this process sees it."""
        return config.effective(self.stored_settings(), os.environ)

    @repeated
    def set_setting(self, name: str, text: str) -> tuple[str, Any]:
        """The setting holds for everything that is enqueued or started from now on."""
        key, value = config.parse(name, text)
        with writing(self.store):
            stored = self.stored_settings() | {key: text.strip()}
            _check_together(config.effective(stored, {}))
            self.store.ask("set_config", key=key, value=text.strip())
            failpoint("setting.before_commit")
        return key, value

    @repeated
    def unset_setting(self, name: str) -> str:
        key = config.find(name).name
        with writing(self.store):
            self.store.ask("unset_config", key=key)
            _check_together(config.effective(self.stored_settings(), {}))
            failpoint("unsetting.before_commit")
        return key

    def close(self) -> None:
        self._listeners_close()
        self.store.dialect.close()


def _is_child(row: JobRow) -> Refused:
    return Refused(f"job {row.id} is a child; remove its root {row.root_id} instead")


def _check_together(settings: dict[str, Any]) -> None:
    """InvalidInput when single settings are fine but contradict each other."""
    lease_s, beat_s = settings["lock_lease_seconds"], settings["heartbeat_seconds"]
    if lease_s < 3 * beat_s:
        raise InvalidInput(
            f"lock_lease_seconds ({lease_s:g}) must be at least three times heartbeat_seconds ({beat_s:g}); "
            "change the other one first"
        )
