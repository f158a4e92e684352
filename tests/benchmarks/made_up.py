"""Figures that nobody has measured, and pages read back into cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from typing import Any

from benchmarks.contest import QUICK
from benchmarks.contestants import COVEY, PEERS, Entry
from benchmarks.table import TITLES, measures_of

MACHINE = {"when": "2026-01-02 03:04 UTC", "cores": "2", "memory": "4 GiB", "system": "a system", "kernel": "6.1",
           "python": "3.11.7", "apsw": "3.54", "load": "0.10 0.20 0.30"}  # fmt: skip
ABOUT = {"settings": "as it comes", "crash": "once", "power": "nothing", "keeps": "a row", "python": "3.11.7",
         "versions": {"thing": "1.2"}}  # fmt: skip
TINY = replace(
    QUICK, one=5, one_s=0.2, many=20, drain=60, drain_s=5.0, pickups=3, idle_s=0.1, backlogs=(20, 40), backlog_s=5.0
)
UNBORN = Entry("unborn", ("unborn",), least=(3, 99))
WHY_UNBORN = "it needs Python 3.99, which is not here"


def measured(**series: Sequence[float | None]) -> dict[str, Any]:
    """A contestant by its figures, round by round: measured(one=[90, 100], p50=[3, None])."""
    length = max((len(values) for values in series.values()), default=0)
    rounds: list[dict[str, Any]] = [{} for _ in range(length)]
    for key, values in series.items():
        for each, value in zip(rounds, values, strict=True):
            if value is not None:
                each |= {"idle": value, "idle_server": 0.0} if key == "idle" else {key: value}
    return {"rounds": rounds, "about": ABOUT}


def book(results: Mapping[str, Mapping[str, Any]], *, quick: bool = False) -> dict[str, Any]:
    stores = dict.fromkeys(results, "a made-up store")
    return {"machine": MACHINE, "quick": quick, "stores": stores, "results": results}


def whole(rounds: int = 3) -> dict[str, Any]:
    """A book in which everybody has everything: nothing is left to measure. Covey is in the middle of the field."""
    results: dict[str, dict[str, Any]] = {}
    for family, peers in PEERS.items():
        results[family] = {}
        for place, name in enumerate([COVEY, *peers]):
            value = 100.0 + (7 * place if place % 2 else -7 * place)
            found = measured(**{measure.key: [value] * rounds for measure in measures_of(family)})
            if family != "commands":
                found["backlog"] = {str(size): value for size in (1_000, 10_000, 100_000, 1_000_000)}
            results[family][name] = found
    return book(results)


# ── a page ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Cell:
    bold: bool
    figure: str
    ratio: str


def cells(page: str, family: str) -> dict[tuple[str, str], Cell]:
    """(peer, measure) → what the family's tables of figures say: the first, and that of backlogs."""
    section = page.partition(f"### {TITLES[family]}\n")[2].partition("\n### ")[0]
    found = _cells(_first_table(section))
    _, mark, rest = section.partition("| | drain of ")
    return found | _cells(_first_table(mark + rest)) if mark else found


def _cells(lines: list[str]) -> dict[tuple[str, str], Cell]:
    head, _, *rows = lines
    titles = [title.rpartition(", ")[0] for title in _row(head)[1:]]
    found: dict[tuple[str, str], Cell] = {}
    for line in rows:
        name, *texts = _row(line)
        for title, text in zip(titles, texts, strict=True):
            if not title:  # a figure of its own, not beside a peer's
                continue
            match = re.fullmatch(r"(\*\*)?([^ (*]+)(?: \(([^)]+)\))?(\*\*)?", text)
            assert match, f"no cell: {text!r}"
            assert bool(match[1]) == bool(match[4]), text
            found[name, title] = Cell(bool(match[1]), match[2], match[3] or "")
    return found


def _first_table(section: str) -> list[str]:
    rest = dropwhile(lambda line: not line.startswith("|"), section.splitlines())
    return list(takewhile(lambda line: line.startswith("|"), rest))


def bold(page: str) -> set[tuple[str, str, str]]:
    """(family, measure, peer) of every cell that says that Covey loses."""
    return {
        (family, title, name)
        for family in TITLES
        if f"### {TITLES[family]}\n" in page
        for (name, title), cell in cells(page, family).items()
        if cell.bold
    }


def explained(page: str) -> dict[tuple[str, str, str], str]:
    """(family, measure, peer) → why, from "Where Covey loses"."""
    found: dict[tuple[str, str, str], str] = {}
    for line in _first_table(page.partition("### Where Covey loses\n")[2])[2:]:
        what, peers, why = _row(line)
        family, _, title = what.partition(": ")
        for peer in peers.split(", "):
            key = (family, title, peer.rpartition(" ")[0])
            assert key not in found, f"twice: {key}"
            found[key] = why
    return found


def _row(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
