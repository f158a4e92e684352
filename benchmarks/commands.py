"""Commands: a pool of two that runs `true`, beside `xargs -P2`."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from . import ground, tasks
from .report import Figure, Remark
from .timing import alternate, median, ratio_of_pairs

NAME = "commands"


def run(quick: bool) -> Iterator[Figure | Remark]:
    count, rounds = (500, 3) if quick else (2_000, 3)
    if shutil.which("xargs") is None:
        yield Remark(NAME, "xargs is not installed here")
        return
    words = "".join(f"{n}\n" for n in range(count)).encode()

    def xargs() -> float:
        began = time.monotonic()
        subprocess.run(["xargs", "-P2", "-n1", "true"], input=words, check=True)
        return count / (time.monotonic() - began)

    def argv() -> float:
        return _covey(["true"], count)

    def shell() -> float:
        return _covey("true", count)

    mine, line, theirs = alternate(rounds, argv, shell, xargs)
    yield Figure(
        NAME, f"{count:,} × true, as words", median(mine), median(theirs), "jobs/s", "xargs -P2 -n1 true", ("≥", 0.6),
        given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip
    yield Figure(
        NAME, f"{count:,} × true, a line for the shell", median(line), median(theirs), "jobs/s", "the same",
        note="a shell more per job than xargs starts", given=ratio_of_pairs(line, theirs),
    )  # fmt: skip


def _covey(command: str | list[str], count: int) -> float:
    """Jobs a second from the first start to the last end."""
    with ground.scratch() as place:
        url = ground.new_queue(place)
        ground.use(url)
        with tasks.app.transaction():
            for _ in range(count):
                tasks.app.shell(command)
        with ground.Pool(url, count=2, drain=True, app=False) as pool:
            pool.process.wait(120)
        db = ground.connect(url)
        done, first, last = db.execute(
            "select count(*), min(started_at), max(finished_at) from jobs where state = 'completed'"
        ).get
        db.close()
        if done != count:
            raise RuntimeError(f"{done} of {count} commands completed:\n{Path(pool.log).read_text()[-2000:]}")
        return count / (last - first) * 1e6
