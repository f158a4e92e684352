"""What a program wrote for a terminal, as markup: its colours stay, what moves a cursor is left out."""

from __future__ import annotations

import re

from .html import Content, span

MOST = 400_000  # characters of one stream on a page: its end
_ESCAPE = re.compile(r"\x1b(?:\[([0-9;]*)m|\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def text_of(text: str) -> list[Content]:
    """Spans with a class for each colour; a line that was written over is shown as it stood at the end."""
    found: list[Content] = []
    if len(text) > MOST:
        found.append(span(f"… {len(text) - MOST:,} characters before this are not shown here\n", class_="dim"))
        text = text[-MOST:]
    if "\r" in text:
        text = "\n".join(line.removesuffix("\r").rpartition("\r")[2] for line in text.split("\n"))
    if "\x1b" not in text:
        return [*found, text]
    style: frozenset[str] = frozenset()
    at = 0
    for escape in _ESCAPE.finditer(text):
        _add(found, text[at : escape.start()], style)
        if escape[1] is not None:
            style = _styled(style, escape[1])
        at = escape.end()
    _add(found, text[at:], style)
    return found


def _add(found: list[Content], text: str, style: frozenset[str]) -> None:
    if text:
        found.append(span(text, class_=" ".join(sorted(style))) if style else text)


def _styled(style: frozenset[str], codes: str) -> frozenset[str]:
    for each in codes.split(";"):
        number = int(each or 0) if len(each) < 4 else -1
        if number == 0:
            style = frozenset()
        elif number == 1:
            style |= {"strong"}
        elif number in (2, 3, 4):
            style |= {("faint", "slanted", "under")[number - 2]}
        elif 30 <= number <= 37 or 90 <= number <= 97:
            style = _no_colour(style) | {f"ansi-{_COLOURS[number % 10]}"}
        elif number == 39:
            style = _no_colour(style)
    return style


def _no_colour(style: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in style if not name.startswith("ansi-"))
