"""covey schedule: jobs that are made by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InvalidInput
from ..job_options import takes_job_options
from ..open_queue import open_queue, open_to_look
from ..options import Db, Json, Words
from ..parser import WordsCommand, argv_of
from ..printing import answer, as_json, note, one_line
from ..schedule_input import (
    Args,
    At,
    CatchUp,
    Cron,
    Every,
    From,
    Jitter,
    Kind,
    Name,
    Overlap,
    PauseAfter,
    TaskName,
    Tz,
    Until,
    Window,
    body_fields,
    job_of,
    who,
)

if TYPE_CHECKING:
    from ...core.schedule_views import ScheduleView, TickView


@takes_job_options("enqueue")
def add(
    ctx: typer.Context,
    name: Name,
    words: Words = None,
    *,
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    at: At = None,
    catch_up: CatchUp = None,
    window: Window = None,
    overlap: Overlap = None,
    jitter: Jitter = None,
    starts: From = None,
    until: Until = None,
    pause_after_failures: PauseAfter = None,
    task: TaskName = None,
    args: Args = None,
    kind: Kind = None,
    json: Json = False,
    db: Db = None,
    **options: Any,
) -> None:
    """Make jobs by cron, in a period or at instants.

    covey schedule add nightly --cron '30 2 * * *' --tz Europe/Berlin -- ./nightly.sh

    covey schedule add poll --every 5m --task tasks.poll --args '{"shard": 3}'
    """
    from ...core.schedule_views import ScheduleBody

    job = job_of(list(words or ()), argv_of(ctx), options, task=task, args=args, kind=kind)
    if job is None:
        raise InvalidInput("nothing to run; pass a command, as in: covey schedule add NAME --every 5m -- ./poll.sh")
    fields = body_fields(
        cron=cron, tz=tz, every=every, at=at, catch_up=catch_up, window=window, overlap=overlap, jitter=jitter,
        starts=starts, until=until, pause_after_failures=pause_after_failures,
    )  # fmt: skip
    engine = open_queue(db, create=True)
    told(engine.put_schedule(name, ScheduleBody(job=job, version=0, by=who(), **fields)), json)


add.command_class = WordsCommand  # type: ignore[attr-defined]


def told(view: ScheduleView, json: bool) -> None:
    """What the schedule is now, and what people may expect otherwise."""
    if json:
        as_json(view)
        return
    if view.state == "paused":
        answer(f"{view.name}: {view.when}; paused")
    else:
        answer(f"{view.name}: {view.when}; next: {view.next_local or 'never'}")
    for hint in view.hints:
        note(f"note: {hint}")


def list_schedules(json: Json = False, db: Db = None) -> None:
    """List schedules and how they fare."""
    engine = open_to_look(db)
    found = engine.schedules() if engine else []
    if json:
        as_json(found)
        return
    if not found:
        if engine:
            note("no schedules yet; `covey schedule add NAME --every 5m -- COMMAND` makes one")
        return
    from .. import render

    render.table(
        ["NAME", "WHEN", "NEXT", "LAST", "OUTCOME", "MISSED", "STATE", "SOURCE"],
        [
            (
                view.name,
                view.when,
                view.next_local or "-",
                view.last.tick if view.last else "-",
                (view.last.state or "gone") if view.last else "-",
                view.missed or ".",
                _state(view),
                f"code {view.app}" if view.source == "code" else view.created_by or "api",
            )
            for view in found
        ],
        wide="WHEN",
    )


def _state(view: ScheduleView) -> str:
    if view.overdue > 60:
        return "overdue"
    return f"{view.state}, {view.skipped} skipped" if view.skipped else view.state


def show(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="So many ticks.")] = 20,
    json: Json = False,
    db: Db = None,
) -> None:
    """Show one schedule and what was decided of its last ticks."""
    engine = open_queue(db)
    view, ticks = engine.schedule(name), engine.ticks(name, limit)
    if json:
        from msgspec import to_builtins

        as_json({**to_builtins(view), "ticks": to_builtins(ticks)})
        return
    facts = {
        "when": view.when,
        "state": view.state,
        "next": view.next_local,
        "catch-up": f"all, at most {view.most}" if view.catch_up == "all" else view.catch_up,
        "overlap": view.overlap,
        "jitter": f"{view.jitter:g} s" if view.jitter else None,
        "from": view.starts,
        "until": view.until,
        "job": _job(view.job),
        "queue": view.queue,
        "source": f"code of {view.app}" if view.source == "code" else f"api, by {view.created_by or 'nobody named'}",
        "version": view.version,
        "last success": view.last_success,
    }
    if view.paused:
        pause = [view.paused.since, view.paused.by and f"by {view.paused.by}", view.paused.reason]
        facts["paused"] = ", ".join(str(each) for each in pause if each)
        facts["until then"] = view.paused.until
    width = max(map(len, facts))
    answer(one_line(view.name))
    for word, value in facts.items():
        if value is not None:
            answer(f"  {word:<{width}}  {one_line(str(value))}")
    for hint in view.hints:
        note(f"note: {hint}")
    if ticks:
        from .. import render

        render.table(
            ["TICK", "DECISION", "JOB", "STATE", "NOTE"],
            [(tick.tick, tick.decision, tick.job or "-", tick.state or "-", _note(tick)) for tick in ticks],
            wide="NOTE",
        )


def _job(job: dict[str, Any]) -> str:
    import shlex

    if "task" in job:
        return f"{job['task']} {job.get('args') or ''}".rstrip()
    return str(job["command"]) if "command" in job else shlex.join(map(str, job.get("argv", [])))


def _note(tick: TickView) -> str:
    return f"{tick.note or ''}{f' (all before {tick.until})' if tick.until else ''}"


def next_ticks(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of a schedule.", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", metavar="N", help="So many.")] = 5,
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    json: Json = False,
    db: Db = None,
) -> None:
    """Say when a schedule is due next, or when an expression would be: no queue is asked then."""
    if not 1 <= count <= 1000:
        raise InvalidInput(f"-n {count}: from 1 to 1000")
    if (name is None) == (not cron and every is None):
        raise InvalidInput("name a schedule, or give --cron or --every")
    if name is not None:
        found = open_queue(db).next_ticks(name, count)
    else:
        from ...core import schedules
        from ...core.schedule_views import ScheduleBody, definition_of
        from ...engine.schedules import next_ticks
        from ...env import now
        from ...system.time_zones import zone

        fields: dict[str, Any] = {"cron": list(cron or ()) or None, "every": every} | ({"tz": tz} if tz else {})
        definition = definition_of("preview", ScheduleBody(job={"command": "true"}, **fields))
        schedules.check(definition, zone)
        if not json:
            note(schedules.words(definition.when))
            for hint in schedules.hints(definition.when, zone, now()):
                note(f"note: {hint}")
        found = next_ticks(definition, now(), count)
    if json:
        as_json(found)
    else:
        answer("\n".join(each.local for each in found) or "never")


def pause(
    name: Name,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; others see it.")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Resume by itself after 90s, 2h, 1d.")
    ] = None,
    json: Json = False,
    db: Db = None,
) -> None:
    """Fire nothing more of it. Ticks meanwhile are not missed."""
    from ...core.times import seconds

    for_s = None if for_ is None else seconds(for_, "--for")
    view = open_queue(db).pause_schedule(name, reason=reason, for_s=for_s, by=who())
    if json:
        as_json(view)
    else:
        answer(f"{view.name}: paused" + (f" until {view.paused.until}" if view.paused and view.paused.until else ""))


def resume(
    name: Name,
    catch_up: Annotated[bool, typer.Option("--catch-up", help="Ticks during the pause were missed.")] = False,
    json: Json = False,
    db: Db = None,
) -> None:
    """Let a paused schedule go on."""
    told(open_queue(db).resume_schedule(name, catch_up=catch_up), json)


def run(name: Name, overlap: Overlap = None, json: Json = False, db: Db = None) -> None:
    """Run it now and print the id of the job. That is no tick: nothing moves."""
    ran = open_queue(db).run_schedule(name, overlap=overlap)
    if json:
        as_json(ran)
    else:
        answer(str(ran.job))


def backfill(
    name: Name,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="The first tick; a day or RFC 3339.")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="The last tick; a day or RFC 3339.")],
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many ticks.")] = 500,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    json: Json = False,
    db: Db = None,
) -> None:
    """Make the jobs of ticks that had none. Those that have one get no second one."""
    engine = open_queue(db)
    zone = engine.schedule(name).tz
    found = engine.backfill_schedule(
        name, _instant(start, zone, "--from"), _instant(end, zone, "--to"), limit=limit, dry_run=dry_run
    )
    if json:
        as_json(found)
        return
    for tick in found:
        answer(f"{tick.tick}  {tick.decision}  {tick.job or '-'}")
    if not found:
        note("no ticks in that span")


def _instant(text: str, tz: str, flag: str) -> str:
    """An RFC 3339 time; a day alone begins at midnight where the schedule is."""
    from datetime import date, datetime, time

    from ...core.times import moment
    from ...system.time_zones import zone

    try:
        return datetime.combine(date.fromisoformat(text), time(), tzinfo=zone(tz)).isoformat()
    except ValueError:
        moment(text, flag)
        return text


def remove(
    name: Name,
    cancel_jobs: Annotated[
        bool, typer.Option("--cancel-jobs", help="Cancel those of its jobs that have not ended.")
    ] = False,
    json: Json = False,
    db: Db = None,
) -> None:
    """Delete a schedule with its ticks. Its jobs stay."""
    cancelled = open_queue(db).remove_schedule(name, cancel_jobs=cancel_jobs)
    if json:
        as_json({"name": name, "cancelled": cancelled})
    else:
        answer(f"removed {one_line(name)}" + (f", {cancelled} jobs cancelled" if cancelled else ""))
