"""covey tree: a job with its children, and theirs, drawn once or as they change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from ...core.model import ENDED
from ...errors import InvalidInput, NotFound
from ..open_queue import listen_for_ends, open_queue
from ..options import Db, Json, Ref
from ..printing import as_json, note, one_line

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from ...core.ports import Client
    from ...core.view import JobView

PAGE = 1000
MOST = 5000  # jobs in one drawing, unless --limit asks for more of one parent
LOOK_S = 0.5
LONGEST = 120  # characters of an error

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Draw it anew until it has ended.")]
Depth = Annotated[int, typer.Option("--depth", "-d", metavar="N", help="How many levels below the job.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", help="How many children of each job.")]


class Node(Struct):
    """A job and as much of what is below it as is shown."""

    job: JobView
    below: list[Node]
    more: int = 0  # children that are not shown


def tree(
    job: Ref, follow: Follow = False, depth: Depth = 5, limit: Limit = 20, json: Json = False, db: Db = None
) -> None:
    """Draw a job with its children: states, times, attempts, errors."""
    if depth < 0 or limit < 0:
        raise InvalidInput("--depth and --limit: 0 or more")
    engine = open_queue(db)
    top = engine.job(job).id
    if follow:
        _follow(engine, top, depth, limit, quiet=json)
    found = read(engine, top, depth, limit)
    if json:
        as_json(nested(found))
    else:
        from .. import render

        render.console().print(draw(found))


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(engine: Client, ref: int, depth: int, limit: int) -> Node:
    """The job and what is below it, level by level, so that what is left out is the deepest."""
    top = Node(engine.job(ref), [])
    level, room = [top], max(MOST, limit)
    for _ in range(depth):
        if not level:
            break  # there is nothing below, however deep the question went
        for node in level:
            wanted = min(limit, room)
            node.below = [Node(child, []) for child in _children(engine, node.job, wanted)]
            room -= len(node.below)
        level = [child for node in level for child in node.below]
    _count_rest(top)
    return top


def _children(engine: Client, job: JobView, wanted: int) -> Iterator[JobView]:
    after: int | None = None
    while job.children.total and wanted > 0:
        try:
            branch = engine.tree(job.id, min(wanted, PAGE), after)
        except NotFound:
            return  # removed while we look
        yield from branch.children
        wanted, after = wanted - len(branch.children), branch.next
        if after is None:
            return


def _count_rest(node: Node) -> None:
    node.more = max(0, node.job.children.total - len(node.below))
    for child in node.below:
        _count_rest(child)


def nested(node: Node) -> dict[str, Any]:
    """The job's JSON with its children in it."""
    from msgspec import to_builtins

    return {**to_builtins(node.job), "branches": [nested(child) for child in node.below], "more": node.more}


# ── drawing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def draw(node: Node) -> Tree:
    from rich.tree import Tree

    drawn = Tree(_line(node), guide_style="dim")
    _grow(drawn, node)
    return drawn


def _grow(drawn: Tree, node: Node) -> None:
    from rich.text import Text

    for child in node.below:
        _grow(drawn.add(_line(child)), child)
    if node.more:
        hint = f"--limit {len(node.below) + node.more}" if node.below else f"covey tree {node.job.id}"
        drawn.add(Text(f"… {node.more:,} more ({hint})", style="dim"))


def _line(node: Node) -> Text:
    import time

    from rich.text import Text

    from .. import render

    job = node.job
    line = Text.assemble((f"{job.id} ", "bold"), render.state(job.state), "  ", one_line(render.what(job)))
    facts = [render.family(job), _time(node, time.time())]
    if job.attempts > 1 or job.state == "failed":
        facts.append(f"{job.attempts}/{job.max_attempts} tries")
    if said := ", ".join(fact for fact in facts if fact):
        line.append(f"  {said}", "dim")
    if job.error:
        error = one_line(job.error)
        line.append(f"  {error if len(error) <= LONGEST else error[:LONGEST] + '…'}", "red")
    return line


def _time(node: Node, now: float) -> str:
    """How long it took, or how long it has been at it."""
    from ..times import age
    from .show import took

    job = node.job
    # `started_at` is the last run's, of a join's too; the children were made when the first run had ended.
    starts = [at for at in (job.started_at, *(child.job.created_at for child in node.below[:1])) if at is not None]
    if not starts:
        return ""
    return took(min(starts), job.finished_at) if job.state in ENDED else age(min(starts), now)


def _follow(engine: Client, top: int, depth: int, limit: int, *, quiet: bool) -> None:
    """Returns once the job has ended; on a terminal the tree is drawn meanwhile, and wiped at the end."""
    from .. import render

    target = render.console()
    if quiet or not target.is_terminal:
        engine.wait_for([top], None)
        return
    from rich.live import Live

    ear = listen_for_ends(engine)
    try:
        with Live(console=target, auto_refresh=False, transient=True, vertical_overflow="ellipsis") as shown:
            while True:
                found = read(engine, top, depth, limit)
                shown.update(draw(found), refresh=True)
                if found.job.state in ENDED and found.job.pool is None:
                    return
                ear.wait(LOOK_S)
    except KeyboardInterrupt:
        note("not followed any longer; the jobs go on")
    finally:
        ear.close()
