"""The comparison as Markdown: figures with ratios, what each queue promises, where Covey loses and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .contestants import COVEY, PEERS
from .reasons import UNKNOWN, reason
from .timing import median, quotient, ratio_of_pairs

BEGIN, END = "<!-- comparison: written by `python -m benchmarks compare` -->", "<!-- end of the comparison -->"
TITLES = {
    "sqlite": "SQLite: a file",
    "redis": "Redis; Covey beside it on a file",
    "postgres": "PostgreSQL",
    "commands": "Commands",
}


@dataclass(frozen=True)
class Measure:
    """One column. ``more``: whether more is better."""

    key: str
    title: str
    unit: str
    more: bool

    def shown(self, value: float) -> str:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    def wins(self, ratio: float) -> bool:
        return ratio >= 1 if self.more else ratio <= 1


MEASURES = (
    Measure("one", "enqueue one", "/s", True),
    Measure("many", "enqueue many", "/s", True),
    Measure("drain1", "drain, 1 worker", "/s", True),
    Measure("drain2", "drain, 2 workers", "/s", True),
    Measure("p50", "pick-up p50", "ms", False),
    Measure("p99", "pick-up p99", "ms", False),
    Measure("idle", "idle CPU", "% of a core", False),
    Measure("start", "start-up", "s", False),
    Measure("memory", "memory a worker", "MiB", False),
)
COMMANDS = (Measure("commands", "commands", "/s", True),)
BACKLOG = "backlog"
# What is measured in one go and fails in one go, in the words of the columns.
PARTS = {
    "enqueue": "enqueue one and many",
    "drain1": "drain, 1 worker",
    "drain2": "drain, 2 workers",
    "session": "pick-up, idle CPU, start-up and memory",
}


def in_order(book: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Families and their contestants as benchmarks/contestants.py has them, Covey first."""
    for family, peers in PEERS.items():
        if found := book["results"].get(family):
            yield family, {name: found[name] for name in (COVEY, *peers) if name in found}


def measures_of(family: str) -> tuple[Measure, ...]:
    return COMMANDS if family == "commands" else MEASURES


def backlogs_of(results: dict[str, Any]) -> tuple[Measure, ...]:
    """A measure for each size, smallest first."""
    sizes = sorted({int(size) for found in results.values() for size in found.get("backlog", {})})
    return tuple(Measure(f"{BACKLOG}:{size}", f"drain of {size:,}", "/s", True) for size in sizes)


def rounds(found: dict[str, Any], key: str) -> list[float]:
    """The figure, round by round, without those in which it failed."""
    return list(_by_number(found, key).values())


def _by_number(found: dict[str, Any], key: str) -> dict[int, float]:
    """The server's share of idle CPU is part of it. A backlog is drained once."""
    part, _, size = key.partition(":")
    if part == BACKLOG:
        return {0: found[BACKLOG][size]} if size in found.get(BACKLOG, {}) else {}
    told = {number: each for number, each in enumerate(found["rounds"]) if each.get(key) is not None}
    return {number: each[key] + (each["idle_server"] if key == "idle" else 0) for number, each in told.items()}


def ratio(results: dict[str, Any], name: str, key: str) -> float | None:
    """Covey ÷ peer: of the rounds in which both have a figure; where there is no such round, of the medians."""
    ours, theirs = _by_number(results[COVEY], key), _by_number(results[name], key)
    if not ours or not theirs:
        return None
    if both := sorted(ours.keys() & theirs.keys()):
        return ratio_of_pairs([ours[number] for number in both], [theirs[number] for number in both])
    return quotient(median(ours.values()), median(theirs.values()))


def in_words(ratio: float) -> str:
    """Short; but what is not quite 1 does not read as 1.00, beside a mark that says who loses."""
    if math.isinf(ratio):
        return "∞"
    if ratio >= 10:
        return f"{ratio:.0f}"
    shown = f"{ratio:.2f}"
    return f"{ratio:.4f}" if shown == "1.00" and ratio != 1 else shown


@dataclass(frozen=True)
class Loss:
    family: str
    measure: Measure
    peer: str
    ratio: float
    why: str


def losses(book: dict[str, Any]) -> Iterator[Loss]:
    for family, results in in_order(book):
        for measure in (*measures_of(family), *backlogs_of(results)):
            for name in results:
                found = ratio(results, name, measure.key)
                if found is not None and not measure.wins(found):
                    yield Loss(family, measure, name, found, reason(family, measure.key.partition(":")[0], name))


def unexplained(book: dict[str, Any]) -> list[str]:
    """Losses for which benchmarks/reasons.py has no reason."""
    return [
        f"{loss.family}: {loss.measure.title} beside {loss.peer}, {in_words(loss.ratio)}"
        for loss in losses(book)
        if loss.why == UNKNOWN
    ]


def brief(figures: dict[str, Any]) -> str:
    """One line about a round, or about backlogs."""
    if "backlog" in figures:
        told = [f"{int(size):,}: {rate:,.0f}/s" for size, rate in figures["backlog"].items()]
        stopped = figures.get("stopped")
        return "; ".join(told + ([f"stopped at {stopped['at']:,}: {stopped['why']}"] if stopped else []))
    told = [
        f"{measure.title} {measure.shown(value)}"
        for measure in (*MEASURES, *COMMANDS)
        for value in rounds({"rounds": [figures]}, measure.key)
    ]
    return "; ".join(told + [f"{name} FAILED: {why}" for name, why in figures.get("failed", {}).items()])


# ── the page ────────────────────────────────────────────────────────────────────────────────────────────────────────


def markdown(book: dict[str, Any]) -> str:
    return "\n".join(_lines(book)) + "\n"


def write(path: Path, text: str) -> None:
    """What stood between the marks is replaced, and nothing else; where there is no page, there is one now."""
    before, after = around(path)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def around(path: Path) -> tuple[str, str]:
    """What stands before the marks and after them. ValueError for a page without both: what it says would be lost."""
    if not path.exists():
        return "", "\n"
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} lacks a mark; put {BEGIN!r} and {END!r} where the tables shall stand")
    return before, after


def _lines(book: dict[str, Any]) -> Iterator[str]:
    machine = book["machine"]
    kind = "**a quick look: one short round, not a result**" if book["quick"] else "a full run"
    told = ", ".join(f"{key} {machine[key]}" for key in ("cores", "memory", "system", "kernel", "python", "load"))
    yield f"{machine['when']}, {kind}. {told}."
    yield ""
    yield "A cell: the peer's figure, then Covey ÷ peer. **Bold**: Covey loses."
    for family, results in in_order(book):
        yield ""
        yield f"### {TITLES[family]}"
        yield ""
        if family != "commands" and family in book["stores"]:
            yield f"Store: {book['stores'][family]}."
            yield ""
        yield from _figures(family, results)
        if family != "commands":
            yield ""
            yield from _backlogs(results)
        yield ""
        yield from _promises(results)
    yield ""
    yield "### Where Covey loses"
    yield ""
    yield from _losses(book)


def _figures(family: str, results: dict[str, Any]) -> Iterator[str]:
    measures = measures_of(family)
    yield "| | " + " | ".join(f"{measure.title}, {measure.unit}" for measure in measures) + " |"
    yield "|---" * (len(measures) + 1) + "|"
    notes = []
    for name, found in results.items():
        if "missing" in found:
            notes.append(f"- {name} was **not measured**: {found['missing']}")
            continue
        yield f"| {name} | " + " | ".join(_cell(results, name, measure) for measure in measures) + " |"
        notes += [f"- {name}: {note}" for note in (*_notes(found), *_elsewhen(results[COVEY], found))]
    if notes:
        yield ""
        yield from notes


def _cell(results: dict[str, Any], name: str, measure: Measure) -> str:
    values = rounds(results[name], measure.key)
    if not values:
        return "–"
    shown = measure.shown(median(values))
    if name == COVEY or (found := ratio(results, name, measure.key)) is None:
        return shown
    cell = f"{shown} ({in_words(found)})"
    return cell if measure.wins(found) else f"**{cell}**"


def _notes(found: dict[str, Any]) -> Iterator[str]:
    failed: dict[str, list[str]] = {}
    for each in found["rounds"]:
        for part, why in each.get("failed", {}).items():
            failed.setdefault(part, []).append(why)
    for part, reasons in failed.items():
        yield f"{PARTS.get(part, part)} **failed** in {len(reasons)} of {len(found['rounds'])} rounds: {reasons[-1]}"
    for workers in (1, 2):
        if most := max((each.get(f"twice{workers}", 0) for each in found["rounds"]), default=0):
            yield f"drain, {workers} worker{'s' if workers > 1 else ''}: up to {most:,} jobs **ran twice**"
    if "stopped" in found:
        yield f"backlog of {found['stopped']['at']:,} not measured: {found['stopped']['why']}"


def _elsewhen(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    """Rounds that were measured again, or went on, in another run than Covey's: the machine was not the same."""
    pairs = zip(ours["rounds"], theirs["rounds"], strict=False)
    runs = {b.get("run", "an earlier run") for a, b in pairs if a.get("run") != b.get("run")}
    if runs:
        yield f"measured in another run than covey ({', '.join(sorted(runs))}): its ratios are not of one round"


def _backlogs(results: dict[str, Any]) -> Iterator[str]:
    measures = backlogs_of(results)
    if not measures:
        return
    yield "| | " + " | ".join(f"{each.title}, {each.unit}" for each in measures) + " | greatest ÷ 10,000 |"
    yield "|---" * (len(measures) + 2) + "|"
    for name, found in results.items():
        if rates := {int(size): rate for size, rate in found.get(BACKLOG, {}).items()}:
            cells = [_cell(results, name, measure) for measure in measures]
            kept = f"{rates[max(rates)] / rates[10_000]:.2f}" if rates.get(10_000) and max(rates) > 10_000 else "–"
            yield f"| {name} | " + " | ".join(cells) + f" | {kept} |"


def _promises(results: dict[str, Any]) -> Iterator[str]:
    yield "| | version | settings | when a worker is killed | a power cut may take | a finished job leaves |"
    yield "|---|---|---|---|---|---|"
    for name, found in results.items():
        if about := found.get("about"):
            versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
            python = about.get("python", "")
            if python and not python.startswith("3.11"):
                versions += f", Python {python}"
            told = " | ".join(about[key] for key in ("settings", "crash", "power", "keeps"))
            yield f"| {name} | {versions} | {told} |"


def _losses(book: dict[str, Any]) -> Iterator[str]:
    yield "| measure | peers, Covey ÷ peer | why |"
    yield "|---|---|---|"
    told: dict[tuple[str, str], list[str]] = {}
    for loss in losses(book):
        told.setdefault((f"{loss.family}: {loss.measure.title}", loss.why), []).append(
            f"{loss.peer} {in_words(loss.ratio)}"
        )
    for (what, why), peers in told.items():
        yield f"| {what} | {', '.join(peers)} | {why} |"
