"""What an enqueue asks and writes, in whichever transaction: the engine's own, or a caller's."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ..core.machine import admit as admit_new
from ..core.model import Enqueued, Spec
from ..errors import Duplicate
from ..store.job_rows import Place, root
from ..store.store import Store
from . import cache_records
from .spawns import Queues, refuse_foreign, starts_at


def admit(specs: Sequence[Spec], *lookers: Store, within: Container[str] | None = None) -> list[int | None]:
    """For each spec the id of the job that has its key already (in the eyes of any), or None if it is new.

    Who may see these queues only (``within``) is told of another's job that it is there, and no more: keys are unique
    in all queues together.
    """
    answers: list[int | None] = []
    seen: dict[tuple[str, str | None], int] = {}
    for place, spec in enumerate(specs):
        taken = next((id for id in (_holder(spec, store) for store in lookers) if id is not None), None)
        if taken is not None and within is not None:
            refuse_foreign(lookers[0], taken, spec.key or spec.unique_key, within)
        for name in (("key", spec.key), ("unique_key", spec.unique_key)):
            if name[1] is not None:
                if taken is None and name in seen:
                    taken = -1 - seen[name]  # an earlier one of this very batch
                seen.setdefault(name, place)
        if taken is not None and spec.if_exists != "return":
            who = f"job {taken}" if taken >= 0 else "another job of this batch"
            raise Duplicate(f"the key {spec.key or spec.unique_key!r} is taken by {who}", max(taken, 0))
        answers.append(taken)
    return answers


def _holder(spec: Spec, store: Store) -> int | None:
    taken: int | None = store.value("id_of_key", key=spec.key) if spec.key is not None else None
    if taken is None and spec.unique_key is not None:
        taken = store.value("id_of_unique_key", unique_key=spec.unique_key)
    return taken


def fresh(specs: Sequence[Spec], answers: Sequence[int | None]) -> list[Spec]:
    return [spec for spec, taken in zip(specs, answers, strict=True) if taken is None]


def insert(specs: Sequence[Spec], now: int, store: Store, queues: Queues, *, may_hit: bool = False) -> list[int]:
    """Their ids. With ``may_hit`` those whose work has been done before, and that could start now, have completed."""
    if not specs:
        return []
    ids = store.dialect.take_ids("jobs", len(specs))
    places = (_place(id, spec, now, queues) for id, spec in zip(ids, specs, strict=True))
    store.insert(ids, specs, places, now, queues.defaults)
    if any(spec.cache is not None for spec in specs):
        idle = {id for id, spec in zip(ids, specs, strict=True) if may_hit and _may_hit(spec, now, queues)}
        cache_records.note(store, ids, specs, now, queues.salt, idle=idle)
    return list(ids)


def _may_hit(spec: Spec, now: int, queues: Queues) -> bool:
    """Whether it could start now. Where there is more to ask, it is the claim that looks for what was done before."""
    return spec.queue_name not in queues and not spec.joins and starts_at(spec, now) is None


def _place(id: int, spec: Spec, now: int, queues: Queues) -> Place:
    """Of a root: what its options mean for where and when it begins."""
    first, queue = admit_new(starts_at(spec, now), now), spec.queue_name
    if queue not in queues:
        return root(id, first.state, first.run_at)
    return root(id, first.state, first.run_at, queues.max_depth(queue), queues.lane(queue, id, queue))


def named(answers: Sequence[int | None], ids: Sequence[int]) -> list[Enqueued]:
    """The answer for each spec: the next of the new ids, or whose key it was."""
    enqueued: list[Enqueued] = []
    rest = iter(ids)
    for taken in answers:
        if taken is None:
            enqueued.append(Enqueued(next(rest)))
        elif taken < 0:
            enqueued.append(Enqueued(enqueued[-1 - taken].id, existing=True))
        else:
            enqueued.append(Enqueued(taken, existing=True))
    return enqueued
