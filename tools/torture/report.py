"""What a run has come to, as a page that can be kept."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

import apsw

from covey import __version__

from .checks import PAUSE, Findings

WORDS = {
    "pool": "kill -9 of a pool",
    "zygote": "kill -9 of a zygote",
    "worker": "kill -9 of a worker",
    "command": "kill -9 of a running command",
    "client": "kill -9 of a client",
    "server": "kill -9 of the server",
    "session": "a session ended by PostgreSQL",
    "backend": "kill -9 of a PostgreSQL backend (all of them go)",
    "postgres": "immediate stop of PostgreSQL",
    PAUSE: "a pool stopped for longer than its lease",
}
SHOWN = 10  # problems of one check


def page(found: Findings, *, store: str, seed: int, asked: str, database: str) -> str:
    """Markdown: what was asked, what happened, each check with its count, the verdict."""
    count = len(found.problems)
    sound = "0 problems" if not count else f"**{count} problems**"
    lines = [f"# Torture on {store}: {found.kills.total():,} kills, {_jobs(found):,} jobs, {sound}", ""]
    lines += [f"`{asked}` on {datetime.now(UTC):%Y-%m-%d}, {found.seconds:.0f} s, seed {seed}. ", ""]
    lines += [f"Covey {__version__}, Python {platform.python_version()}, {database}, Linux {_kernel()}, "]
    lines += [f"{os.cpu_count()} CPUs. The seed decides what clients ask for, and in which order the killer goes "]
    lines += ["through the kinds of victims, and when; which process it then finds is a matter of scheduling.", ""]
    lines += _table("strike", {WORDS[kind]: n for kind, n in sorted(found.kills.items())} | _pauses(found))
    if found.missed:
        missed = ", ".join(f"{WORDS[kind]} ({count})" for kind, count in sorted(found.missed.items()))
        lines += [f"Due, but nobody was there to be struck: {missed}.", ""]
    lines += _table("figure", found.figures)
    lines += _table("check", {name: len(problems) for name, problems in found.checks.items()}, "problems")
    for name, problems in found.checks.items():
        if problems:
            lines += [f"## {name}", "", *(f"- {problem}" for problem in problems[:SHOWN])]
            lines += [f"- and {len(problems) - SHOWN:,} more"] * (len(problems) > SHOWN) + [""]
    lines += ["Verdict: every promise was kept." if not count else f"Verdict: {count} problems.", ""]
    return "\n".join(line.rstrip() for line in lines)


def _kernel() -> str:
    """Without what a distribution adds."""
    return ".".join(platform.release().split(".")[:2])


def _jobs(found: Findings) -> int:
    return found.figures["jobs enqueued"]


def _pauses(found: Findings) -> dict[str, int]:
    return {"besides, a pool stopped for longer than its lease, then resumed": found.strikes[PAUSE]}


def _table(title: str, counts: dict[str, int], unit: str = "count") -> list[str]:
    return [f"| {title} | {unit} |", "|---|---:|", *(f"| {name} | {n:,} |" for name, n in counts.items()), ""]


def sqlite_version() -> str:
    return f"SQLite {apsw.sqlite_lib_version()}"
