"""Derived data, kept up to date in rounds: detect what changed, derive it in parallel batches, flush, report, publish.

Everything runs in the serial queue "derive": one top-level job after the other, each with its whole tree. So `flush`
never sees half a round, and a second round that is asked for in the middle waits until the first one is published.

    detect ─after─▶ derive ─spawns─▶ refresh, refresh, …      in parallel; derive waits for all of them
                      ├─after─▶ flush                          once every batch is there
                      └─after─▶ report ─after─▶ publish        then in this order

Files stand for tables: sources/*.json is what others write, the rest is ours.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from covey import Children, Context, Covey

QUEUE = "derive"
BATCH = 4
PACE_S = float(os.environ.get("DERIVE_PACE", "0.2"))  # pretend that a batch is work

app = Covey("derive.db")
home = Path(__file__).parent if "DERIVE_HOME" not in os.environ else Path(os.environ["DERIVE_HOME"])
task = app.task(queue=QUEUE, max_attempts=5, backoff_base=1, max_backoff=1)


def setup() -> None:
    """The queue has its rule, and the directories are there."""
    app.client.set_queue(QUEUE, serial=True)
    for name in ("sources", "batches", "seen"):
        (home / name).mkdir(parents=True, exist_ok=True)


# ── the stages ──────────────────────────────────────────────────────────────────────────────────────────────────────


@task
def detect(ctx: Context) -> list[str]:
    """Which sources have changed since they were derived. If none has, the round ends here."""
    with noted("detect", ctx):
        changed = [name for name in _names("sources") if _read("sources", name) != _read("seen", name)]
        if changed:
            ctx.after(derive, unique_key="derive")  # rounds that are asked for before it starts share it
        return changed


@task
def derive(ctx: Context) -> int:
    """A child for each batch of what has changed, read anew: the list may have grown since `detect`."""
    note("+derive", ctx)
    changed = [name for name in _names("sources") if _read("sources", name) != _read("seen", name)]
    batches = [changed[start : start + BATCH] for start in range(0, len(changed), BATCH)]
    for batch in batches:
        ctx.spawn(refresh, batch, key=batch[0])
    ctx.after(flush, unique_key="flush")
    ctx.after(report, unique_key="report")
    return len(changed)


@derive.join
def derived(ctx: Context, children: Children) -> int:
    note("-derive", ctx)
    return int(sum(children.results()))


@task
def refresh(ctx: Context, names: list[str]) -> int:
    """One batch. Written under its own name, so that a second try overwrites the first."""
    with noted("refresh", ctx):
        time.sleep(PACE_S)
        rows = {name: _derive_one(_read("sources", name)) for name in names}
        _write("batches", names[0], rows)
        return len(rows)


@task
def flush(ctx: Context) -> int:
    """What all batches of the round have derived is in the table, and the batches are gone."""
    with noted("flush", ctx):
        table = _read(".", "table") or {}
        batches = {name: _read("batches", name) for name in _names("batches")}
        for rows in batches.values():
            table |= rows
        _write(".", "table", table)
        for name, rows in batches.items():
            for source in rows:
                _write("seen", source, rows[source]["of"])
            (home / "batches" / f"{name}.json").unlink()
        return len(table)


@task
def report(ctx: Context) -> dict[str, int]:
    with noted("report", ctx):
        table = _read(".", "table") or {}
        summary = {"rows": len(table), "total": sum(row["double"] for row in table.values())}
        _write(".", "report", summary)
        ctx.after(publish, unique_key="publish")
        return summary


@task
def publish(ctx: Context) -> dict[str, int]:
    """The next stage: it sees a report of whole rounds only."""
    with noted("publish", ctx):
        summary: dict[str, int] = _read(".", "report")
        _write(".", "published", summary)
        return summary


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _derive_one(value: Any) -> dict[str, Any]:
    return {"of": value, "double": 2 * value["amount"]}


def _names(directory: str) -> list[str]:
    return sorted(path.stem for path in (home / directory).glob("*.json"))


def _read(directory: str, name: str) -> Any:
    try:
        return json.loads((home / directory / f"{name}.json").read_text())
    except FileNotFoundError:
        return None


def _write(directory: str, name: str, value: Any) -> None:
    """Whole or not at all, whenever we are killed."""
    path = home / directory / f"{name}.json"
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)


class noted:
    """A line in the diary when a stage begins, and one when it ends."""

    def __init__(self, stage: str, ctx: Context) -> None:
        self.stage, self.ctx = stage, ctx

    def __enter__(self) -> None:
        note(f"+{self.stage}", self.ctx)

    def __exit__(self, *_: object) -> None:
        note(f"-{self.stage}", self.ctx)


def note(what: str, ctx: Context) -> None:
    with open(home / "diary", "a") as diary:
        diary.write(f"{what} {ctx.job_id}\n")
