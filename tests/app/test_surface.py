"""What `import covey` offers, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from pathlib import Path

import covey
from covey import Covey, errors
from covey.core.model import Spec

from . import functions


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_covey_loads_none_of_its_rooms() -> None:
    code = "import sys; before = set(sys.modules); import covey; print(*sorted(set(sys.modules) - before))"
    assert set(run(code).split()) <= {"covey", "__future__"}


def test_declaring_tasks_opens_no_database_library() -> None:
    code = "import sys; from covey import Covey; Covey('x.db'); print('apsw' in sys.modules, 'asyncio' in sys.modules)"
    assert run(code).split() == ["False", "False"]


def test_everything_that_is_raised_can_be_imported_from_the_front() -> None:
    raised = [name for name, thing in vars(errors).items() if inspect.isclass(thing)]
    assert len(raised) > 15
    for name in raised:
        assert getattr(covey, name) is getattr(errors, name)
        assert name in dir(covey)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(covey, "Queue")


def test_every_public_name_is_in_the_manual() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    missing = [name for name in covey._ROOMS if f"`{name}" not in manual and f" {name}" not in manual]
    assert not missing


def test_an_enqueue_costs_little_on_top_of_the_engine() -> None:
    """Below 30 µs of CPU: everything that `task.enqueue` does except the engine's own work."""
    with Covey("memory:cost") as app:
        add = app.task(functions.add)
        job = add.enqueue(1, b=2)
        connection, arguments = app._connection, add.arguments

        def around() -> None:
            spec = add.spec(arguments.encode((1,), {"b": 2}))
            assert isinstance(spec, Spec)
            covey.Job(connection, job.id, key=spec.key)

        best = min(_cpu_of(around, 200) for _ in range(50))
    assert best < 30e-6, f"{best * 1e6:.1f} µs"


def _cpu_of(step: object, times: int) -> float:
    assert callable(step)
    start = time.thread_time()
    for _ in range(times):
        step()
    return (time.thread_time() - start) / times
