"""The README's five minutes, run as a newcomer would: every block pasted into one shell, in order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```sh tour\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_readme_tour_works_by_copy_and_paste(tmp_path: Path) -> None:
    script = "\n".join(BLOCK.findall(README.read_text()))

    with shell(script, tmp_path) as process:
        out, _ = process.communicate(timeout=120)

    assert process.returncode == 0, out
    assert "error:" not in out, out
    for shown in (
        "job 1 is pending: no worker serves the queue 'default'",
        "job 10 is dead: it was given up after 2 of 2 attempts",
        "exit code 2",
        "10 pending, was dead",
        "exit code 0",
        "total 42",
        "10 completed",
        "as it stands: $HOME *",
        "12 cat.png@64",
        "13 20 in attempt 2",
        "['0.png@256', '1.png@256', '2.png@256']",
    ):
        assert shown in out, f"{shown!r} is not in\n{out}"
    assert out.count("stopped ") == 2, out


@contextmanager
def shell(script: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell runs the script; leaving the block ends what is left of it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
    environ |= {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{environ['PATH']}", "COLUMNS": "120"}
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=home,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()
