"""A queue on PostgreSQL: whether the server keeps what it promises, has room for the pools, and keeps itself tidy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .check_result import Finding, bad, ok, some, warn
from .host import drift

if TYPE_CHECKING:
    from ...engine.engine import Engine

OLDEST = 130000
SESSIONS_OF_A_POOL = 2  # one takes turns, one listens
HEARD_S = 2.0
OLD_S = 60  # a transaction that lasts longer holds up what makes claims fast
MANY_DEAD = 50_000
SHORT_MS = 10_000  # what the engine itself waits for a lock
LOOKS = 5


def look(engine: Engine) -> Iterator[Finding]:
    settings: dict[str, str] = dict(engine.store.ask("server_settings"))
    yield _version(settings)
    yield drift("the server's clock", engine.store.dialect.now())
    yield from _durability(settings, engine.settings()["durability"])
    yield from _limits(settings)
    yield from _sessions(engine, settings)
    yield from _wake_ups(engine)
    yield from _vacuum(engine, settings)


def _version(settings: dict[str, str]) -> Finding:
    text = f"PostgreSQL {settings['server_version']}"
    if int(settings["server_version_num"]) < OLDEST:
        return bad("server", text, "Covey is written for 13 or newer: upgrade it")
    return ok("server", text)


def _durability(settings: dict[str, str], wanted: str) -> Iterator[Finding]:
    check, restart = "durability", "in postgresql.conf, then restart the server"
    off = [name for name in ("fsync", "full_page_writes") if settings[name] == "off"]
    if off:
        lost = "acknowledged jobs and the whole database may be lost with the power"
        yield bad(
            check, f"{' and '.join(off)} off: {lost}", f"set {' and '.join(f'{name} = on' for name in off)} {restart}"
        )
    if settings.get("zero_damaged_pages") == "on":
        yield bad(check, "zero_damaged_pages is on: damage is thrown away in silence", "turn it off")
    if wanted == "normal":
        text = "normal: commits do not wait for the disk, a crash of the server may undo the last moments"
        yield warn(check, text, "if that is not what you want: `covey config set durability full`")
    elif not off:
        waits = settings["synchronous_commit"]
        yield ok(
            check, f"full: every commit waits for the disk (synchronous_commit {'on' if waits == 'off' else waits})"
        )


def _limits(settings: dict[str, str]) -> Iterator[Finding]:
    """What ends our statements or makes them another sort."""
    short = [
        f"{name} {settings[name]} ms"
        for name in ("statement_timeout", "transaction_timeout")
        if 0 < int(settings.get(name, 0)) < SHORT_MS
    ]
    if short:
        text = f"{' and '.join(short)}: long statements (migrations, copies, pruning) are cut off again and again"
        yield warn("time-outs", text, "`alter role … set … = 0` for the user of the queue")
    else:
        yield ok("time-outs", "none that would cut off a statement")
    if int(settings.get("idle_session_timeout", 0)) > 0:
        text = f"idle_session_timeout {settings['idle_session_timeout']} ms: idle pools are cut off and connect again"
        yield warn("time-outs", text, "`alter role … set idle_session_timeout = 0` for the user of the queue")
    if (level := settings["default_transaction_isolation"]) != "read committed":
        text = f"default_transaction_isolation is {level}: writers that meet are undone and try again, which is slow"
        advice = "`alter role … set default_transaction_isolation = 'read committed'` for the user of the queue"
        yield warn("isolation", text, advice)


def _sessions(engine: Engine, settings: dict[str, str]) -> Iterator[Finding]:
    ((_, is_standby, used),) = engine.store.ask("server_sessions")
    if is_standby or settings["default_transaction_read_only"] == "on":
        why = "a standby, or in recovery" if is_standby else "default_transaction_read_only is on"
        yield bad("writing", f"the server takes no writes ({why})", "name the primary, or end what holds it")
    most = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    pools = len(engine.pool_views())
    text = f"{used} of {most} connections are in use; {pools} pools need {pools * SESSIONS_OF_A_POOL}"
    if used > 0.8 * most or pools * SESSIONS_OF_A_POOL > 0.8 * most:
        yield warn("connections", text, "raise max_connections, or put a transaction pooler in between")
    else:
        yield ok("connections", text)


def _wake_ups(engine: Engine) -> Iterator[Finding]:
    """Whether a NOTIFY comes to whoever listens, the way that pools do."""
    pooled = len({engine.store.ask("server_sessions")[0][0] for _ in range(LOOKS)}) > 1
    between = "another session for every transaction: a pooler is in between; " if pooled else ""
    advice = "add listen_url=postgresql://… to the URL, one that leads to the server itself"
    try:
        ear = engine.store.listen("doctor")
    except OSError as off:
        yield ok("wake-ups", f"{between}{off}")
        return
    try:
        # Rung once as soon as it listens. Through a pooler it believes that it does.
        if ear.wait(HEARD_S):
            engine.store.ring("doctor")
            if ear.wait(HEARD_S):
                yield ok("wake-ups", f"{between}heard")
                return
    finally:
        ear.close()
    poll_s = engine.settings()["max_poll_seconds"]
    yield warn("wake-ups", f"{between}not heard: idle pools find new jobs after up to {poll_s:g} s", advice)


def _vacuum(engine: Engine, settings: dict[str, str]) -> Iterator[Finding]:
    ((live, dead, is_left_out),) = engine.store.ask("dead_rows")
    text = f"{dead:,} dead rows beside {live:,} in the table of jobs"
    off = [name for name in ("autovacuum", "track_counts") if settings[name] == "off"]
    if off or is_left_out:
        why = f"{' and '.join(off)} off" if off else "autovacuum is disabled for the table of jobs"
        advice = "turn it on; until then run `covey db vacuum` every few minutes"
        yield bad("vacuum", f"{why}: claims become ever slower ({text})", advice)
    elif dead > MANY_DEAD and dead > live:
        yield warn(
            "vacuum", f"{text}: claims are slow", "`covey db vacuum`; if that changes nothing, see old transactions"
        )
    else:
        yield ok("vacuum", text)
    if old := engine.store.ask("old_transactions", longer_than_s=OLD_S):
        who = some([f"{each} for {age_s} s" for each, age_s in old])
        advice = "end them (select pg_terminate_backend(PID), rollback prepared): no dead row goes while they last"
        yield warn("old transactions", who, advice)
    else:
        yield ok("old transactions", f"none older than {OLD_S} s")
