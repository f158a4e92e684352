"""Whether all is well: what a person should know about pools, workers and waiting jobs, and what to do about it.

The rules are in docs/operations.md, one row for each finding.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal

from ..core.view import Finding, PoolView, QueueView, WorkerView, rfc3339
from ..env import alive, boot, hostname
from ..store.sqlite.disk_space import lacking
from . import advice

Health = Literal["fine", "warning", "broken"]
Lane = tuple[str, str]  # queue, kind: jobs of it wait
Ahead = tuple[str, str | None, int]  # what lies in the future, which one, when
MOST_NAMES = 5
WRITTEN = {
    "duty": "housekeeping put off:",
    "pause": "a pause of queue",
    "pool": "the beat of pool",
    "token": "an expiring token made:",
    "job": "job",
    "events": "events until",
    "requests": "requests until",
}
RELICS = ("events", "requests")
ROOM = {
    "the queue": "free some: what is full takes no jobs and no results; pools keep theirs and go on by themselves",
    "live output": "free some: output of running jobs cannot be followed",
}


# ── one pool ────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_alive(pool: PoolView) -> bool:
    """Whether the pool lives, as far as this process can tell: exactly on its own host, by the beat elsewhere.

    A beat from further ahead than a lease is an old one: whoever lives has beaten since the clock was set right.
    """
    if pool.boot == boot():
        return alive(pool.pid, pool.ticks)
    return abs(pool.beat_age_s) < pool.lease_s


def is_frozen(pool: PoolView) -> bool:
    """Whether its process is there, on this host, and has been silent for longer than its lease."""
    return pool.boot == boot() and pool.beat_age_s > pool.lease_s and alive(pool.pid, pool.ticks)


def takes_jobs(pool: PoolView) -> bool:
    return pool.state != "stopping" and is_alive(pool)


def serves(pool: PoolView, queue: str) -> bool:
    return pool.queues is None or queue in pool.queues


def title(pool: PoolView, queue: str, kind: str) -> str:
    """What the pool calls the workers that run such jobs."""
    return f"{queue} ({kind})" if pool.types else kind


def can_run(pool: PoolView, queue: str, kind: str) -> bool:
    """Whether it has workers for such jobs, or has not given up having them."""
    return serves(pool, queue) and kind in pool.kinds and title(pool, queue, kind) not in pool.given_up


def lane_of(pool: PoolView, queue: str, kind: str) -> list[WorkerView]:
    """The workers that run such jobs; a pool without types has them for every queue that it serves."""
    wanted = queue if pool.types else None
    return [worker for worker in pool.workers if worker.queue == wanted and (worker.mode or "command") == kind]


def latest(workers: Iterable[WorkerView]) -> WorkerView:
    return max(workers, key=lambda worker: worker.started_at or "")


def places(pool: PoolView, queue: str) -> int:
    """How many jobs of the queue it runs at a time."""
    return pool.types.get(queue, 0) if pool.types else pool.count


# ── the whole ───────────────────────────────────────────────────────────────────────────────────────────────────────


def examine(
    pools: Sequence[PoolView],
    queues: Sequence[QueueView],
    waiting: Iterable[Lane],
    *,
    orphans: int,
    dead: int,
    ahead: Sequence[Ahead] = (),
    stranded: Sequence[tuple[int, int]] = (),
) -> list[Finding]:
    """Everything worth a word, the worst first."""
    living = [pool for pool in pools if is_alive(pool)]
    paused = [queue.name for queue in queues if queue.paused]
    depth = {queue.name: queue.counts.get("pending", 0) for queue in queues if not queue.paused}
    lanes = [lane for lane in waiting if lane[0] not in paused]
    found = [
        *_silent(living),
        *_given_up(living, lanes),
        *_fallen(living),
        *_gone([pool for pool in pools if pool not in living]),
        *_unserved([pool for pool in living if pool.state != "stopping"], living, pools, lanes, depth),
        *_ahead(ahead),
    ]
    if orphans:
        text = f"{orphans} jobs belong to pools that are no longer known"
        found.append(_warning(text, "a pool hands them back once it has run for a lease"))
    if dead:
        found.append(_warning(f"{dead:,} dead letter{'' if dead == 1 else 's'}", "`covey dlq list`"))
    found += _stranded(stranded)
    if paused:
        found.append(Finding(level="note", text=f"paused: {', '.join(paused)}"))
    return sorted(found, key=rank)


def rank(finding: Finding) -> int:
    """The worst first."""
    return ("broken", "warning", "note").index(finding.level)


def _stranded(uncles: Sequence[tuple[int, int]]) -> Iterable[Finding]:
    """Uncles, each with a root that it waits for and that is dead."""
    if not uncles:
        return
    uncle, root = uncles[0]
    if len(uncles) == 1:
        text = f"job {uncle} is blocked for ever: root {root} is dead"
    else:
        named = ", ".join(f"{each} (root {its} is dead)" for each, its in uncles[:MOST_NAMES])
        text = f"jobs are blocked for ever: {named}{' and more' if len(uncles) > MOST_NAMES else ''}"
    yield _warning(text, f"`covey retry {root}` may turn it, `covey cancel {uncle}` ends the waiting")


def verdict(findings: Iterable[Finding]) -> Health:
    levels = {finding.level for finding in findings}
    return "broken" if "broken" in levels else "warning" if "warning" in levels else "fine"


def sentence(finding: Finding) -> str:
    """What was found and what to do, in one line."""
    return f"{finding.text}; {finding.advice}" if finding.advice else finding.text


def _silent(living: Sequence[PoolView]) -> Iterable[Finding]:
    for pool in living:
        if is_frozen(pool):
            text = (
                f"pool {pool.id} (pid {pool.pid}) has been silent for {pool.beat_age_s:.0f} s, its lease is "
                f"{pool.lease_s:g} s: it is frozen or cannot reach the database"
            )
            yield _broken(text, _see(pool, f"`kill -CONT {pool.pid}`, or end it and start another"))


def _given_up(living: Sequence[PoolView], lanes: Sequence[Lane]) -> Iterable[Finding]:
    """Broken where jobs wait for exactly that and nobody else can run them."""
    stuck = [lane for lane in lanes if not any(takes_jobs(pool) and can_run(pool, *lane) for pool in living)]
    for pool in living:
        missed = {title(pool, *lane) for lane in stuck if serves(pool, lane[0])}
        for what, why in pool.given_up.items():
            text = f"no {what} worker can start in pool {pool.id}: {why}"
            mend = _see(pool, "mend it and restart the pool")
            yield _broken(f"jobs wait, and {text}", mend) if what in missed else _warning(text, mend)


def _fallen(living: Sequence[PoolView]) -> Iterable[Finding]:
    for pool in living:
        fallen = [worker for worker in pool.workers if worker.state == "dead" and not _is_given_up(pool, worker)]
        if fallen:
            last = latest(fallen)
            count = "1 worker" if len(fallen) == 1 else f"{len(fallen)} workers"
            text = f"{count} of pool {pool.id} could not start, last {last.name}: {last.error}"
            yield _warning(text, _see(pool, "others are tried in their place"))


def _gone(pools: Sequence[PoolView]) -> Iterable[Finding]:
    here = [pool for pool in pools if pool.host == hostname()]
    if here:
        text = f"pools are gone: {_names([f'{pool.name} ({pool.held} jobs)' for pool in here])}"
        yield _warning(text, "`covey worker reap` or the next pool hands their jobs back")
    if elsewhere := [pool for pool in pools if pool not in here]:
        text = f"pools are gone: {_names([f'{pool.name} on {pool.host} ({pool.held} jobs)' for pool in elsewhere])}"
        yield _warning(text, "a running pool hands their jobs back after a lease of silence")


def _unserved(
    taking: Sequence[PoolView],
    living: Sequence[PoolView],
    pools: Sequence[PoolView],
    lanes: Sequence[Lane],
    depth: dict[str, int],
) -> Iterable[Finding]:
    jobs = sum(depth.values())

    def start(queue: str | None, kinds: Iterable[str]) -> str:
        return f"`{advice.start(queue=queue, kind=max(kinds, key=_needs_app, default='command'), pools=pools)}`"

    if not taking:
        if jobs:
            who = "every pool is stopping" if living else "no worker runs"
            yield _warning(f"{_wait(jobs)} and {who}", start(None, (kind for _, kind in lanes)))
        return
    alone = sorted({queue for queue, _ in lanes if not any(serves(pool, queue) for pool in taking)})
    if alone:
        count = sum(depth.get(queue, 0) for queue in alone)
        text = f"{_wait(count)} in queues that no pool serves: {_names(alone)}"
        yield _warning(text, start(alone[0], (kind for queue, kind in lanes if queue == alone[0])))
    for kind, what in (("command", "commands"), ("sync", "Python tasks"), ("async", "async Python tasks")):
        able = [pool for pool in taking if kind in pool.kinds]
        unable = sorted(
            queue
            for queue, wanted in lanes
            if wanted == kind and queue not in alone and not any(serves(pool, queue) for pool in able)
        )
        if unable:
            text = f"{what} wait in queues whose pools cannot run them: {_names(unable)}"
            yield _warning(text, start(None, (kind,)))


def _needs_app(kind: str) -> bool:
    return kind != "command"


def _ahead(found: Sequence[Ahead]) -> Iterable[Finding]:
    """Only a note where nothing depends on it any more: events and requests go in their time."""
    if not found:
        return
    named = _names([" ".join(filter(None, (WRITTEN[what], name, rfc3339(at)))) for what, name, at in found])
    text = f"a clock was ahead, or this one is behind: {named}"
    if all(what in RELICS for what, _, _ in found):
        yield Finding(level="note", text=text)
    else:
        yield _warning(text, "set the clocks (`timedatectl`); a running pool mends what waits for that time")


# ── the disk ────────────────────────────────────────────────────────────────────────────────────────────────────────


def disk(path: str, side: str) -> list[Finding]:
    """What is wrong with the room beside a queue in the file ``path``, and for live output in ``side``; else nothing.

    Broken: not even a small job can be stored. Of a queue that is no file ("") only the second is ours to see.
    """
    found, seen = [], set()
    for what, place in (("the queue", path and os.path.dirname(path)), ("live output", side and f"{side}/live")):
        while place and not os.path.isdir(place):
            place = os.path.dirname(place)
        if not place or (device := os.stat(place).st_dev) in seen:
            continue
        seen.add(device)
        if (lack := lacking(place)) is not None:
            is_full, text = lack
            level = _broken if is_full and what == "the queue" else _warning
            found.append(level(f"the disk of {what} ({place}) {text}", ROOM[what]))
    return found


def _is_given_up(pool: PoolView, worker: WorkerView) -> bool:
    return title(pool, worker.queue or "", worker.mode or "command") in pool.given_up


def _wait(jobs: int) -> str:
    return "1 job waits" if jobs == 1 else f"{jobs:,} jobs wait"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _see(pool: PoolView, what: str) -> str:
    return f"{what}; log: {pool.log}" if pool.log else what


def _warning(text: str, what: str) -> Finding:
    return Finding(level="warning", text=text, advice=what)


def _broken(text: str, what: str) -> Finding:
    return Finding(level="broken", text=text, advice=what)
