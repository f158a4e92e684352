"""The command line: what one `covey enqueue true` costs in CPU, beside importing the libraries that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from . import ground
from .report import Figure
from .timing import alternate, median, ratio_of_pairs

NAME = "cli"


def run(quick: bool) -> Iterator[Figure]:
    rounds = 10 if quick else 30
    covey = Path(sys.executable).with_name("covey")
    with ground.scratch() as place:
        url = ground.new_queue(place)
        imports = [sys.executable, "-c", "import apsw, typer"]
        bare = [sys.executable, "-c", "pass"]

        def enqueue() -> float:
            return _cpu_ms([str(covey), "enqueue", "true"], url)

        for command in (imports, [str(covey), "enqueue", "true"]):
            _cpu_ms(command, url)
        mine, theirs, nothing = alternate(rounds, enqueue, lambda: _cpu_ms(imports, url), lambda: _cpu_ms(bare, url))
    yield Figure(
        NAME, "covey enqueue true, CPU", median(mine), median(theirs), "ms", 'python -c "import apsw, typer"',
        ("≤", 1.5), note=f"python -c pass {median(nothing):.0f} ms", given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip


def _cpu_ms(command: list[str], url: str) -> float:
    """User and system time of the whole process, with everything it waited for."""
    child = subprocess.Popen(command, env=ground.environ(COVEY_DB=url), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return (usage.ru_utime + usage.ru_stime) * 1e3
