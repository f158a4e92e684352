"""One queue: its counts, its rules, who serves it."""

from __future__ import annotations

from ...core.view import PoolView, QueueView
from ...engine.health import is_alive, serves
from ...errors import NotFound
from .html import Content, a, button, div, form, h1, input_, label, span
from .overview import tiles
from .page import Page, Shown
from .parts import block, command_line, empty, facts, hidden
from .queues import pause_button, rules
from .visit import Visit


def show(visit: Visit) -> Shown:
    name = visit.names["queue"]
    found = [queue for queue in visit.ask("queues") if queue.name == name]
    if not found:
        raise NotFound(f"no queue {name!r}; `covey queue list` shows what there is")
    queue = found[0]
    return Shown(
        f"Queue {name}",
        [
            tiles(visit, queue.counts, None, queue=name),
            block("Rules", _rules(visit, queue), key="rules"),
            block("Who serves it", _served(visit, name), key="served") if visit.may("pool_views") else None,
        ],
        head=h1("Queue ", span(name, class_="mono")),
        aside=[pause_button(visit, queue), a("its jobs", href=visit.url("jobs", queue=name), class_="button")],
    )


def _rules(visit: Visit, queue: QueueView) -> Content:
    now = facts(("now", rules(visit, queue)), ("children", f"at most {queue.max_depth} deep"))
    if not visit.may("set_queue"):
        return now
    serial = input_(id="serial", type="checkbox", name="serial", value="yes", checked=queue.serial)
    limit = input_(
        id="limit",
        type="number",
        name="concurrency",
        min=1,
        max=1_000_000,
        value=queue.concurrency,
        placeholder="no limit",
    )
    change = form(
        hidden(csrf=visit.visitor.csrf, queue=queue.name),
        div(serial, label("serial: one tree at a time, in order", for_="serial"), class_="check"),
        div(label("at most so many at a time", for_="limit"), limit, class_="field"),
        button("set", type="submit", class_="button"),
        method="post",
        action=visit.url("do", "set_queue"),
        class_="row",
    )
    return [now, change]


def _served(visit: Visit, name: str) -> Content:
    pools: list[PoolView] = [pool for pool in visit.ask("pool_views") if is_alive(pool) and serves(pool, name)]
    if not pools:
        return empty("No pool serves this queue. ", command_line(f"covey worker start --queue {name}"))
    return facts(*((pool.name, f"{pool.count} at a time, {', '.join(pool.kinds)}") for pool in pools))


PAGE = Page(path="queues/{queue}", show=show, needs="queues")
