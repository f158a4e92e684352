"""Charts, drawn by the server: they need no script, and a table beside them says the same in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from .html import Content, Html, div, g, line, polyline, rect, svg, svg_title, text
from .parts import span_of

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 160, 44, 18


def series(label: str, minutes: Sequence[int], *lines: tuple[str, str, Sequence[float]]) -> Html:
    """Values minute by minute: (what, its tone, values). The highest of all is the top."""
    most = max((value for _, _, values in lines for value in values), default=0) or 1
    first, last = minutes[0], max(minutes[-1], minutes[0] + 1)

    def x(minute: int) -> float:
        return LEFT + (minute - first) / (last - first) * (WIDTH - LEFT - 8)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / most * (HEIGHT - BOTTOM - 10)

    parts: list[Content] = [
        [
            line(x1=LEFT, x2=WIDTH - 8, y1=f"{y(most * share):.1f}", y2=f"{y(most * share):.1f}", class_="rule"),
            text(_short(most * share), x=LEFT - 6, y=f"{y(most * share) + 4:.1f}", text_anchor="end"),
        ]
        for share in (0, 0.5, 1)
    ]
    for place in range(5):
        minute = first + (last - first) * place // 4
        anchor = ("start", "middle", "middle", "middle", "end")[place]
        parts.append(text(_clock(minute), x=f"{x(minute):.0f}", y=HEIGHT - 4, text_anchor=anchor))
    for what, tone, values in lines:
        points = " ".join(f"{x(minute):.1f},{y(value):.1f}" for minute, value in zip(minutes, values, strict=True))
        parts.append(g(svg_title(what), polyline(points=points, class_=f"series {tone}")))
    return framed(label, svg(parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="chart", role="img", aria_label=label))


def framed(label: str, picture: Html) -> Html:
    """A picture that may be wider than the page."""
    return div(picture, class_="scroll", tabindex=0, role="region", aria_label=f"picture of {label}")


def gantt(
    label: str, rows: Sequence[tuple[str, Sequence[tuple[float, float, str, str]]]], first: float, last: float
) -> Html:
    """A row for each worker, a bar for each run: (from, to, tone, what). What is narrower than a pixel is one bar."""
    names, high = 170, 22
    scale = (WIDTH - names - 8) / max(last - first, 0.001)
    drawn: list[Content] = [
        line(
            x1=f"{names + share * (WIDTH - names - 8):.0f}",
            x2=f"{names + share * (WIDTH - names - 8):.0f}",
            y1=0,
            y2=len(rows) * high,
            class_="rule",
        )
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    for place, (name, runs) in enumerate(rows):
        drawn.append(text(name if len(name) < 25 else f"{name[:24]}…", x=0, y=place * high + 15))
        for begin, end, tone, what in merged(runs, 1 / scale):
            drawn.append(
                rect(
                    svg_title(what),
                    x=f"{names + (max(begin, first) - first) * scale:.1f}",
                    y=place * high + 4,
                    width=f"{max(1.0, (end - max(begin, first)) * scale):.1f}",
                    height=high - 8,
                    class_=f"bar {tone}",
                )
            )
    high_all = len(rows) * high + BOTTOM
    for place in range(5):
        at = first + (last - first) * place / 4
        anchor = ("start", "middle", "middle", "middle", "end")[place]
        x = names + (at - first) * scale
        ago = span_of(last - at) + " ago" if place < 4 else "now"
        drawn.append(text(ago, x=f"{x:.0f}", y=high_all - 4, text_anchor=anchor))
    return framed(label, svg(drawn, viewBox=f"0 0 {WIDTH} {high_all}", class_="chart", role="img", aria_label=label))


def merged(runs: Sequence[tuple[float, float, str, str]], pixel: float) -> list[tuple[float, float, str, str]]:
    """Neighbours that nobody could tell apart are one bar that says how many they are."""
    found: list[tuple[float, float, str, str]] = []
    many = 1
    for begin, end, tone, what in sorted(runs):
        if found and tone == found[-1][2] and begin - found[-1][1] < pixel and end - begin < 2 * pixel:
            many += 1
            found[-1] = (found[-1][0], max(end, found[-1][1]), tone, f"{many:,} runs")
        else:
            many = 1
            found.append((begin, end, tone, what))
    return found


def _short(value: float) -> str:
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"


def _clock(minute: int) -> str:
    return datetime.fromtimestamp(minute * 60, UTC).strftime("%H:%M")
