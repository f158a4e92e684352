"""What pages are made of: states, times, numbers, tables, buttons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from ...core.view import JobView
from .html import (
    Content,
    Html,
    button,
    code,
    div,
    form,
    h2,
    input_,
    markup,
    p,
    section,
    small,
    span,
    table,
    tbody,
    td,
    th,
    thead,
    time,
    tr,
)
from .html import a as link
from .visit import Visit

# What a state means to whoever looks: something runs, something waits, all is well, something is lost.
TONES = {
    "pending": "wait",
    "scheduled": "wait",
    "blocked": "wait",
    "waiting": "wait",
    "processing": "run",
    "completed": "good",
    "failed": "warn",
    "dead": "bad",
    "cancelled": "off",
}
LIVE = ("pending", "processing", "scheduled", "failed", "waiting", "blocked")


def badge(word: str, tone: str | None = None) -> Html:
    """A word with its colour; never the colour alone."""
    return span(word, class_=f"badge {tone or TONES.get(word, 'off')}")


def number(value: int | float | None, digits: int = 0) -> Html:
    return span("–" if value is None else f"{value:,.{digits}f}", class_="num")


def count(value: int, one: str, many: str | None = None) -> str:
    """1 job, 2 jobs."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def ago(at: str | None, now: int) -> Content:
    """An instant, as its distance from now; the page keeps it up to date."""
    if at is None:
        return span("–", class_="dim")
    left_s = datetime.fromisoformat(at).timestamp() - now / 1e6
    said = f"in {span_of(left_s)}" if left_s > 0 else f"{span_of(-left_s)} ago"
    return time(said, datetime=at, title=at)


def lasted(since: str | None, until: str | None, now: int) -> Content:
    """How long that was; still counted while there is no end."""
    if since is None:
        return span("–", class_="dim")
    begun = datetime.fromisoformat(since).timestamp()
    if until is None:
        return time(span_of(max(0.0, now / 1e6 - begun)), datetime=since, data_span=True, title=f"since {since}")
    return span(span_of(max(0.0, datetime.fromisoformat(until).timestamp() - begun)), class_="num")


def span_of(seconds: float) -> str:
    """Two words at most: 340 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    for unit, name, lower, below in ((60, "min", 1, "s"), (3600, "h", 60, "min"), (86400, "d", 3600, "h")):
        if seconds < unit * {"min": 60, "h": 24, "d": 10**9}[name]:
            whole, rest = divmod(int(seconds), unit)
            return f"{whole} {name}" + (f" {rest // lower} {below}" if rest // lower else "")
    return "for ever"


def size_of(count: float | None) -> str:
    if count is None:
        return "–"
    for name in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {name}" if name == "B" or count >= 100 else f"{count:.1f} {name}"
        count /= 1000
    return f"{count:.1f} TB"


def short(text: str, most: int = 120) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def title_of(job: JobView) -> str:
    """What a person would call the job."""
    return short(job.command or job.task)


# ── blocks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def block(title: Content, *content: Content, key: str, aside: Content = None, class_: str = "") -> Html:
    """A part of a page with a heading of its own."""
    top = div(h2(title), div(aside, class_="aside") if aside else None, class_="block-head")
    return section(top, *content, class_=f"block {class_}".strip(), data_key=key)


def empty(*content: Content) -> Html:
    return p(*content, class_="empty")


Column = tuple[Content, str]  # heading, class: num, w1 (gone below 1000 px), w2 (gone below 640 px), grow


WORDS = {"do": "what can be done", "pick": "choose"}  # of columns without a heading that is seen


def grid(columns: Sequence[Column], rows: Iterable[tuple[str, Sequence[Content]]], *, label: str) -> Html:
    """A table; each row has a key of its own, so that it stays where it is while the page lives."""
    heads = tr(
        th(title or span(WORDS[class_], class_="unseen"), scope="col", class_=class_ or None)
        for title, class_ in columns
    )
    lines = [
        tr(
            [td(cell, class_=columns[place][1] or None) for place, cell in enumerate(cells)],
            data_key=key,
        )
        for key, cells in rows
    ]
    inside = table(thead(heads), tbody(lines), aria_label=label)
    return div(inside, class_="scroll", tabindex=0, role="region", aria_label=f"table of {label}")


def facts(*pairs: tuple[str, Content]) -> Html:
    """What is known, word by word; what is None is left out."""
    rows = [tr(th(name, scope="row"), td(value)) for name, value in pairs if value is not None]
    return table(tbody(rows), class_="facts")


def command_line(text: str) -> Html:
    """A line to be pasted into a terminal."""
    copy = button("copy", type="button", class_="copy", data_copy=text, aria_label=f"copy: {text}")
    return span(code(text), copy, class_="paste")


def hidden(**fields: Any) -> list[Html]:
    return [input_(type="hidden", name=name.rstrip("_"), value=value) for name, value in fields.items() if value != ""]


def act(visit: Visit, verb: str, word: Content, *, tone: str = "", key: str | None = None, **fields: Any) -> Html:
    """A button that does it at once."""
    return form(
        hidden(csrf=visit.visitor.csrf, **fields),
        button(word, type="submit", class_=f"button {tone}".strip(), data_hotkey=key),
        method="post",
        action=visit.url("do", verb),
        class_="inline",
    )


def ask_first(visit: Visit, verb: str, word: Content, *, tone: str = "", key: str | None = None, **fields: Any) -> Html:
    """A button that shows what it would do, and asks."""
    return form(
        hidden(**fields),
        button(word, type="submit", class_=f"button {tone}".strip(), data_hotkey=key, aria_haspopup="dialog"),
        method="get",
        action=visit.url("do", verb),
        class_="inline",
        data_ask=True,
    )


def note(tone: str, *content: Content, key: str | None = None) -> Html:
    return div(*content, class_=f"note {tone}", data_key=key)


def job_link(visit: Visit, ref: int | str, text: Content = None) -> Html:
    return link(text if text is not None else f"{ref}", href=visit.url("jobs", ref), class_="ref")


def queue_link(visit: Visit, name: str) -> Html:
    return link(name, href=visit.url("queues", name))


def tabs(items: Iterable[tuple[Content, str, bool]], *, label: str) -> Html:
    """Ways to look at the same: (word, address, whether it is this one)."""
    return div(
        [link(word, href=href, class_="tab", aria_current="page" if here else None) for word, href, here in items],
        class_="tabs",
        role="navigation",
        aria_label=label,
    )


def counted(word: str, count: int | None) -> Html:
    return markup([word, " ", small(f"{count:,}", class_="num") if count is not None else None])
