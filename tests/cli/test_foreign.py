"""Clients where Covey's workers do not run. The other system is played: what it lacks is gone (tests/kit/foreign)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import foreign

from .conftest import CommandLine
from .test_remote import serve

SHIM = Path(foreign.__file__).parent
WAYS = {
    "posix": {"COVEY_SYSTEM": "posix"},
    "darwin": {"COVEY_TEST_FOREIGN": "darwin", "PYTHONPATH": str(SHIM)},
    "win32": {"COVEY_TEST_FOREIGN": "win32", "PYTHONPATH": str(SHIM)},
}
IN_PYTHON = "from covey import Covey; job = Covey().shell('echo three'); print(job.id, job.state)"


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ("posix", "file"),
        ("darwin", "file"),
        ("win32", "file"),
        ("darwin", "http"),
        ("win32", "http"),
        ("win32", "postgres"),
    ],
)
def test_a_client_on_another_system_does_what_clients_do(
    covey: CommandLine, request: pytest.FixtureRequest, system: str, kind: str
) -> None:
    if kind == "http":
        covey.env["COVEY_DB"] = serve(covey)
    elif kind == "postgres":
        place: Callable[[str], str] = request.getfixturevalue("place")
        covey.env["COVEY_DB"] = place("postgres")

    def there(*words: str) -> str:
        done = covey(*words, env=dict(WAYS[system]))
        assert done.code == 0, done
        return done.out

    one, two = there("enqueue", "echo one").strip(), there("enqueue", "--max-attempts", "1", "exit 3").strip()
    assert "exit 3" in there("list")
    assert "pending" in there("show", two)
    assert "no worker runs" in there("status")
    there("queue", "pause", "default")
    assert "paused" in there("why", one)
    there("queue", "resume", "default")
    there("config", "set", "max_attempts", "1")
    done = subprocess.run(
        [sys.executable, "-c", IN_PYTHON], env=covey.environment(dict(WAYS[system])), capture_output=True, check=False
    )
    assert done.stdout.split()[1:] == [b"pending"], done.stderr
    covey.popen("worker", "start", "--count", "1", "--drain").wait(30)
    there("wait", one)
    assert there("logs", one) == "one\n"
    assert two in there("dlq", "list")
    assert "pending" in there("retry", two)
    assert "cancelled" in there("cancel", two)


@pytest.mark.parametrize("system", WAYS)
@pytest.mark.parametrize(("words", "code"), [(("worker", "start"), 2), (("run", "--", "true"), 125), (("demo",), 2)])
def test_what_needs_workers_is_refused_in_one_line(
    covey: CommandLine, system: str, words: tuple[str, ...], code: int
) -> None:
    done = covey(*words, env=dict(WAYS[system]))
    assert (done.code, done.err.count("\n")) == (code, 1), done
    assert done.err.startswith("error: workers run on Linux only: on Windows in WSL2")


@pytest.mark.parametrize("system", ["darwin", "posix"])
def test_a_client_that_waits_is_woken_and_leaves_nothing_behind(covey: CommandLine, system: str) -> None:
    """Through a bell whose path may be too long for a socket there."""
    before = set(Path("/tmp").glob("covey-*-*"))
    (job,) = covey("enqueue", "true").ids
    covey("config", "set", "max_poll_seconds", "3600")
    covey.popen("worker", "start", "--count", "1", "--drain")
    done = covey("wait", str(job), "--timeout", "30s", env=dict(WAYS[system]))
    assert done.code == 0, done
    assert {path for path in set(Path("/tmp").glob("covey-*-*")) - before if path.is_symlink()} == set()


def test_a_forgotten_call_fails_loudly_there(covey: CommandLine) -> None:
    """The player itself: what it hides is gone."""
    for system, program in (
        ("darwin", "import os; os.eventfd(0)"),
        ("win32", "import fcntl"),
        ("darwin", "open('/proc/self/stat')"),
        ("win32", "import os; os.geteuid()"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program], env=covey.environment(dict(WAYS[system])), capture_output=True, check=False
        )
        assert done.returncode == 1, program
        assert done.stderr.splitlines()[-1].split(b":")[0] in (
            b"AttributeError",
            b"ModuleNotFoundError",
            b"FileNotFoundError",
        )


def test_a_word_for_the_system_that_means_nothing_is_refused(covey: CommandLine) -> None:
    done = covey("list", env={"COVEY_SYSTEM": "vms"})
    assert (done.code, done.out) == (2, "")
    assert "COVEY_SYSTEM=vms: posix, or nothing" in done.err
