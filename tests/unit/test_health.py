"""What is said about pools, workers and waiting jobs: every finding, its level, and why a pending job waits."""

from __future__ import annotations

import os
from typing import Any

import pytest

from covey.core.view import ChildCounts, Event, Finding, JobView, PoolView, QueueView, WorkerView
from covey.engine import health
from covey.engine.why import Kin, explain
from covey.env import boot, hostname, start_ticks

KINDS = ["command", "sync", "async"]
MINUTE = 60_000_000


def worker(name: str = "command-1", **fields: Any) -> WorkerView:
    given: dict[str, Any] = dict.fromkeys(WorkerView.__struct_fields__)
    given |= {"id": f"1/{name}", "name": name, "pool": 1, "host": "far", "kind": "command", "state": "idle"}
    given |= {"beat_age_s": 0.0, "done": 0, "failed": 0}
    return WorkerView(**given | fields)


def pool(id: int = 1, **fields: Any) -> PoolView:
    """A pool on another host, alive by its beat."""
    given: dict[str, Any] = dict.fromkeys(PoolView.__struct_fields__)
    given |= {"id": id, "name": f"p{id}", "host": "far", "boot": "far-boot", "pid": 77, "ticks": 1, "kinds": KINDS}
    given |= {"count": 2, "given_up": {}, "version": "1", "beat_age_s": 1.0, "lease_s": 30.0, "state": "running"}
    return PoolView(**given | {"held": 0, "workers": []} | fields)


def here(id: int = 1, **fields: Any) -> PoolView:
    """A pool whose process is this one."""
    mine = {"host": hostname(), "boot": boot(), "pid": os.getpid(), "ticks": start_ticks(os.getpid())}
    return pool(id, **mine | fields)


def queue(name: str = "default", **fields: Any) -> QueueView:
    given: dict[str, Any] = {"paused": False, "resume_at": None, "serial": False, "concurrency": None, "max_depth": 1}
    return QueueView(name=name, **given | {"counts": {}} | fields)


def job(state: str = "pending", **fields: Any) -> JobView:
    given: dict[str, Any] = dict.fromkeys(JobView.__struct_fields__)
    given |= {"id": 5, "queue": "default", "task": "shell", "state": state, "phase": "run", "attempts": 1}
    given |= {"max_attempts": 3, "root_id": 5, "children": ChildCounts(), "kind": "command", "fence": 1, "depth": 0}
    return JobView(**given | fields)


def examine(*pools: PoolView, **fields: Any) -> list[tuple[str, str, str | None]]:
    given: dict[str, Any] = {"queues": [], "waiting": [], "orphans": 0, "dead": 0}
    given |= fields
    found = health.examine(pools, given.pop("queues"), given.pop("waiting"), **given)
    return [(each.level, each.text, each.advice) for each in found]


# ── one pool ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_elsewhere_a_pool_lives_as_long_as_it_beats_here_as_long_as_its_process() -> None:
    assert health.is_alive(pool(beat_age_s=29.9))
    assert not health.is_alive(pool(beat_age_s=30.0))
    assert health.is_alive(here(beat_age_s=31.0))
    assert not health.is_alive(here(ticks=1, beat_age_s=0.0))
    assert health.is_alive(here(boot="another-boot:4", beat_age_s=29.9))  # a machine with our name
    assert not health.is_alive(here(boot="an-older-boot:4", beat_age_s=30.0))
    assert health.is_alive(here(boot=boot().partition(":")[0] + ":another-space", beat_age_s=0.0))


def test_a_frozen_pool_is_one_of_this_host_that_lives_and_is_silent() -> None:
    assert health.is_frozen(here(beat_age_s=30.1))
    assert not health.is_frozen(here(beat_age_s=30.0))
    assert not health.is_frozen(here(beat_age_s=31.0, ticks=1))
    assert not health.is_frozen(pool(beat_age_s=31.0))


def test_who_takes_which_jobs() -> None:
    assert health.takes_jobs(pool(state="draining"))
    assert not health.takes_jobs(pool(state="stopping"))
    assert not health.takes_jobs(pool(beat_age_s=99.0))
    assert health.serves(pool(), "any")
    assert health.serves(pool(queues=["a"]), "a")
    assert not health.serves(pool(queues=["a"]), "b")
    typed = pool(queues=["a"], types={"a": 3}, given_up={"a (sync)": "no module"})
    assert health.can_run(typed, "a", "command")
    assert not health.can_run(typed, "a", "sync")
    assert not health.can_run(typed, "b", "command")
    assert not health.can_run(pool(kinds=["sync"]), "a", "command")
    assert not health.can_run(pool(given_up={"sync": "no module"}), "a", "sync")
    assert (health.places(typed, "a"), health.places(typed, "b"), health.places(pool(count=4), "a")) == (3, 0, 4)


def test_the_workers_of_a_lane() -> None:
    workers = [worker("c"), worker("s", mode="sync"), worker("t", queue="a")]
    assert [each.name for each in health.lane_of(pool(workers=workers), "a", "command")] == ["c"]
    assert [each.name for each in health.lane_of(pool(workers=workers), "a", "sync")] == ["s"]
    assert [each.name for each in health.lane_of(pool(workers=workers, types={"a": 1}), "a", "command")] == ["t"]
    assert health.latest([worker("a", started_at="2"), worker("b"), worker("c", started_at="1")]).name == "a"


# ── the whole ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_where_all_is_well_nothing_is_said() -> None:
    assert examine(pool(), queues=[queue(counts={"pending": 3})], waiting=[("default", "sync")]) == []
    assert health.verdict([]) == "fine"
    assert health.verdict([Finding(level="note", text="t")]) == "fine"
    assert health.verdict([Finding(level="note", text="t"), Finding(level="warning", text="t")]) == "warning"
    assert health.verdict([Finding(level="broken", text="t"), Finding(level="warning", text="t")]) == "broken"
    assert health.sentence(Finding(level="note", text="t")) == "t"
    assert health.sentence(Finding(level="note", text="t", advice="a")) == "t; a"


def test_the_worst_comes_first() -> None:
    found = examine(
        here(beat_age_s=40.0, log="/l"), queues=[queue(paused=True), queue("q", paused=True)], orphans=2, dead=1
    )
    silent = f"pool 1 (pid {os.getpid()}) has been silent for 40 s, its lease is 30 s: "
    advice = f"`kill -CONT {os.getpid()}`, or end it and start another; log: /l"
    assert found == [
        ("broken", silent + "it is frozen or cannot reach the database", advice),
        (
            "warning",
            "2 jobs belong to pools that are no longer known",
            "a pool hands them back once it has run for a lease",
        ),
        ("warning", "1 dead letter", "`covey dlq list`"),
        ("note", "paused: default, q", None),
    ]
    assert examine(pool(), dead=1234)[0][1] == "1,234 dead letters"


def test_uncles_of_dead_roots_are_named_with_what_to_do() -> None:
    advice = "`covey retry 3` may turn it, `covey cancel 7` ends the waiting"
    assert examine(pool(), stranded=[(7, 3)]) == [
        ("warning", "job 7 is blocked for ever: root 3 is dead", advice),
    ]
    several = "jobs are blocked for ever: 7 (root 3 is dead), 8 (root 3 is dead)"
    assert examine(pool(), stranded=[(7, 3), (8, 3)]) == [("warning", several, advice)]
    ((_, text, _),) = examine(pool(), stranded=[(number, 3) for number in range(7, 13)])
    assert text.endswith("11 (root 3 is dead) and more")


def test_what_cannot_start_is_broken_only_where_jobs_wait_for_it_and_nobody_else_runs_them() -> None:
    fallen = pool(given_up={"sync": "no module 'x'"})
    text = "no sync worker can start in pool 1: no module 'x'"
    waiting = [("default", "sync")]
    assert examine(fallen) == [("warning", text, "mend it and restart the pool")]
    assert examine(fallen, waiting=[("default", "command")])[0][0] == "warning"
    assert examine(fallen, waiting=waiting)[0][:2] == ("broken", f"jobs wait, and {text}")
    assert examine(fallen, waiting=waiting, queues=[queue(paused=True)])[0][0] == "warning"
    assert examine(fallen, pool(2), waiting=waiting)[0][0] == "warning"
    assert examine(fallen, pool(2, state="stopping"), waiting=waiting)[0][0] == "broken"
    assert (
        examine(pool(queues=["other"], given_up={"sync": "x"}), pool(2, kinds=[]), waiting=waiting)[0][0] == "warning"
    )


def test_workers_that_fell_are_counted_and_the_last_is_named() -> None:
    fallen = [worker(f"command-{n}", state="dead", started_at=str(n), error=f"e{n}") for n in (1, 3, 2)]
    advice = "others are tried in their place"
    assert examine(pool(workers=[*fallen, worker()])) == [
        ("warning", "3 workers of pool 1 could not start, last command-3: e3", advice)
    ]
    assert examine(pool(workers=fallen[:1]))[0][1] == "1 worker of pool 1 could not start, last command-1: e1"
    assert [level for level, text, _ in examine(pool(workers=fallen, given_up={"command": "x"}))] == ["warning"]
    typed = pool(types={"q": 1}, workers=[worker(queue="q", mode="sync", state="dead")], given_up={"q (sync)": "x"})
    assert len(examine(typed)) == 1


def test_pools_that_are_gone_are_named_by_where_they_were() -> None:
    mine, far = here(ticks=1, held=3), pool(2, beat_age_s=99.0, held=1)
    assert examine(pool(3), mine, far) == [
        ("warning", "pools are gone: p1 (3 jobs)", "`covey worker reap` or the next pool hands their jobs back"),
        (
            "warning",
            "pools are gone: p2 on far (1 jobs)",
            "a running pool hands their jobs back after a lease of silence",
        ),
    ]
    many = [pool(n, beat_age_s=99.0) for n in range(1, 8)]
    assert examine(pool(9), *many)[0][1].endswith("p5 on far (0 jobs) and 2 more")
    assert "more" not in examine(pool(9), *many[:5])[0][1]


def test_jobs_that_nobody_will_run() -> None:
    lanes = [("default", "sync"), ("q", "command")]
    queues = [queue(counts={"pending": 1000}), queue("q", counts={"pending": 1}), queue("p", paused=True)]
    assert examine(queues=queues[1:], waiting=lanes[1:]) == [
        ("warning", "1 job waits and no worker runs", "`covey worker start`"),
        ("note", "paused: p", None),
    ]
    assert examine(queues=[queue()]) == []
    gone = pool(state="stopping", app="shop:app")  # whoever comes next needs the same
    assert examine(gone, queues=queues, waiting=lanes)[0][2] == "`covey worker start --app shop:app`"
    assert (
        examine(pool(state="stopping"), queues=queues, waiting=lanes)[0][1]
        == "1,001 jobs wait and every pool is stopping"
    )
    assert examine(pool(queues=["default"]), queues=queues, waiting=lanes)[0] == (
        "warning",
        "1 job waits in queues that no pool serves: q",
        "`covey worker start --queue q`",
    )
    for kind, what in (("command", "commands"), ("sync", "Python tasks"), ("async", "async Python tasks")):
        unable = pool(kinds=[each for each in KINDS if each != kind])
        assert examine(unable, waiting=[("b", kind), ("a", kind)]) == [
            (
                "warning",
                f"{what} wait in queues whose pools cannot run them: a, b",
                "`covey worker start`" if kind == "command" else "`covey worker start --app MODULE:APP`",
            )
        ]
        assert examine(unable, pool(2), waiting=[("b", kind)]) == []
        assert len(examine(unable, pool(2, queues=["x"]), waiting=[("b", kind)])) == 1


# ── one job ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def why(view: JobView, *pools: PoolView, **fields: Any) -> tuple[str, list[str]]:
    given: dict[str, Any] = {"queue": None, "events": [], "ahead": 0, "now": 0, "kin": Kin()}
    given |= fields
    told = explain(view, [], given["queue"], pools, given["events"], given["ahead"], now=given["now"], kin=given["kin"])
    return told.reason, told.advice


@pytest.mark.parametrize(
    ("view", "fields", "reason", "advice"),
    [
        (
            job("scheduled", run_at="1970-01-01T00:01:00Z"),
            {},
            "1970-01-01T00:01:00Z (in 60 s)",
            "covey edit 5 --run-at now",
        ),
        (job("scheduled", run_at="1970-01-01T00:00:01Z"), {}, "(in 1 s)", "covey edit 5 --run-at now"),
        (job("scheduled", run_at="1970-01-01T00:01:00Z"), {"now": MINUTE}, "(due now)", "covey edit 5 --run-at now"),
        (job("scheduled"), {}, "(now)", "covey edit 5 --run-at now"),
        (job("processing", pool=3), {}, "pool 3 has claimed it and is about to start it", None),
        (
            job("processing", pool=3, worker="w", started_at="t"),
            {},
            "it runs on w of pool 3 since t",
            "covey logs -f 5",
        ),
        (
            job("failed", error="e", retry_at="1970-01-01T00:01:00Z"),
            {},
            "attempt 1 of 3 failed: e; the next",
            "covey logs 5",
        ),
        (job("dead", error="e"), {}, "it was given up after 1 of 3 attempts: e", "covey logs 5"),
        (job("dead", error="e", attempts=0), {}, "given up without an attempt left: e", "covey logs 5"),
        (job("cancelled", pool=3), {}, "cancelled and pool 3 is still stopping its processes", None),
        (job("cancelled"), {}, "somebody cancelled it", "covey retry 5"),
        (job("cancelled", error="its parent was"), {}, "its parent was", "covey retry 5"),
        (job("completed", finished_at="t"), {}, "it completed at t", "covey logs 5"),
        (
            job("waiting", children=ChildCounts(7, 6, 0, 1)),
            {"kin": Kin(children=[1, 2, 3, 4, 5, 6])},
            "it waits for children 1, 2, 3, 4, 5 … (1 of 7 have ended)",
            "covey tree 5",
        ),
        (
            job("waiting", children=ChildCounts(2, 2, 0, 0)),
            {"kin": Kin(children=[1, 2])},
            "children 1, 2 (0 of 2",
            "covey tree 5",
        ),
        (job("blocked"), {"kin": Kin(before=4)}, "it waits for its turn: job 4 comes before it", "covey why 4"),
        (job("blocked"), {"kin": Kin(roots=[(1, "ok"), (2, None)])}, "blocked until root 2 has ended", "covey why 2"),
        (job("blocked"), {"kin": Kin(roots=[(1, None), (2, None)])}, "until root 1, 2 have ended", "covey why 1"),
        (
            job("blocked"),
            {"kin": Kin(roots=[(n, None) for n in range(1, 7)])},
            "until root 1, 2, 3, 4, 5 … have ended",
            "covey why 1",
        ),
        (job("blocked"), {"kin": Kin(roots=[(1, "bad"), (2, "gone")])}, "completed: root 1 is dead", "covey retry 1"),
        (job("blocked"), {}, "completed: nothing is left to wait for", "covey cancel 5"),
    ],
)
def test_every_state_has_a_reason_and_advice(view: JobView, fields: Any, reason: str, advice: str | None) -> None:
    said, told = why(view, **fields)
    assert reason in said
    assert told[:1] == ([] if advice is None else [advice])


def test_a_pending_job_names_what_stands_in_its_way() -> None:
    able = pool(count=3)
    assert why(job(), able) == ("it is next in line; 3 workers serve that queue", ["covey worker list"])
    assert (
        why(job(), able, here(2), ahead=1234)[0]
        == "1,234 jobs are ahead of it in 'default'; 5 workers serve that queue"
    )
    assert why(job(), able, queue=queue(paused=True))[0] == "its queue 'default' is paused"
    paused = queue(paused=True, resume_at="t")
    assert why(job(), able, queue=paused) == ("its queue 'default' is paused until t", ["covey queue resume default"])
    assert "the lane belongs to 9" in why(job(), able, queue=queue(serial=True), kin=Kin(lane_of=9))[0]
    limited = queue(concurrency=2)
    assert "runs at most 2 at a time" in why(job(), able, queue=limited, kin=Kin(running=2))[0]
    assert "next in line" in why(job(), able, queue=limited, kin=Kin(running=1))[0]
    for other in (pool(queues=["q"]), pool(state="stopping"), pool(beat_age_s=99.0)):
        assert why(job(), other)[0] == "no worker serves the queue 'default'"
    assert why(job(), pool(kinds=["sync"]))[0] == "no worker of the queue 'default' can run commands"
    assert why(job(kind="sync", task="t"), pool(kinds=["command"]))[0].endswith("can run 't', a Python task")
    broken = pool(2, given_up={"command": "no shell"}, log="/l")
    assert why(job(), broken)[0] == "no command worker can start in pool 2: no shell; log: /l"
    assert why(job(), pool(2, given_up={"command": "x"}))[0] == "no command worker can start in pool 2: x"
    assert "next in line; 3 workers" in why(job(), broken, able)[0]
    frozen = here(3, beat_age_s=40.0)
    assert why(job(), frozen)[0].startswith(f"pool 3 (pid {os.getpid()}) is frozen or cannot reach the database")
    assert why(job(), frozen)[0].endswith("silent for 40 s")
    assert "next in line" in why(job(), frozen, able)[0]


def test_a_pending_job_whose_workers_cannot_start_says_so() -> None:
    dead = worker("command-1", state="dead", error="e", pool=4)
    starting = worker("command-2", state="starting")
    reason = "no command worker could start so far in pool 4, last command-1: e"
    assert why(job(), pool(4, workers=[dead, starting]))[0] == reason
    for others in ([worker("command-2")], []):
        assert "next in line" in why(job(), pool(4, workers=[dead, *others]) if others else pool(4))[0]
    assert "next in line" in why(job(), pool(4, workers=[dead]), pool(5))[0]


def test_what_happened_before_is_said_too() -> None:
    events = [
        Event(id=2, at="t2", kind="edited", job_id=5, pool=None, worker=None, text=None),
        Event(id=1, at="t1", kind="interrupted", job_id=5, pool=1, worker=None, text="its pool was lost"),
    ]
    assert why(job(), pool(), events=events)[0].endswith("; it ran before and was interrupted: its pool was lost")
    assert why(job(), pool(), events=events[:1])[0].endswith("queue")
    assert why(job("completed", finished_at="t"), events=events)[0] == "it completed at t"
    told = explain(job(interruptions=1), [], None, [pool()], events, 7, 0, Kin())
    assert told.facts == {
        "attempts": 1,
        "max_attempts": 3,
        "interruptions": 1,
        "ahead": 7,
        "events": ["t2 edited", "t1 interrupted: its pool was lost"],
    }
    assert explain(job("dead"), [], None, [], [], 7, 0, Kin()).facts["ahead"] is None


def test_a_schedule_is_overdue_only_where_pools_live() -> None:
    rows = [("nightly", 0, None, 0, 0)]
    assert [finding.level for finding in health.ill_schedules(rows, 10**9, living=True)] == ["broken"]
    assert health.ill_schedules(rows, 10**9, living=False) == []
