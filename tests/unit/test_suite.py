"""The suite itself: what it could not run it says, and what it leaves behind is nothing, or what a failure left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = """
import os, pathlib, tempfile
from tests.kit.lacking import Lacking, need

def test_without_a_program(): need("no-such-program", "sh")
def test_without_a_right(): raise Lacking("nobody may do that here")
def test_with_both(tmp_path): need("sh"); (tmp_path / "large").write_bytes(bytes(1 << 20))
"""


def small_run(
    directory: Path, program: str, *flags: str, **environ: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """A run of the suite with nothing in it but that; what is left of it."""
    (directory / "test_small.py").write_text(program)
    temp = directory / "temp"
    temp.mkdir()
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COVEY"))}
    words = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(directory), "-p", "tests.conftest", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(directory / "test_small.py")],
        cwd=ROOT,
        env={**own, "TMPDIR": str(temp), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, sorted(path.name for path in temp.rglob("*") if path.is_file())


@pytest.mark.parametrize("flags", [(), ("-n", "2")])
def test_what_could_not_be_run_is_said_at_the_end_and_a_green_run_leaves_no_file(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    done, left = small_run(tmp_path, SMALL, *flags)
    assert done.returncode == 0, done.stdout
    said = done.stdout[done.stdout.index("= NOT RUN =") :].splitlines()[1:5]
    assert said == [
        "NOT RUN for lack of no-such-program (1)",
        "    test_small.py::test_without_a_program",
        "NOT RUN: nobody may do that here (1)",
        "    test_small.py::test_without_a_right",
    ]
    assert left == []


def test_where_all_is_required_a_missing_program_is_a_failure(tmp_path: Path) -> None:
    done, _ = small_run(tmp_path, SMALL, "-n", "2", COVEY_REQUIRE_ALL="1")
    assert done.returncode == 1, done.stdout
    assert "what was not run for lack of a program is a failure" in done.stdout


def test_where_all_is_required_a_missing_right_is_none(tmp_path: Path) -> None:
    done, _ = small_run(tmp_path, SMALL, "-k", "not a_program", COVEY_REQUIRE_ALL="1")
    assert done.returncode == 0, done.stdout


def test_a_red_run_leaves_what_the_failure_left_and_no_more(tmp_path: Path) -> None:
    program = SMALL + "\ndef test_fails(tmp_path): (tmp_path / 'evidence').touch(); assert False\n"
    done, left = small_run(tmp_path, program)
    assert done.returncode == 1
    assert "evidence" in left
    assert "large" not in left


def test_tests_that_are_parametrized_to_nothing_are_an_error(tmp_path: Path) -> None:
    program = "import pytest\n@pytest.mark.parametrize('x', [])\ndef test_nothing(x): pass\n"
    done, _ = small_run(tmp_path, program)
    assert done.returncode != 0


def test_home_and_temporary_files_are_the_run_s_own() -> None:
    basetemp = Path(os.environ["HOME"]).parent
    assert Path.home() != Path(os.path.expanduser(f"~{os.environ.get('USER', 'root')}"))
    assert Path(tempfile.gettempdir()).parent == basetemp
