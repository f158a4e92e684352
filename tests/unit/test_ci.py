"""What `.ci/run` does about programs that are missing."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/run"
LACKING = ("strace", "jq", "curl")  # none of them is in /usr/sbin, where the script looks as well


class Machine:
    """Commands of its own, all that a run needs but three; its packages are named like their programs."""

    def __init__(self, home: Path) -> None:
        self.bin, self._log = home / "bin", home / "log"
        self._script = home / ".ci/run"
        self.bin.mkdir()
        self._script.parent.mkdir()
        shutil.copy(SCRIPT, self._script)
        for program in ("bash", "sh", "dirname", "sort", "cp"):
            (self.bin / program).symlink_to(shutil.which(program) or program)
        for program in re.findall(r"([\w-]+):[\w.-]+", SCRIPT.read_text().partition("needed=(")[2].partition("\n)")[0]):
            if program not in LACKING:
                self.put(program, "exit 0")
        self.put("python3", "exit 0")
        self.put("make", f'echo "make $1 ${{COVEY_REQUIRE_ALL-}}" >>{self._log}')

    def put(self, program: str, does: str) -> None:
        path = self.bin / program
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shutil.which('sh')}\n{does}\n")
        path.chmod(0o755)

    def become(self, uid: int, *unavailable: str) -> None:
        """Debian, where these packages are not to be had; a message with one of them installs nothing."""
        self.put("id", f"echo {uid}")
        refused = "".join(f'case " $* " in *" {each} "*) exit 100;; esac\n' for each in unavailable)
        installs = (
            f"for each; do case $each in -*|install|update) ;; *) cp {self.bin}/python3 {self.bin}/$each;; esac; done"
        )
        self.put("apt-get", refused + installs)

    def run(self) -> tuple[int, str, list[str]]:
        """(exit code, what it said about itself, what was made)."""
        done = subprocess.run(
            ["bash", self._script], env={"PATH": str(self.bin)}, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stderr, self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_root_on_debian_gets_what_is_missing_and_then_every_test_must_run(machine: Machine) -> None:
    machine.become(0)
    assert machine.run() == (0, "", ["make check 1", "make test 1", "make test-world 1"])


def test_a_package_that_is_not_to_be_had_is_named_and_keeps_no_other_out(machine: Machine) -> None:
    machine.become(0, "jq")
    assert machine.run() == (1, "could not be installed: jq\n", [])
    assert (machine.bin / "strace").exists()
    assert (machine.bin / "curl").exists()


def test_who_may_install_nothing_is_told_what_cannot_run_and_goes_on(machine: Machine) -> None:
    machine.become(1000)
    said = "not installed, so that some tests cannot run: curl jq strace\n"
    assert machine.run() == (0, said, ["make check ", "make test ", "make test-world "])
