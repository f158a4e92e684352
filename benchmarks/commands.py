"""Commands: a pool of two that runs `true`, beside `xargs -P2`; in the comparison GNU parallel and task-spooler too."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from . import environments, ground, tasks
from .report import Figure, Remark
from .timing import alternate, median, ratio_of_pairs

NAME = "commands"
LIMIT_S = 120.0


def run(quick: bool) -> Iterator[Figure | Remark]:
    count, rounds = (500, 3) if quick else (2_000, 3)
    if shutil.which("xargs") is None:
        yield Remark(NAME, "xargs is not installed here")
        return
    mine, line, theirs = alternate(
        rounds, lambda: covey(count), lambda: covey(count, "true"), lambda: xargs(count)
    )  # fmt: skip
    yield Figure(
        NAME, f"{count:,} × true, as words", median(mine), median(theirs), "jobs/s", "xargs -P2 -n1 true", ("≥", 0.6),
        given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip
    yield Figure(
        NAME, f"{count:,} × true, a line for the shell", median(line), median(theirs), "jobs/s", "the same",
        note="a shell more per job than xargs starts", given=ratio_of_pairs(line, theirs),
    )  # fmt: skip


def covey(count: int, command: str | tuple[str, ...] = ("true",)) -> float:
    """Jobs a second from the first start to the last end."""
    with ground.scratch() as place:
        url = ground.new_queue(place)
        ground.use(url)
        with tasks.app.transaction():
            for _ in range(count):
                tasks.app.shell(command if isinstance(command, str) else list(command))
        with ground.Pool(url, count=2, drain=True, app=False) as pool:
            pool.process.wait(LIMIT_S)
        db = ground.connect(url)
        done, first, last = db.execute(
            "select count(*), min(started_at), max(finished_at) from jobs where state = 'completed'"
        ).get
        db.close()
        if done != count:
            raise RuntimeError(f"{done} of {count} commands completed:\n{Path(pool.log).read_text()[-2000:]}")
        return count / (last - first) * 1e6


def xargs(count: int) -> float:
    return _fed(["xargs", "-P2", "-n1", "true"], count, {})


def parallel(count: int) -> float:
    program, environ = environments.program("parallel", ("parallel",))
    return _fed([program, "--will-cite", "-j2", "true"], count, environ)


def _fed(words: list[str], count: int, environ: dict[str, str]) -> float:
    lines = "".join(f"{n}\n" for n in range(count)).encode()
    began = time.monotonic()
    subprocess.run(
        words, input=lines, env=ground.environ(**environ), check=True, stderr=subprocess.DEVNULL, timeout=LIMIT_S
    )
    return count / (time.monotonic() - began)


def task_spooler(count: int) -> float:
    """From the instant at which the queue, filled behind one command that waits, is let go."""
    program, needed = environments.program("tsp", ("task-spooler",))
    with tempfile.TemporaryDirectory() as place:  # short: a socket's path has 107 bytes
        environ = ground.environ(**needed, TS_SOCKET=f"{place}/socket", TMPDIR=place)

        def tsp(*words: str) -> None:
            subprocess.run([program, *words], env=environ, check=True, capture_output=True, timeout=LIMIT_S)

        os.mkfifo(f"{place}/gate")
        try:
            tsp("-n", "cat", f"{place}/gate")  # job 0
            for _ in range(count):
                tsp("-n", "true")
            tsp("-S", "2")
            began = time.monotonic()
            Path(place, "gate").write_text("go")
            tsp("-w", str(count))
            return count / (time.monotonic() - began)
        finally:
            with contextlib.suppress(subprocess.SubprocessError):
                tsp("-K")


RUNNERS: dict[str, Callable[[int], float]] = {
    "covey": covey,
    "xargs": xargs,
    "parallel": parallel,
    "task-spooler": task_spooler,
}
SETTINGS = {
    "covey": ("--count 2, as words", "at least once", "nothing", "the row, its run and its output"),
    "xargs": ("-P2 -n1", "nothing is kept", "everything", "nothing"),
    "parallel": ("-j2", "nothing is kept", "everything", "nothing"),
    "task-spooler": ("2 slots, -n (no output)", "the queue is gone with its server", "everything", "a line of `tsp`"),
}
VERSIONS = {"xargs": ("xargs", "--version"), "parallel": ("parallel", "--version"), "task-spooler": ("tsp", "-V")}


def about(name: str) -> dict[str, Any]:
    """As a queue says it of itself (benchmarks/peers/peer.py)."""
    return dict(zip(("settings", "crash", "power", "keeps"), SETTINGS[name], strict=True)) | {
        "versions": {name: _version(name)}
    }


def _version(name: str) -> str:
    if name not in VERSIONS:
        return metadata.version(name)
    program, flag = VERSIONS[name]
    path, environ = environments.program(program, (name,))
    done = subprocess.run([path, flag], env=ground.environ(**environ), capture_output=True, text=True)
    return next(iter(re.findall(r"\d[\w.]*", done.stdout)), "?")
