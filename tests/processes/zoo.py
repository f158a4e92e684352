"""The tasks that these tests run: well-behaved ones, and every bad habit that has been seen."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any

import habits
from traces import leave_trace, wait_for

from covey import Abort, Context, Covey, Retry, Snooze
from covey.env import start_ticks
from covey.system import process_tree
from covey.testing.until import until

app = Covey()


for each in habits.ALL:
    app.task(each)


# ── well-behaved ────────────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
def echo(value: Any) -> Any:
    return value


@app.task
def trace(text: Any) -> None:
    leave_trace(text)


@app.task
def trace_in(name: str, text: Any) -> None:
    leave_trace(text, name)


@app.task
def trace_or_hold(name: str, until: str, text: Any, slow: bool) -> None:
    leave_trace(text, name)
    if slow:
        wait_for(until)


@app.task
def in_and_out(name: str, seconds: float) -> None:
    leave_trace("+", name)
    time.sleep(seconds)
    leave_trace("-", name)


@app.task
def print_and_wait(name: str) -> None:
    print("waiting", flush=True)
    wait_for(name, 0.1 if name == "none" else 30.0)
    print("done")


@app.task
def speak(text: str) -> None:
    print(text)
    print(text.upper(), file=sys.stderr)
    os.write(1, b"raw\n")
    subprocess.run(["echo", "child"], check=True)


@app.task
async def aspeak(text: str) -> str:
    print(text)
    await asyncio.sleep(0.01)
    print(text.upper(), file=sys.stderr)
    return text


@app.task
def about(ctx: Context, more: str = "") -> dict[str, Any]:
    ctx.info(step="looked")
    return {"id": ctx.job_id, "attempt": ctx.attempt, "max": ctx.max_attempts, "task": ctx.task, "queue": ctx.queue}


@app.task
def says(ctx: Context, name: str) -> None:
    ctx.info(step="the first of them", rows=1)
    ctx.info(step="second", rows=7)
    wait_for(name)
    ctx.info(step="last")


@app.task
async def asays(ctx: Context, name: str) -> None:
    ctx.info(step="the first of them", rows=1)
    ctx.info(step="second", rows=7)
    await asyncio.to_thread(wait_for, name)
    ctx.info(step="last")


@app.task
async def aabout(ctx: Context) -> dict[str, Any]:
    return {"id": ctx.job_id, "attempt": ctx.attempt, "remaining": ctx.remaining() is not None}


@app.task
async def meet(name: str, others: int) -> float:
    """Returns once that many others are here: they must all run at the same time."""
    leave_trace("here", name)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with open(name) as file:
            if len(file.readlines()) >= others:
                return time.monotonic()
        await asyncio.sleep(0.01)
    raise TimeoutError("the others did not come")


@app.task
def rest(seconds: float) -> int:
    leave_trace(os.getpid())
    time.sleep(seconds)
    return os.getpid()


@app.task
async def arest(seconds: float) -> None:
    leave_trace(os.getpid())
    await asyncio.sleep(seconds)


@app.task
def rest_in(name: str, seconds: float) -> None:
    leave_trace(os.getpid(), name)
    time.sleep(seconds)


@app.task
async def arest_in(name: str, seconds: float) -> None:
    leave_trace(os.getpid(), name)
    await asyncio.sleep(seconds)


@app.task
def hold(name: str, number: int) -> None:
    """Runs until the file exists; leaves its number and its pid."""
    leave_trace(f"{number} {os.getpid()}")
    wait_for(name)


@app.task
def waits_as_a_child(text: str) -> None:
    """A Python task with a family of its own."""
    child = subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"], start_new_session=True)
    leave_trace(child.pid, text)
    time.sleep(1000)


@app.task
def prints(mega: int) -> None:
    print("head")
    for _ in range(mega):
        print("x" * 999_999)
    print("tail")


@app.task
def prints_and(mega: int, then: str) -> None:
    prints(mega)
    sys.stdout.flush()
    leave_trace("printed", "printed")
    if then == "die":
        os._exit(1)
    wait_for(then)


@app.task
async def aprints(mega: int) -> None:
    print("head")
    for _ in range(mega):
        print("x" * 999_999)
        await asyncio.sleep(0)
    print("tail")


@app.task
def starts_from_a_thread(text: str) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(subprocess.Popen(["sleep", "1000"]).pid))
    thread.start()
    thread.join()
    time.sleep(0.1)
    return found[0]


def orphans(count: int) -> int:
    """Leaves that many dead grandchildren to whoever adopts them. All are dead when it returns."""
    before = len(process_tree.children(os.getpid()))
    subprocess.run(["sh", "-c", f"for i in $(seq {count}); do (exec true) & done"], check=True)

    def dead() -> bool:
        mine = process_tree.children(os.getpid())
        return len(mine) >= before + count and all(start_ticks(pid) is None for pid in mine)

    until(dead, 10, "the orphans are dead")
    return os.getpid()


@app.task
def leaves_orphans(count: int) -> int:
    return orphans(count)


@app.task
async def aleaves_orphans(count: int) -> int:
    return orphans(count)


# ── steering ────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def fail(text: str = "boom", name: str = "failures") -> None:
    leave_trace(time.monotonic(), name)
    raise ValueError(text)


@app.task
async def afail(text: str = "boom") -> None:
    raise ValueError(text)


@app.task
def snooze_once(seconds: float) -> int:
    leave_trace(time.monotonic(), "snoozes")
    with open("snoozes") as file:
        times = len(file.readlines())
    if times == 1:
        raise Snooze(seconds)
    return times


@app.task
def retry_soon(ctx: Context, after: float) -> int:
    leave_trace(time.monotonic(), "retries")
    if ctx.attempt < 3:
        raise Retry("not yet", after=after)
    return ctx.attempt


@app.task
def abort(text: str) -> None:
    raise Abort(text)


@app.task
def exits(code: int) -> None:
    sys.exit(code)


# ── what cannot be stored ───────────────────────────────────────────────────────────────────────────────────────────


class Silent(Exception):
    """An exception that cannot be shown, copied or pickled."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


ODD: dict[str, Any] = {
    "nul": "a\x00b",
    "surrogate": "a\ud800b",
    "nan": float("nan"),
    "object": object(),
    "set": {1, 2},
    "keys": {1: 2},
    "big": "x" * (1 << 21),
    "emoji": "🐦",
    "mebi": "x" * (1 << 20),
}


@app.task
def odd_result(name: str) -> Any:
    if name == "deep":
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]
        return nested
    return ODD[name]


@app.task
async def aodd_result(name: str) -> Any:
    return ODD[name]


@app.task
def odd_error(name: str) -> None:
    if name == "silent":
        raise Silent
    raise ValueError(ODD[name])


@app.task
async def aodd_error(name: str) -> None:
    raise ValueError(ODD[name])


@app.task
def odd_output(name: str) -> None:
    sys.stdout.buffer.write({"nul": b"a\x00b", "surrogate": b"\xed\xa0\x80", "utf8": b"\xff\xfe"}[name])


@app.task
async def ablocks(name: str) -> None:
    """Keeps the event loop from everybody else."""
    leave_trace(os.getpid(), "blocks")
    wait_for(name)


@app.task
async def ablocks_beside_a_child(name: str) -> None:
    leave_trace(subprocess.Popen(["sleep", "1000"]).pid, "blocks")
    wait_for(name)


# ── rude ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def closes(what: str) -> None:
    print("before", flush=True)
    if what == "descriptor":
        os.close(1)
    elif what == "stream":
        sys.stdout.close()
    elif what == "both":
        sys.stdout.close()
        os.close(2)
    elif what == "pipe":
        os.dup2(os.pipe()[1], 1)
    else:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115


@app.task
def forks() -> str:
    """Returns twice."""
    print("once", flush=True)
    return "child" if os.fork() == 0 else "parent"


@app.task
async def aforks() -> str:
    return "child" if os.fork() == 0 else "parent"


# ── poison ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def dies(how: str) -> None:
    leave_trace(how, "starts")
    if how == "exit":
        os._exit(1)
    if how == "segv":
        ctypes.string_at(0)
    if how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 26, 1 << 26))
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        while libc.malloc(ctypes.c_size_t(1 << 20)):
            pass
        libc.abort()
    os.kill(os.getpid(), 9)


@app.task
async def adies(how: str) -> None:
    leave_trace(how, "starts")
    os._exit(1)


# ── deaf ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def hold_the_gil(seconds: float) -> float:
    """Nothing else of this process runs meanwhile: usleep is called with the interpreter locked."""
    leave_trace("locked")
    began = time.monotonic()
    deaf = ctypes.PyDLL(None)
    while (left := began + seconds - time.monotonic()) > 0:
        deaf.usleep(int(min(left, 0.9) * 1e6))
    return seconds


@app.task
def holds_the_gil_beside_children() -> None:
    """Leaves the pids of two: an ordinary one, and one that has shed its parent, its session and its environment."""
    leave_trace(subprocess.Popen(["sleep", "1000"]).pid, "children")
    subprocess.run(["setsid", "env", "-i", "sh", "-c", "(echo $$ >>children; exec sleep 1000) &"], check=True)
    hold_the_gil(1000)


@app.task
def swallows_stop(seconds: float) -> str:
    """Catches what it should let pass."""
    leave_trace(os.getpid(), "swallows")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            time.sleep(deadline - time.monotonic())
        except BaseException:
            leave_trace("swallowed", "swallowed")
    return "done"


@app.task
async def asleeps_deaf(seconds: float) -> None:
    leave_trace(os.getpid(), "swallows")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            await asyncio.sleep(deadline - time.monotonic())
        except asyncio.CancelledError:
            leave_trace("swallowed", "swallowed")


@app.task
def turns_stop_into_an_error(text: str) -> None:
    leave_trace(text)
    try:
        time.sleep(1000)
    except BaseException as error:
        raise RuntimeError("wrapped") from error


# ── at the second try ───────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def fails_once(name: str) -> None:
    try:
        os.mkdir(name)
    except FileExistsError:
        return
    raise ValueError("not yet")
