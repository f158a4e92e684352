"""All queues: what is in them and how they are worked."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.view import QueueView
from .html import Content, a, span
from .page import Page, Shown
from .parts import act, ago, badge, command_line, empty, grid, queue_link
from .visit import Visit

SHOWN = (("pending", ""), ("processing", ""), ("scheduled", "w1"), ("failed", "w2"), ("dead", ""), ("completed", "w1"))


def show(visit: Visit) -> Shown:
    queues: list[QueueView] = visit.ask("queues")
    if not queues:
        return Shown(
            "Queues", empty("No queue yet: the first job makes one. ", command_line("covey enqueue echo hello"))
        )
    return Shown("Queues", queue_table(visit, queues))


def queue_table(visit: Visit, queues: Sequence[QueueView]) -> Content:
    columns = [
        ("queue", "grow"),
        *((state, f"num {class_}".strip()) for state, class_ in SHOWN),
        ("rules", "w2"),
        ("", "do"),
    ]
    return grid(columns, ((f"queue-{queue.name}", _cells(visit, queue)) for queue in queues), label="queues")


def _cells(visit: Visit, queue: QueueView) -> list[Content]:
    counts: list[Content] = []
    for state, _ in SHOWN:
        value = queue.counts.get(state, 0)
        href = (
            visit.url("dead", queue=queue.name) if state == "dead" else visit.url("jobs", state=state, queue=queue.name)
        )
        counts.append(a(f"{value:,}", href=href) if value else span("0", class_="dim"))
    return [queue_link(visit, queue.name), *counts, rules(visit, queue), pause_button(visit, queue)]


def rules(visit: Visit, queue: QueueView) -> Content:
    words: list[Content] = []
    if queue.paused:
        until = [" until ", ago(queue.resume_at, visit.now)] if queue.resume_at else None
        words.append([badge("paused", "warn"), until])
    if queue.serial:
        words.append(badge("serial", "off"))
    if queue.concurrency is not None:
        words.append(span(f"at most {queue.concurrency:,}", class_="dim"))
    return [[word, " "] for word in words] if words else span("parallel", class_="dim")


def pause_button(visit: Visit, queue: QueueView) -> Content:
    if not visit.may("pause"):
        return None
    if queue.paused:
        return act(visit, "resume", "resume", queue=queue.name)
    return act(visit, "pause", "pause", queue=queue.name)


PAGE = Page(path="queues", show=show, needs="queues", name="Queues", key="q")
