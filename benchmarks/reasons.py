"""Why Covey loses where it loses: by family, measure and peer, the most particular first."""

from __future__ import annotations

ANY = "*"
UNKNOWN = "**no reason is known**"

NEVER_SYNCS = "it never waits for the disk (synchronous=OFF); Covey's enqueue and claim are on disk when they return"
SYNCS_LATER = "synchronous=NORMAL: what has returned may be lost by a power cut"
ONE_ROW = (
    "the same wait for the disk, but one row and no fair lock: Covey writes two, passes the gate and rings the bell"
)
FORGETS = (
    f"{SYNCS_LATER}; a finished job leaves nothing, where Covey keeps a row; and Covey's pool first learns how short"
    " the jobs are"
)
FROM_MEMORY = "Redis answers from memory and syncs once a second; Covey waits for the disk"
STATEMENTS = "one insert; Covey takes a shared lock, writes two rows and a receipt, and notifies"
ARRAYS = "one insert of arrays into one table; Covey copies into two, after checks"
COROUTINES = (
    "its jobs are coroutines in the process that claims them; Covey's run in other processes, which may crash, hang or"
    " hold the interpreter without taking the pool along"
)
ONE_SESSION = f"{COROUTINES}; and each of its two processes has a session of its own, a pool has one"
ANOTHER_PROCESS = "the job runs in another process than the one that hears of it, and the enqueue writes more"
HANDED_OVER = "its worker claims for itself; Covey's pool claims, on disk, and hands the job to another process"
BEATS = "a pool looks for lost neighbours twice a second and beats; a read that blocks does nothing"
ONE_INTERPRETER = "it is one interpreter; Covey starts a pool, a zygote that imports the app, and forks workers from it"
KINDS = "pool and zygote are counted, and commands, functions and coroutines have workers of their own"

REASONS = {
    ("sqlite", "one", "huey-nosync"): NEVER_SYNCS,
    ("sqlite", "one", "litequeue"): SYNCS_LATER,
    ("sqlite", "one", "honker"): SYNCS_LATER,
    ("sqlite", "one", ANY): ONE_ROW,
    ("sqlite", "many", "litequeue"): f"one row a job, and {SYNCS_LATER}",
    ("sqlite", "p50", "huey-nosync"): NEVER_SYNCS,
    ("sqlite", "p99", "huey-nosync"): NEVER_SYNCS,
    ("sqlite", "p50", "litequeue"): SYNCS_LATER,
    ("sqlite", "p99", "litequeue"): SYNCS_LATER,
    ("sqlite", "p50", "honker"): SYNCS_LATER,
    ("sqlite", "p99", "honker"): SYNCS_LATER,
    ("sqlite", "backlog", "honker"): FORGETS,
    ("redis", "one", ANY): FROM_MEMORY,
    ("redis", "p50", ANY): f"{FROM_MEMORY} twice, at the enqueue and at the claim",
    ("redis", "p99", ANY): f"{FROM_MEMORY} twice, at the enqueue and at the claim",
    ("postgres", "one", ANY): STATEMENTS,
    ("postgres", "many", ANY): ARRAYS,
    ("postgres", "drain1", ANY): COROUTINES,
    ("postgres", "drain2", ANY): ONE_SESSION,
    ("postgres", "p50", ANY): ANOTHER_PROCESS,
    ("postgres", "p99", ANY): ANOTHER_PROCESS,
    ("commands", "commands", "xargs"): "it keeps no record: no queue, no output, no exit code of each",
    ("commands", "commands", "task-spooler"): "its queue is in memory, and its keeping of output was switched off",
    (ANY, "p50", ANY): HANDED_OVER,
    (ANY, "p99", ANY): HANDED_OVER,
    (ANY, "idle", ANY): BEATS,
    (ANY, "start", ANY): ONE_INTERPRETER,
    (ANY, "memory", ANY): KINDS,
}


def reason(family: str, measure: str, peer: str) -> str:
    for key in ((family, measure, peer), (family, measure, ANY), (ANY, measure, ANY)):
        if key in REASONS:
            return REASONS[key]
    return UNKNOWN
