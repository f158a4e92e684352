"""What a type checker says to users: mypy, strict, on small programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]

TASKS = """
    from __future__ import annotations
    from typing import Any
    from covey import Call, Child, Children, Context, Covey, Job, Spawned, Task

    app = Covey("memory:")

    @app.task
    def plain(path: str, size: int = 256) -> str:
        return path * size

    @app.task(queue="images", max_attempts=5, timeout=60, backoff_base=3, max_backoff=9.5, jitter=True, name="other")
    def with_options(path: str, size: int = 256) -> str:
        return path * size

    @app.task
    def with_context(ctx: Context, ids: list[int]) -> int:
        ctx.info(rows=len(ids))
        return len(ids)

    @app.task(priority=3)
    async def fetch(url: str) -> bytes:
        return url.encode()

    @app.task
    async def fetch_with_context(ctx: Context, url: str) -> dict[str, int]:
        return {url: ctx.attempt}

    @app.task
    def nothing() -> None: ...

    @app.task
    def keyed(key: str, size: int = 1) -> str:
        return key * size

    @app.task(on_error="collect", mode="serial", tree_timeout=60)
    def derive(ctx: Context, ids: list[int]) -> int:
        first: Spawned = ctx.spawn(plain, "a.png", size=64)
        ctx.spawn(plain.using(key="b", queue="images", timeout=3), "a.png")
        ctx.spawn(plain, "a.png", key="c", priority=3)
        ctx.spawn(plain, "a.png", priority=3)
        ctx.spawn(plain, "a.png", queue="images", size=3)
        ctx.spawn(fetch, "u", mode="serial")
        ctx.spawn(keyed, key="a", size=3)
        ctx.spawn(with_context, [1])
        count: int = ctx.spawn_many(plain.call(str(n)) for n in ids)
        ctx.spawn_many([plain.call("a"), fetch.using(priority=1).call("b")], mode="serial")
        ctx.spawn_shell(["ls", "-l"], key="ls", priority=1, env={"A": "b"})
        ctx.spawn_sibling(plain, "a.png", key="d")
        ctx.spawn_sibling(nothing)
        ctx.after(nothing)
        ctx.after(plain, "a", unique_key="flush", when="always")
        ctx.after(with_context.using(queue="b"), [1])
        failed: list[Child] = ctx.failed_siblings()
        ids_: tuple[int | None, int, int] = (ctx.parent, ctx.root_id, ctx.depth)
        return len(ids)

    @derive.join
    def merged(ctx: Context, children: list[Child]) -> int:
        return sum(child.result for child in children)

    @fetch.join
    async def gather(children: Children) -> bytes:
        return b"".join(children.results()) + str(children.by_key("a").id).encode()

    @fetch_with_context.join
    def tally(ctx: Context, children: Children) -> dict[str, int]:
        return {"failed": len(children.failed())}

    @app.task
    def untyped(value: Any) -> int:
        return 1
"""

RIGHT = """
    import asyncio
    from datetime import UTC, datetime, timedelta
    from tasks import *

    job: Job[str] = plain.enqueue("a.png", size=64)
    plain.enqueue(path="a.png")
    text: str = plain("a.png", 3)
    number: int = with_context([1, 2])
    with_context.enqueue([1, 2])
    data: bytes = asyncio.run(fetch("u"))
    fetched: Job[bytes] = fetch.enqueue("u")
    nothing.enqueue().result()
    untyped.enqueue(1)
    jobs: list[Job[str]] = plain.enqueue_many([plain.call("a"), plain.using(key="b").call("b")])
    later = plain.using(run_at=datetime.now(UTC), priority=9, key="a", if_exists="return", labels={"a": "b"})
    chosen: Job[str] = later.using(delay=timedelta(1), timeout=timedelta(1)).enqueue("a")
    with app.transaction() as tx:
        collected: Job[str] = tx.enqueue(plain, "a", size=3)
        counted: Job[int] = tx.enqueue(with_context.using(queue="b"), [1])
        plain.using(tx=tx).enqueue("b")
    done: Job[None] = app.shell(["ls"], timeout=1, env={"A": "1"}, max_retries=2)
    state: str = app.job("key").refresh().state
    any_task: Task[..., Any] = app.tasks["a"]

    async def go() -> str:
        return await (await plain.using(key="x").aenqueue("a.png", size=3)).aresult(timeout=3)
"""

# Each line is wrong for exactly the reason that is written beside it.
WRONG = """
    from datetime import datetime
    from tasks import *

    plain.enqueue(1)  # arg-type
    plain.enqueue()  # call-arg
    plain.enqueue("a", size="b")  # arg-type
    plain.enqueue("a", colour="b")  # call-arg
    plain.enqueue("a", 1, 2)  # call-arg
    plain.call(1)  # arg-type
    plain.using(priority=1).enqueue(1)  # arg-type
    plain.using(priority="high")  # typeddict-item|arg-type
    plain.using(colour="red")  # call-arg
    plain.using(if_exists="maybe")  # arg-type
    plain.enqueue_many([with_context.call([1])])  # list-item
    plain(1)  # arg-type
    with_options.enqueue(1)  # arg-type
    with_context.enqueue()  # call-arg
    with_context.enqueue(["a"])  # list-item
    with_context.enqueue(Context.detached(), [1])  # call-arg|arg-type
    fetch.enqueue(5)  # arg-type
    fetch_with_context.enqueue()  # call-arg
    nothing.enqueue(1)  # call-arg
    wrong: Job[int] = plain.enqueue("a")  # assignment
    app.transaction().enqueue(plain, 5)  # arg-type
    app.task(colour="red")  # call-overload
    app.task(key="a")  # call-overload
    app.shell(5)  # arg-type
    ctx = Context.detached()
    ctx.spawn(plain, 1)  # call-overload
    ctx.spawn(plain)  # call-overload
    ctx.spawn(plain, "a", colour="b")  # call-arg
    ctx.spawn(plain.using(key="a"), 1)  # call-overload
    ctx.spawn(plain, "a", key=5)  # call-arg
    ctx.spawn(plain, "a", mode="sometimes")  # call-arg
    ctx.spawn(with_context, ["a"])  # call-overload|list-item
    ctx.spawn("plain", 1)  # call-overload
    ctx.spawn_many([1])  # list-item
    ctx.spawn_shell(5)  # arg-type
    ctx.spawn_sibling(plain, 1)  # call-overload
    ctx.after(plain, 1)  # call-overload
    ctx.after(plain, "a", unique_key="a", when="never")  # call-arg
    derive.join(lambda ctx, children: "text")  # call-overload|arg-type|return-value
    plain.using(on_error="maybe")  # arg-type|typeddict-item
    app.task(mode="maybe")  # call-overload
"""

REVEALED = """
    from tasks import *

    reveal_type(plain.enqueue("a").result())
    reveal_type(with_options.enqueue("a").result())
    reveal_type(with_context.enqueue([1]).result())
    reveal_type(fetch.enqueue("u").result())
    reveal_type(fetch_with_context.enqueue("u").result())
    reveal_type(plain.using(key="a").enqueue("a").result())
    reveal_type(plain("a"))
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Every line that mypy prints about the programs."""
    place = tmp_path_factory.mktemp("typing")
    for name, code in (("tasks", TASKS), ("right", RIGHT), ("wrong", WRONG), ("revealed", REVEALED)):
        (place / f"{name}.py").write_text(dedent(code).lstrip())
    (place / "mypy.ini").write_text(
        f"[mypy]\nstrict = true\nmypy_path = {ROOT / 'src'}\nno_implicit_reexport = false\n"
    )
    files = ["tasks.py", "right.py", "wrong.py", "revealed.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-pretty", "--no-error-summary", *files],
        capture_output=True,
        text=True,
        cwd=place,
    )
    assert not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if ": note: " not in line or "Revealed" in line]


def about(verdicts: list[str], name: str) -> list[str]:
    return [line for line in verdicts if line.startswith(f"{name}.py:")]


def test_right_programs_are_accepted(verdicts: list[str]) -> None:
    assert about(verdicts, "tasks") + about(verdicts, "right") == []


def test_every_wrong_line_is_refused_for_its_reason(verdicts: list[str]) -> None:
    said: dict[int, set[str]] = {}
    for line in about(verdicts, "wrong"):
        number, reason = int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]")
        said.setdefault(number, set()).add(reason)
    lines = dedent(WRONG).lstrip().splitlines()
    expected = {n: set(line.split("# ")[1].split("|")) for n, line in enumerate(lines, 1) if "# " in line}
    assert said.keys() == expected.keys()
    assert {lines[n - 1]: said[n] for n in said if not said[n] & expected[n]} == {}


def test_a_job_knows_the_type_of_its_result(verdicts: list[str]) -> None:
    revealed = [line.split('"')[1].replace("builtins.", "") for line in about(verdicts, "revealed")]
    assert revealed == ["str", "str", "int", "bytes", "dict[str, int]", "str", "str"]
