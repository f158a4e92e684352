"""Where no queue is named and there is no home to have one in: one line says so, and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .conftest import CommandLine

ADVICE = "name a queue with --db PATH or COVEY_DB\n"


def refused(covey: CommandLine, home: str) -> str:
    env = covey.environment({"COVEY_DB": None, "COVEY_DEBUG": None, "HOME": home, "XDG_DATA_HOME": None})
    done = subprocess.run(
        [sys.executable, "-m", "covey", "enqueue", "true"],
        cwd="/",
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr


def test_a_home_that_is_not_there_is_not_made(covey: CommandLine, tmp_path: Path) -> None:
    home = tmp_path / "no" / "home"
    assert refused(covey, str(home)) == f"error: the home directory {home} is not there; {ADVICE}"
    assert not home.parent.exists()


def test_a_home_that_is_a_file_is_no_home(covey: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    assert refused(covey, str(tmp_path / "home")) == f"error: the home directory {tmp_path}/home is not there; {ADVICE}"


def test_a_home_in_which_nothing_can_be_made_is_named(covey: CommandLine, tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file")
    place = tmp_path / ".local" / "share" / "covey"
    assert refused(covey, str(tmp_path)) == f"error: {place} cannot be made (Not a directory); {ADVICE}"
