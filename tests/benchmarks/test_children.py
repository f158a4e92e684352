"""What processes that are measured are started with: the same for all, whatever the machine has set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import ground, startup
from benchmarks.contest import Contestant, Producer, Workers
from benchmarks.stores import Files, Given
from covey.testing.until import until

from . import played

HERE = Path(ground.__file__).parent
KEPT = "PYTHONDONTWRITEBYTECODE"
NOT_MEASURED = ("environments.py", "costs.py")  # pip and apt; counts of which only a difference is taken


@pytest.fixture(autouse=True)
def as_on_such_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEPT, "1")


def test_nobody_who_is_measured_compiles_modules_at_every_start(tmp_path: Path) -> None:
    assert KEPT not in ground.environ()
    for name in ("covey", "huey", "celery"):
        assert KEPT not in Contestant(name, Path("python")).environ(Given(tmp_path), starts=True)


def test_an_interpreter_beside_which_a_start_is_measured_keeps_what_it_compiled() -> None:
    process = startup._interpreter("import sys; print(sys.dont_write_bytecode, flush=True)")
    assert process.stdout
    said = process.stdout.readline()
    startup._end([process])
    assert said == b"False\n"


def test_workers_keep_what_they_compiled() -> None:
    with Files().fresh() as given, Producer(played.contestant(), given) as producer:
        producer.ask("fill", count=1)
        with Workers(producer, 1):
            said = until(lambda: (given.place / "done").read_text(), 30, "the job has run")
    assert said == "0 False\n"


def test_the_rest_of_the_environment_is_handed_on_and_what_is_given_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPARE_TEST", "as it was")
    assert ground.environ()["COMPARE_TEST"] == "as it was"
    assert ground.environ(COMPARE_TEST="given")["COMPARE_TEST"] == "given"


def test_every_process_of_a_benchmark_is_told_its_environment() -> None:
    """A new measure that forgets it would be unfair on some machines only, which nobody would see."""
    found = list(_started())
    assert len(found) > 5, "the calls have another name now"
    assert not [where for where, env in found if "os.environ" in env]


def _started() -> Iterator[tuple[str, str]]:
    """Where a process is started, and the expression for its environment; ours, where none is given."""
    for path in HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("subprocess.Popen", "subprocess.run"):
                given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                if path.name not in NOT_MEASURED:
                    yield f"{path.name}:{node.lineno}", given.get("env", "os.environ")
