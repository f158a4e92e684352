"""The comparison's plots, as SVG without a library: bars and lines on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .contestants import COVEY
from .table import TITLES, in_order, rounds
from .timing import median

WIDTH, LEFT, RIGHT, BAR, TOP = 760, 130, 110, 22, 46
OURS, OTHERS, GRID, INK = "#c2410c", "#64748b", "#e2e8f0", "#0f172a"
COLOURS = ("#0369a1", "#15803d", "#7e22ce", "#be185d", "#a16207", "#0f766e", "#475569", "#b91c1c", "#4d7c0f", "#1e3a8a")


def write(place: Path, book: dict[str, Any]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for family, results in in_order(book):
        if family == "commands":
            _bars(place / "commands.svg", "commands a second, two at a time", _medians(results, "commands"))
            continue
        title = TITLES[family].partition(":")[0].partition(";")[0]
        _bars(
            place / f"drain-{family}.svg",
            f"drain beside {title}: jobs a second, 2 workers",
            _medians(results, "drain2"),
        )
        lines = {name: found["backlog"] for name, found in results.items() if found.get("backlog")}
        _lines(place / f"backlog-{family}.svg", f"drain by backlog beside {title}: jobs a second, 2 workers", lines)
    waits = {
        f"{name} ({family})": value
        for family, results in in_order(book)
        for name, value in _medians(results, "p50").items()
        if (name, family) != (COVEY, "redis")  # on a file there too: once is enough
    }
    _bars(
        place / "pickup.svg",
        "pick-up: milliseconds from the call to the task, median (less is better)",
        waits,
        up=False,
    )


def _medians(results: Mapping[str, Any], key: str) -> dict[str, float]:
    found = {name: rounds(each, key) for name, each in results.items()}
    return {name: median(values) for name, values in found.items() if values}


def _bars(path: Path, title: str, values: Mapping[str, float], *, up: bool = True) -> None:
    """Longest first, or shortest where less is better."""
    ordered = sorted(values.items(), key=lambda item: -item[1] if up else item[1])
    ticks, x = _scale(list(values.values()))
    left = max(LEFT, 8 * max((len(name) for name in values), default=0))
    height = TOP + BAR * len(ordered) + 30
    scale = lambda value: left + x(value) * (WIDTH - left - RIGHT)  # noqa: E731
    parts = [_grid(scale(tick), TOP - 6, height - 24, _number(tick), height - 10) for tick in ticks]
    for place, (name, value) in enumerate(ordered):
        y, colour = TOP + place * BAR, OURS if name.startswith(COVEY) else OTHERS
        parts.append(
            f'<rect x="{left}" y="{y}" width="{max(1, scale(value) - left):.1f}" height="{BAR - 6}" fill="{colour}"/>'
        )
        parts.append(_text(left - 6, y + 12, name, "end", bold=name.startswith(COVEY)))
        parts.append(_text(scale(value) + 5, y + 12, _number(value)))
    _save(path, title, height, parts)


def _lines(path: Path, title: str, lines: Mapping[str, Mapping[str, float]]) -> None:
    rates = [rate for line in lines.values() for rate in line.values() if rate > 0]
    sizes = sorted({int(size) for line in lines.values() for size in line})
    if not rates or len(sizes) < 2:
        return
    ticks, up = _scale(rates)
    height, left, right = 380, 60, WIDTH - 150
    across = lambda size: left + math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0]) * (right - left)  # noqa: E731
    y = lambda rate: height - 40 - up(rate) * (height - 40 - TOP)  # noqa: E731
    parts = [_text(across(size), height - 18, f"{size:,}", "middle") for size in sizes]
    parts += [
        f'<path d="M{left} {y(tick):.1f}H{right}" stroke="{GRID}"/>'
        + _text(left - 6, y(tick) + 4, _number(tick), "end")
        for tick in ticks
    ]
    labels = []
    for number, (name, line) in enumerate(lines.items()):
        points = [(across(int(size)), y(rate)) for size, rate in line.items() if rate > 0]
        if not points:
            continue
        ours = name == COVEY
        colour, stroke = (OURS, 3.5) if ours else (COLOURS[number % len(COLOURS)], 1.8)
        drawn = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="{stroke}"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
        labels.append((points[-1][1], points[-1][0], name, colour, ours))
    parts += [_label(*label) for label in _apart(labels)]
    _save(path, title, height, parts)


def _apart(labels: Sequence[tuple[float, float, str, str, bool]]) -> list[tuple[float, float, str, str, bool]]:
    """From top to bottom, each far enough below the one before to be read."""
    placed: list[tuple[float, float, str, str, bool]] = []
    for y, *rest in sorted(labels):
        placed.append((max(y, placed[-1][0] + 14) if placed else y, *rest))  # type: ignore[arg-type]
    return placed


def _label(y: float, x: float, name: str, colour: str, bold: bool) -> str:
    return _text(WIDTH - 140, y + 4, name, colour=colour, bold=bold)


def _scale(values: Sequence[float]) -> tuple[list[float], Any]:
    """Powers of ten around the values, and where a value lies between them: from 0 to 1."""
    low = math.floor(math.log10(min(value for value in values if value > 0)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    return [10.0**power for power in range(low, high + 1)], lambda value: (math.log10(value) - low) / (high - low)


def _grid(x: float, top: float, bottom: float, label: str, y: float) -> str:
    return f'<path d="M{x:.1f} {top}V{bottom}" stroke="{GRID}"/>' + _text(x, y, label, "middle")


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
