"""The comparison's plots, as SVG without a library: bars and lines on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .contestants import COVEY
from .table import TITLES, in_order, rounds
from .timing import median

WIDTH, RIGHT, BAR, TOP, LETTER = 760, 80, 22, 46, 7.2
OURS, OTHERS, GRID, INK = "#c2410c", "#64748b", "#e2e8f0", "#0f172a"
COLOURS = ("#0369a1", "#15803d", "#7e22ce", "#be185d", "#a16207", "#0f766e", "#475569", "#b91c1c", "#4d7c0f", "#1e3a8a")


def write(place: Path, book: dict[str, Any]) -> None:
    """Every figure that has plots has new ones."""
    place.mkdir(parents=True, exist_ok=True)
    for family, results in in_order(book):
        beside = TITLES[family].partition(":")[0].partition(";")[0]
        if family == "commands":
            _bars(place / "commands.svg", "commands a second, two at a time", _medians(results, "commands"))
            continue
        _bars(place / f"drain-{family}.svg", f"{beside}: drain, jobs a second, 2 workers", _medians(results, "drain2"))
        lines = {name: found["backlog"] for name, found in results.items() if found.get("backlog")}
        _lines(place / f"backlog-{family}.svg", f"{beside}: drain by backlog, jobs a second, 2 workers", lines)
    waits = {
        f"{name} ({family})": value
        for family, results in in_order(book)
        for name, value in _medians(results, "p50").items()
        if (name, family) != (COVEY, "redis")  # on a file there too: once is enough
    }
    _bars(place / "pickup.svg", "pick-up p50: milliseconds from the call to the task; less is better", waits, up=False)


def _medians(results: Mapping[str, Any], key: str) -> dict[str, float]:
    found = {name: rounds(each, key) for name, each in results.items()}
    return {name: median(values) for name, values in found.items() if values}


class Scale:
    """Powers of ten around the values, laid out from ``first`` to ``last``."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        shown = [value for value in values if value > 0] or [1.0]
        self._low = math.floor(math.log10(min(shown)))
        self._high = max(self._low + 1, math.ceil(math.log10(max(shown))))
        self._first, self._length = first, last - first
        self.ticks = [10.0**power for power in range(self._low, self._high + 1)]

    def at(self, value: float) -> float:
        """Nothing has no logarithm: it lies where the scale begins, with the number beside it."""
        if value <= 0:
            return self._first
        return self._first + (math.log10(value) - self._low) / (self._high - self._low) * self._length


def _bars(path: Path, title: str, values: Mapping[str, float], *, up: bool = True) -> None:
    """The best on top: the longest, or the shortest where less is better."""
    if not values:
        return
    left, height = 20 + LETTER * max(len(name) for name in values), TOP + BAR * len(values) + 30
    scale = Scale(list(values.values()), left, WIDTH - RIGHT)
    parts = []
    for tick in scale.ticks:
        parts.append(f'<path d="M{scale.at(tick):.1f} {TOP - 6}V{height - 24}" stroke="{GRID}"/>')
        parts.append(_text(scale.at(tick), height - 10, _number(tick), "middle"))
    for place, (name, value) in enumerate(sorted(values.items(), key=lambda item: -item[1] if up else item[1])):
        y, ours = TOP + place * BAR, name.startswith(COVEY)
        size = f'width="{max(1.0, scale.at(value) - left):.1f}" height="{BAR - 6}"'
        parts.append(f'<rect x="{left:.1f}" y="{y}" {size} fill="{OURS if ours else OTHERS}"/>')
        parts.append(_text(left - 6, y + 12, name, "end", bold=ours))
        parts.append(_text(scale.at(value) + 5, y + 12, _number(value)))
    _save(path, title, height, parts)


def _lines(path: Path, title: str, lines: Mapping[str, Mapping[str, float]]) -> None:
    rates = [rate for line in lines.values() for rate in line.values()]
    sizes = sorted({int(size) for line in lines.values() for size in line})
    if not rates:
        return
    height, left, right = 380, 70, WIDTH - 130
    across, up = Scale(sizes, left, right), Scale(rates, height - 40, TOP)
    parts = [_text(across.at(size), height - 18, f"{size:,}", "middle") for size in sizes]
    for tick in up.ticks:
        parts.append(f'<path d="M{left} {up.at(tick):.1f}H{right}" stroke="{GRID}"/>')
        parts.append(_text(left - 8, up.at(tick) + 4, _number(tick), "end"))
    ends = []
    for number, (name, line) in enumerate(lines.items()):
        points = [(across.at(int(size)), up.at(rate)) for size, rate in line.items()]
        colour = OURS if name == COVEY else COLOURS[number % len(COLOURS)]
        drawn, wide = " ".join(f"{x:.1f},{y:.1f}" for x, y in points), 3.5 if name == COVEY else 1.8
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="{wide}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        ends.append((points[-1][1], name, colour))
    parts += [
        _text(right + 12, y + 4, name, colour=colour, bold=name == COVEY) for y, name, colour in _apart(sorted(ends))
    ]
    _save(path, title, height, parts)


def _apart(ends: Sequence[tuple[float, str, str]]) -> Iterator[tuple[float, str, str]]:
    """From top to bottom, each far enough below the one before to be read."""
    last = 0.0
    for y, name, colour in ends:
        last = max(y, last + 14)
        yield last, name, colour


def _text(x: float, y: float, text: str, anchor: str = "start", *, colour: str = INK, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _save(path: Path, title: str, height: float, parts: Sequence[str]) -> None:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    style = ' font-family="sans-serif" font-size="12">'
    ground = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    heading = f'<text x="12" y="22" font-size="14" font-weight="bold" fill="{INK}">{escape(title)} (log scale)</text>'
    path.write_text("\n".join([head + style, ground, heading, *parts, "</svg>"]) + "\n")
