"""What an enqueue asks and writes, in whichever transaction: the engine's own, or a caller's."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ..core.model import Enqueued, Spec
from ..errors import Duplicate
from ..store.families import Place
from ..store.store import Store
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
        if taken is not None and spec.if_exists == "error":
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


def insert(specs: Sequence[Spec], now: int, store: Store, queues: Queues) -> list[int]:
    """Their ids. A batch without anything special about trees and lanes goes the short way."""
    if not specs:
        return []
    starts = [(spec, starts_at(spec, now)) for spec in specs]
    if all(spec.queue not in queues and _is_plain(spec) for spec in specs):
        return store.insert(starts, now)
    ids = store.dialect.take_ids("jobs", len(specs))
    places = (
        Place(
            id=id,
            root_id=id,
            seq=id,
            state="pending" if run_at is None else "scheduled",
            run_at=run_at,
            max_depth=queues.max_depth(spec.queue),
            lane=queues.lane(spec.queue, id, spec.queue),
        )
        for id, (spec, run_at) in zip(ids, starts, strict=True)
    )
    store.insert_in_tree(ids, specs, places, now)
    return list(ids)


def _is_plain(spec: Spec) -> bool:
    """Whether the spec says nothing about trees."""
    return not spec.joins and spec.child_mode is None and spec.tree_timeout_s is None and spec.on_error == "wait"


def is_express(spec: Spec) -> bool:
    """Whether nothing about it must be looked up or decided first."""
    return spec.key is None and spec.unique_key is None and spec.run_at is None and not spec.delay_s and _is_plain(spec)


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
