"""Bad habits of tasks that a worker or a pool once did not survive. They are the zoo's, as `habits.name`."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from traces import leave_trace, wait_for

from covey import Context, Retry, Snooze
from covey.worker import async_worker, messages
from covey.worker.pool_link import PoolLink

DELAYS: dict[str, Any] = {
    "timedelta": timedelta(milliseconds=10), "text": "0.01", "word": "soon", "list": [1], "endless": 10**400,
}  # fmt: skip


def ask_for(what: str, snooze: bool, who: str) -> None:
    """To come back after something that may be no time at all, the first time it is called."""
    name = f"{who}-{what}-{snooze}"
    leave_trace("here", name)
    with open(name) as file:
        if len(file.readlines()) == 1:
            raise Snooze(DELAYS[what]) if snooze else Retry("later", after=DELAYS[what])


def comes_back(what: str, snooze: bool) -> None:
    ask_for(what, snooze, "sync")


async def acomes_back(what: str, snooze: bool) -> None:
    ask_for(what, snooze, "async")


def note_and_change(ctx: Context) -> None:
    noted: dict[str, Any] = {"step": 1}
    ctx.info(stats=noted)
    noted["when"] = timedelta(1)  # no JSON


def changes_what_it_noted(ctx: Context) -> None:
    note_and_change(ctx)


async def achanges_what_it_noted(ctx: Context) -> None:
    note_and_change(ctx)


def this_link() -> PoolLink:
    return next(each for each in gc.get_objects() if isinstance(each, PoolLink))


def garbles() -> None:
    this_link().reports.sendall(b"\x04\x00\x00\x00junk")
    time.sleep(1000)


async def agarbles() -> None:
    this_link().reports.sendall(b"\x04\x00\x00\x00junk")
    await asyncio.sleep(1000)  # else its report follows, and counts


async def atrips_its_worker() -> None:
    """What comes after the task fails, once."""
    real, async_worker.join = async_worker.join, None  # type: ignore[assignment]
    asyncio.get_running_loop().call_later(0.2, setattr, async_worker, "join", real)


async def acannot_read_the_next() -> None:
    """As when there is no descriptor left for a large job."""

    def unreadable(data: bytes) -> Any:
        raise ValueError("what was sent is not there")

    messages.decode_dispatch = unreadable


async def awrites_after_its_end() -> None:
    async def later() -> None:
        await asyncio.sleep(0.2)
        print("late", flush=True)

    background.append(asyncio.create_task(later()))


background: list[Any] = []


def detaches() -> str:
    sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8")  # type: ignore[attr-defined]
    print("said")
    return "fine"


def writes_without_end(megabytes: int, go: str) -> None:
    """Short, until the file is there."""
    if os.path.exists(go):
        for _ in range(megabytes):
            os.write(1, b"x" * (1 << 20))
        leave_trace(os.getpid(), "written")
        wait_for("enough")


def breaks_its_worker() -> None:
    this_link().end = None  # type: ignore[assignment,method-assign]


ALL: list[Callable[..., Any]] = [
    comes_back,
    acomes_back,
    changes_what_it_noted,
    achanges_what_it_noted,
    garbles,
    agarbles,
    atrips_its_worker,
    acannot_read_the_next,
    awrites_after_its_end,
    detaches,
    writes_without_end,
    breaks_its_worker,
]
