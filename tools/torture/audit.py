"""What a trigger saw of every change of a job, and what may follow what: the rules are written down here again.

So the rules themselves are checked, and no statement can change a job unseen. Nobody retries, edits or removes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from covey.engine.engine import Engine

SEEN = "state, fence, attempts, interruptions, phase"
AUDIT = {
    "sqlite": f"""
create table audit (n integer primary key, job integer, was text, {SEEN});
create trigger audit_change after update on jobs
when old.state <> new.state or old.fence <> new.fence or old.attempts <> new.attempts
  or old.finished_at is not new.finished_at
begin
    insert into audit (job, was, {SEEN})
    values (new.id, old.state, {", ".join(f"new.{name}" for name in SEEN.split(", "))});
end;
create trigger audit_removal after delete on jobs
begin
    insert into audit (job, was, {SEEN}) values (old.id, old.state, 'removed', old.fence, 0, 0, old.phase);
end;
""",
    "postgres": f"""
create table {{audit}} (n bigserial primary key, job bigint, was text, state text, fence bigint, attempts bigint,
                        interruptions bigint, phase text);
create function {{audit_change}}() returns trigger language plpgsql as $$ begin
    insert into {{audit}} (job, was, {SEEN})
    values (new.id, old.state, {", ".join(f"new.{name}" for name in SEEN.split(", "))});
    return null;
end $$;
create function {{audit_removal}}() returns trigger language plpgsql as $$ begin
    insert into {{audit}} (job, was, {SEEN}) values (old.id, old.state, 'removed', old.fence, 0, 0, old.phase);
    return null;
end $$;
create trigger audit_change after update on {{jobs}} for each row
when (old.state <> new.state or old.fence <> new.fence or old.attempts <> new.attempts
      or old.finished_at is distinct from new.finished_at)
execute function {{audit_change}}();
create trigger audit_removal after delete on {{jobs}} for each row execute function {{audit_removal}}();
""",
}
MAY_FOLLOW = {
    "blocked": {"pending", "cancelled"},
    "pending": {"processing", "cancelled"},
    "processing": {"pending", "waiting", "completed", "failed", "dead", "cancelled"},
    "waiting": {"pending", "completed", "dead", "cancelled"},
    "failed": {"pending", "cancelled"},
    "cancelled": {"cancelled"},
}


class Step(Struct):
    """One change of a job: what it was and what it is now."""

    n: int
    job: int
    was: str
    state: str
    fence: int
    attempts: int
    interruptions: int
    phase: str

    @property
    def is_claim(self) -> bool:
        return self.state == "processing"

    @property
    def is_charged(self) -> bool:
        """Whether a run ended with this step and its attempt stays counted."""
        return self.was == "processing" and self.state in ("completed", "waiting", "failed", "dead")


def install(engine: Engine) -> None:
    with engine.store.transaction():
        engine.store.dialect.script(AUDIT[engine.store.dialect.name])


def steps(engine: Engine) -> list[Step]:
    return [Step(*row) for row in engine.store.raw("select n, job, was, " + SEEN + " from {audit} order by n")]


def wrong_steps(seen: Iterable[Step]) -> Iterator[str]:
    """Steps that no job may take; fences and attempts that do not go with them."""
    last: dict[int, Step] = {}
    for step in seen:
        before = last.get(step.job) or Step(0, step.job, "", step.was, 0, 0, 0, "run")
        yield from (f"job {step.job}: {problem}" for problem in _wrong(before, step))
        last[step.job] = step


def _wrong(before: Step, step: Step) -> Iterator[str]:
    if step.was != before.state:
        yield f"was {before.state}, then {step.was}, and nobody changed it"
    if step.state not in MAY_FOLLOW.get(step.was, ()):
        yield f"went from {step.was} to {step.state}"
    raised = step.fence - before.fence
    if raised < 0 or raised > 1:
        yield f"{step.state} under fence {step.fence} after {before.fence}"
    if step.is_claim and not raised:
        yield f"claimed again under fence {step.fence}"
    if step.state == "cancelled" and step.was != "cancelled" and not raised:
        yield f"cancelled, and the fence is still {step.fence}"


def wrong_counts(seen: Iterable[Step]) -> Iterator[str]:
    """Attempts that were not counted when the run began, or were charged or given back when they should not."""
    last: dict[int, Step] = {}
    for step in seen:
        before = last.get(step.job) or Step(0, step.job, "", step.was, 0, 0, 0, "run")
        counted = step.attempts - before.attempts
        if step.is_claim:
            due = 1
        elif step.was == "processing" and step.state == "pending":
            due = -before.attempts if step.phase != before.phase else -1
        else:
            due = -before.attempts if step.phase != before.phase else 0
        if counted != due:
            yield f"job {step.job}: {counted:+d} attempts from {step.was} to {step.state}, {due:+d} were due"
        if step.interruptions > before.interruptions and step.fence == before.fence:
            yield f"job {step.job}: interrupted under fence {step.fence}, which still holds"
        last[step.job] = step
