"""covey demo: a small queue from start to end, in a directory of its own that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ...core.model import ENDED
from ...errors import StoreError
from ..printing import note

if TYPE_CHECKING:
    from ...core.view import JobView
    from ...engine.engine import Engine

PATIENCE_S = 60.0
APP = "covey.cli.demo_tasks:app"

Count = Annotated[int, typer.Option("--count", "-n", min=1, max=64, help="Jobs at a time.")]


def demo(count: Count = 4) -> int:
    """Start a pool, queue commands and Python tasks, watch them run, see one retried and one die."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _stop)  # what is tidied up after Ctrl-C is also then
    with tempfile.TemporaryDirectory(prefix="covey-demo-") as directory:
        url = os.path.join(directory, "queue.db")
        os.environ["COVEY_DB"] = url
        os.environ.pop("COVEY_RUN", None)
        note(f"a queue in {url}, a pool of {count} workers, and some jobs:")
        engine = _engine(url)
        with _pool(url, count):
            ids = _enqueue(directory)
            _watch(engine, ids)
        views = [engine.job(id) for id in ids]
        engine.close()
        _show(views)
    return 0 if _as_expected(views) else 1


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _engine(url: str) -> Engine:
    from ...open import open_engine

    return open_engine(url)


@contextlib.contextmanager
def _pool(url: str, count: int) -> Iterator[None]:
    """A pool runs; afterwards it is gone."""
    command = [sys.executable, "-m", "covey", "worker", "start", "--db", url, "--count", str(count), "--app", APP]
    pool = subprocess.Popen(
        [*command, "--quiet", "--grace", "2", "--parent-pid", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        for patience_s, number in ((10.0, signal.SIGINT), (15.0, signal.SIGTERM), (5.0, signal.SIGKILL)):
            if pool.poll() is None:
                pool.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pool.wait(patience_s)


def _enqueue(directory: str) -> list[int]:
    """Commands and tasks are queued; their ids."""
    from ..demo_tasks import app, count_primes, flaky, hopeless, nap

    jobs: list[Any] = [
        app.shell("echo hello from the shell; sleep 0.5", cwd=directory),
        app.shell(["printf", "%s\\n", "words as they stand: $HOME *"], cwd=directory),
        app.shell("for i in 1 2 3 4 5; do echo step $i of 5; sleep 0.3; done", cwd=directory, priority=5),
        app.shell("echo this command fails >&2; exit 3", cwd=directory, max_attempts=1),
        flaky.enqueue(),
        hopeless.enqueue(),
        nap.enqueue(1.0),
        nap.enqueue(1.5),
        *(count_primes.enqueue(limit) for limit in (100_000, 1_000_000, 3_000_000)),
        *(app.shell(f"sleep 0.{tenths}", cwd=directory, batch="naps") for tenths in (2, 4, 6, 8)),
    ]
    return [job.id for job in jobs]


# ── watching ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _watch(engine: Engine, ids: list[int]) -> None:
    """Every job has ended; meanwhile a live view on a terminal, a line per change elsewhere."""
    from rich.live import Live

    from .. import render

    target = render.console(stderr=True)
    deadline = time.monotonic() + PATIENCE_S
    if not target.is_terminal:
        _tell(engine, ids, deadline)
        return
    with Live(console=target, refresh_per_second=10, transient=True) as live:
        for views in _moments(engine, ids, deadline):
            live.update(_picture(views))


def _moments(engine: Engine, ids: list[int], deadline: float) -> Iterator[list[JobView]]:
    """The jobs as they are, again and again until all have ended."""
    from ...core.view import Filter

    ear = engine.store.listen("end")
    try:
        while True:
            views = engine.jobs(Filter(ids=tuple(ids), limit=len(ids))).jobs[::-1]
            yield views
            if all(view.state in ENDED for view in views):
                return
            if time.monotonic() > deadline:
                raise StoreError(f"the demo's jobs have not ended after {PATIENCE_S:.0f} s; try `covey doctor`")
            ear.wait(0.1)
    finally:
        ear.close()


def _tell(engine: Engine, ids: list[int], deadline: float) -> None:
    from ..printing import one_line
    from ..render import what

    states: dict[int, tuple[str, int]] = {}
    for views in _moments(engine, ids, deadline):
        for view in views:
            if view.state != "pending" and states.get(view.id) != (view.state, view.attempts):
                states[view.id] = (view.state, view.attempts)
                why = f" ({one_line(view.error)})" if view.error else ""
                note(f"  job {view.id:2} {view.state:10} {one_line(what(view))[:60]}{why}")


def _picture(views: list[JobView]) -> Any:
    """A bar and a line per job."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table

    from .. import render

    shown = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        shown.add_column(no_wrap=True, overflow="ellipsis")
    for view in views:
        sign = Spinner("dots", style="cyan") if view.state == "processing" else render.cell(_SIGNS.get(view.state, "·"))
        shown.add_row(sign, render.state(view.state), render.cell(render.what(view)))
    ended = sum(view.state in ENDED for view in views)
    return Group(shown, ProgressBar(total=len(views), completed=ended, width=40))


_SIGNS = {"completed": "✓", "dead": "✗", "failed": "↻", "cancelled": "-"}


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(views: list[JobView]) -> None:
    import json

    from .. import render
    from .show import took

    print()
    render.table(
        ["ID", "STATE", "TRIES", "TOOK", "WHAT", "RESULT OR ERROR"],
        [
            (
                view.id,
                render.state(view.state),
                f"{view.attempts}/{view.max_attempts}",
                took(view.started_at, view.finished_at),
                render.what(view)[:44],
                view.error or ("" if view.result is None else json.dumps(view.result)),
            )
            for view in views
        ],
        wide="RESULT OR ERROR",
    )
    print(
        "\nOne job was retried, two became dead letters, as they were meant to. Nothing is left running. Now try:\n"
        "  covey enqueue 'sleep 2 && echo done'     queue a command\n"
        "  covey worker start --count 4             work, in another terminal\n"
        "  covey list; covey logs -f 1; covey why 1\n"
        "  covey --help"
    )


def _as_expected(views: list[JobView]) -> bool:
    """All completed, but for the two that were meant to die."""
    return sorted(view.state for view in views if view.state != "completed") == ["dead", "dead"]
