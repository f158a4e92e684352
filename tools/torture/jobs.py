"""The jobs: commands, functions, coroutines and trees. Each leaves a line when it starts, and holds a lock meanwhile.

A second run of the same job at the same time would miss the lock. Descendants of a command inherit it: as long as one
of them lives, the job's last run is not over.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from covey.app import Covey
from covey.core import codec
from covey.core.model import SHELL, Spec
from covey.core.specs import shell_spec, task_spec
from covey.worker.children import Children
from covey.worker.context import Context

from .history import token

DIRECTORY = "TORTURE_DIR"  # in the environment of everything that a run starts
MUTANTS = "TORTURE_MUTANTS"  # there too: the names of planted bugs
ATTEMPTS = 1000  # a job must outlive everything that the killer does
DEEP = "deep"  # the queue whose trees have grandchildren
SECONDS = (0, 0, 0.005, 0.02, 0.1, 0.3)
SETTINGS = {
    "heartbeat_seconds": "0.3",
    "max_attempts": str(ATTEMPTS),
    "backoff_base": "1",
    "max_backoff_seconds": "0.01",
    "max_concurrency": "4",
}

# A third of the commands leave somebody behind in a session of its own, who would sleep for long.
COMMAND = """echo "$COVEY_JOB_ID run $COVEY_ATTEMPT" >>"$TORTURE_DIR/starts"
exec 9>"$TORTURE_DIR/locks/$COVEY_JOB_ID"
flock -n 9
test $? = 1 && echo "$COVEY_JOB_ID" >>"$TORTURE_DIR/overlaps"  # more than 1: it was killed
"""
ESCAPER = "setsid sleep 600 &\n"

app = Covey()
Sketch = list[Any]  # of a job: [kind, seconds], for a branch also its children's sketches and whether they are serial


@app.task
def leaf(ctx: Context, seconds: float) -> int:
    with _running(ctx.job_id, "run", ctx.attempt):
        time.sleep(seconds)
    ctx.info(leaves=1, weight=ctx.job_id % 7)
    return 1


@app.task
async def drift(ctx: Context, seconds: float) -> int:
    with _running(ctx.job_id, "run", ctx.attempt):
        await asyncio.sleep(seconds)
    ctx.info(leaves=1, weight=ctx.job_id % 7)
    return 1


@app.task
def branch(ctx: Context, seconds: float, children: list[Sketch], serial: bool) -> None:
    """Complete when all of its children are; dead if one of them is not."""
    with _running(ctx.job_id, "run", ctx.attempt):
        _spawn(ctx, children[: len(children) // 2], serial)
        time.sleep(seconds)
        _spawn(ctx, children[len(children) // 2 :], serial)


@app.task(on_error="collect")
def gather(ctx: Context, seconds: float, children: list[Sketch], serial: bool) -> list[int]:
    """The same with a join, which runs however they ended."""
    with _running(ctx.job_id, "run", ctx.attempt):
        time.sleep(seconds)
        _spawn(ctx, children, serial)
    return []


@gather.join
def gathered(ctx: Context, children: Children) -> list[int]:
    with _running(ctx.job_id, "join", ctx.attempt):
        return [len(children), len(children.failed())]


def _spawn(ctx: Context, children: list[Sketch], serial: bool) -> None:
    mode = "serial" if serial else "concurrent"
    for kind, seconds, *rest in children:
        if kind == "command":
            ctx.spawn_shell(command(seconds, *rest), mode=mode)  # type: ignore[arg-type]
        else:
            task: Any = app.tasks[f"{__name__}.{kind}"]
            ctx.spawn(task, seconds, *rest, mode=mode)


def command(seconds: float, escapes: bool = False) -> str:
    return f"{COMMAND}{ESCAPER if escapes else ''}sleep {seconds}"


@contextlib.contextmanager
def _running(job: int, phase: str, attempt: int) -> Iterator[None]:
    directory = Path(os.environ[DIRECTORY])
    append(directory / "starts", f"{job} {phase} {attempt}\n")
    with open(directory / "locks" / str(job), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            append(directory / "overlaps", f"{job}\n")
        yield


def append(path: Path, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, line.encode())
    os.close(fd)


# ── what clients ask for ────────────────────────────────────────────────────────────────────────────────────────────


def specs(request: str, settings: dict[str, Any], rng: random.Random) -> list[Spec]:
    """The jobs of one request, the same for the same dice."""
    count = rng.choice((1, 1, 1, 5, 20))
    return [_spec(rng, settings, token(request, number)) for number in range(count)]


def _spec(rng: random.Random, settings: dict[str, Any], name: str) -> Spec:
    deep = rng.random() < 0.04
    kind, seconds, *rest = _tree(rng, deep) if deep or rng.random() < 0.25 else _single(rng)
    if kind == "command":
        return shell_spec(command(seconds, *rest), settings=settings, batch=name, cwd="/")
    gathers = kind == "gather"
    return task_spec(
        f"{__name__}.{kind}",
        settings=settings,
        kind="async" if kind == "drift" else "sync",
        args=codec.encode([[seconds, *rest], {}], what="arguments"),
        batch=name,
        queue=DEEP if deep else "default",
        joins=gathers,
        on_error="collect" if gathers else "wait",
    )


def _single(rng: random.Random) -> Sketch:
    seconds = rng.choice(SECONDS)
    kind = rng.choice(("leaf", "leaf", "drift", "command", "command"))
    return ["command", seconds, rng.random() < 0.3] if kind == "command" else [kind, seconds]


def _tree(rng: random.Random, deep: bool) -> Sketch:
    children = [_single(rng) for _ in range(rng.randint(1, 5))]
    if deep:
        children += [_tree(rng, deep=False) for _ in range(rng.randint(1, 2))]
    return [rng.choice(("branch", "gather")), rng.choice(SECONDS), children, rng.random() < 0.25]


def is_tree(task: str) -> bool:
    return task in (branch.name, gather.name)


def is_command(task: str) -> bool:
    return task == SHELL


if "group_only" in os.environ.get(MUTANTS, "").split():  # this is imported by zygotes: their workers inherit the bug
    from .planted import end_groups_only

    end_groups_only()
