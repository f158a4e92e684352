"""One run on a store of its own, and a page that says what was found; exit 1 if anything was.

python -m tools.torture --store sqlite --minutes 2
python -m tools.torture --store postgres --kills 1000 --jobs 10000 --seed 7 --report page.md
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from covey.errors import CoveyError

from .report import page, sqlite_version
from .run import Torture

if TYPE_CHECKING:
    from tests.kit.postgres import Server

MINUTES = 2.0
LONGEST_S = 3600.0  # for what goes by figures
DRAIN_S = 300.0  # beyond the minutes, for what is left to do


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line."""
        self.exit(2, f"torture: {message}; see --help\n")


def parser() -> Parser:
    parser = Parser(prog="python -m tools.torture", description="Kills everything, then looks what is missing.")
    parser.add_argument(
        "--store", choices=("sqlite", "postgres", "http"), default="sqlite", help="http: a server on a file"
    )
    parser.add_argument(
        "--minutes", type=_positive(float), help=f"how long to kill; {MINUTES:g} unless figures are given"
    )
    parser.add_argument("--kills", type=_positive(int), help="go on until there were so many")
    parser.add_argument("--jobs", type=_positive(int), help="go on until clients have enqueued so many")
    parser.add_argument("--seed", type=int, help="what clients and killer decide by; without it, any")
    parser.add_argument("--report", type=Path, help="write the page there too")
    parser.add_argument("--keep", type=Path, help="leave the database, history, traces and logs in that new directory")
    return parser


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value < 1e9:
            raise ValueError
        return value

    parse.__name__ = "number above 0"
    return parse


def main(given: Sequence[str]) -> int:
    options = parser().parse_args(given)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    try:
        if options.report:
            options.report.touch()  # before the work, not after it
        with _directory(options.keep) as directory, _postgres(options.store) as server:
            found = Torture(
                directory,
                seed=seed,
                jobs=options.jobs,
                kills=options.kills,
                seconds=_seconds(options),
                limit_s=(_seconds(options) or LONGEST_S) + DRAIN_S,
                postgres=server,
                served=options.store == "http",
            ).run()
            text = page(found, store=options.store, seed=seed, asked=_asked(options, seed), database=_version(server))
    except CoveyError as error:
        print(f"torture: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("torture: broken off; nothing is left running", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"torture: {error.strerror}: {error.filename}", file=sys.stderr)
        return 2
    print(text)
    if options.report:
        options.report.write_text(text)
    return 1 if found.problems else 0


def _seconds(options: argparse.Namespace) -> float | None:
    if options.minutes is not None:
        return float(options.minutes) * 60
    return None if options.kills or options.jobs else MINUTES * 60


def _asked(options: argparse.Namespace, seed: int) -> str:
    """The same again, as one command."""
    words = {"MINUTES": options.minutes, "KILLS": options.kills, "JOBS": options.jobs, "SEED": seed}
    named = [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in words.items()
        if value is not None
    ]
    return " ".join(["make torture", f"STORE={options.store}", *named])


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """A place of its own, also for what PostgreSQL pools keep per user."""
    if keep is not None:
        keep.mkdir(parents=True)
        path = keep.resolve()
    else:
        path = Path(tempfile.mkdtemp(prefix="covey-torture-"))
    os.environ["XDG_STATE_HOME"] = str(path / "state")
    try:
        yield path
    finally:
        if keep is None:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _postgres(store: str) -> Iterator[Server | None]:
    """A server of its own, as durable as they come: it will be killed."""
    if store != "postgres":
        yield None
        return
    try:
        from tests.kit.postgres import Server

        server = Server(fast=False)
    except (ImportError, AssertionError) as error:
        raise CoveyError(str(error).splitlines()[0]) from None
    try:
        yield server
    finally:
        server.close()


def _version(server: Server | None) -> str:
    if server is None:
        return sqlite_version()
    with server.admin() as db:
        return f"PostgreSQL {db.execute('show server_version').fetchall()[0][0]}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl-C: nothing is left behind
    sys.exit(main(sys.argv[1:]))
