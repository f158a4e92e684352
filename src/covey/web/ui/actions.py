"""What forms ask for: shown before it is done, done through the same endpoints that everybody has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, Struct

from ...core import bodies
from ...core.objects import fields_of
from ...core.view import Change, JobView
from ...errors import CoveyError, InvalidInput, NotFound
from . import again
from .html import Content, a, button, code, div, form, li, p, strong, ul
from .jobs import matching
from .page import Shown
from .parts import badge, count, empty, grid, hidden, job_link, note, title_of
from .visit import Visit

MOST_NAMED = 20
PAGE = 500  # jobs that are changed in one transaction
MOST = 10_000  # that one click changes; the rest is asked for again


class Done(Struct, frozen=True):
    """Where to go and what to say there; or what is shown at once."""

    to: tuple[str | int, ...] = ()
    said: str = ""
    shown: Shown | None = None


class Action(Struct, frozen=True, kw_only=True):
    needs: str  # the endpoint that does it
    apply: Callable[[Visit], Done]
    preview: Callable[[Visit], Shown]


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _chosen(visit: Visit) -> list[str]:
    return list(dict.fromkeys(ref for ref in visit.query.get("ref", "").split(",") if ref))


def _is_all(visit: Visit) -> bool:
    return bool(visit.query.get("all"))


PAST = {"cancel": "cancelled", "retry": "to run again", "remove": "removed"}
FIT = {
    "cancel": ("pending", "processing", "scheduled", "failed", "waiting", "blocked"),
    "retry": ("dead", "failed", "cancelled"),
    "remove": ("completed", "dead", "cancelled"),
}


def _preview(verb: str) -> Callable[[Visit], Shown]:
    def preview(visit: Visit) -> Shown:
        if not _is_all(visit) and not _chosen(visit):
            return Shown(
                f"{verb.capitalize()}: nothing is chosen", empty("Tick some jobs first. ", _back(visit)), is_live=False
            )
        found, is_more = _found(visit, verb, MOST if _is_all(visit) else None)
        if not found:
            return Shown(
                f"{verb.capitalize()}: nothing to do",
                empty("None of them is in a state for that. ", _back(visit)),
                is_live=False,
            )
        running = sum(job.state == "processing" for job in found)
        many = count(len(found), "job") + (" and more" if is_more else "")
        said: list[Content] = [strong(many), f" will be {PAST[verb]}"]
        if verb == "cancel" and running:
            said.append(
                [
                    ": ",
                    strong(f"{running:,} of them {'is' if running == 1 else 'are'} running"),
                    ", and will be stopped",
                ]
            )
        if verb == "remove":
            said.append(", with all that is known of them. This cannot be undone")
        rows = (
            (f"job-{job.id}", [job_link(visit, job.id), badge(job.state), title_of(job)]) for job in found[:MOST_NAMED]
        )
        table = grid((("job", "ref"), ("state", ""), ("what", "grow")), rows, label="jobs that it concerns")
        rest = p(f"and {len(found) - MOST_NAMED:,} more", class_="dim") if len(found) > MOST_NAMED else None
        fields = {name: value for name, value in visit.query.items() if name not in ("csrf", "all")}
        apply = form(
            hidden(csrf=visit.visitor.csrf, all="yes" if _is_all(visit) else "", **fields),
            a("no, go back", href=_home(visit), class_="button", data_close=True, autofocus=True),
            button(f"{verb} {many}", type="submit", class_="button " + ("main" if verb == "retry" else "bad")),
            method="post",
            action=visit.url("do", verb),
            class_="row decide",
        )
        return Shown(f"{verb.capitalize()} {many}?", [p(said, "."), apply, table, rest], is_live=False)

    return preview


def _found(visit: Visit, verb: str, most: int | None) -> tuple[list[JobView], bool]:
    """The jobs that it concerns, and whether there are more."""
    if not _is_all(visit):
        refs = _chosen(visit)
        return [job for job in (visit.ask("job", ref=ref) for ref in refs[:1000]) if job.state in FIT[verb]], False
    found: list[JobView] = []
    query = dict(visit.query)
    if not query.get("state"):
        query["state"] = ",".join(FIT[verb])
    before = None
    while most is None or len(found) < most:
        page = matching(visit, query, limit=PAGE, before=before)
        found += [job for job in page.jobs if job.state in FIT[verb]]
        before = page.next
        if before is None:
            return found, False
    return found, True


def _home(visit: Visit) -> str:
    refs = _chosen(visit)
    if len(refs) == 1 and not _is_all(visit):
        return visit.url("jobs", refs[0])
    return visit.url("jobs", **{name: visit.query.get(name) for name in ("state", "queue", "task", "batch", "q")})


def _back(visit: Visit) -> Content:
    return a("Back to the jobs", href=_home(visit), data_close=True)


def _change(verb: str, body: Callable[[list[bodies.Ref]], Any]) -> Callable[[Visit], Done]:
    def apply(visit: Visit) -> Done:
        refs = _chosen(visit)
        if len(refs) == 1 and not _is_all(visit):
            (change,) = visit.ask(verb, body=body([refs[0]]))
            to = ("jobs",) if verb == "remove" else ("jobs", change.id)
            return Done(to, _sentence(verb, change))
        found, is_more = _found(visit, verb, MOST)
        done, refused = _each(visit, verb, body, [job.id for job in found])
        return Done(shown=_result(visit, verb, done, refused, is_more))

    return apply


def _each(
    visit: Visit, verb: str, body: Callable[[list[bodies.Ref]], Any], ids: Sequence[int]
) -> tuple[list[Change], list[tuple[int, str]]]:
    """Page by page; where one of a page is refused, its jobs one by one: the others are not held up."""
    done: list[Change] = []
    refused: list[tuple[int, str]] = []
    for start in range(0, len(ids), PAGE):
        some = list(ids[start : start + PAGE])
        try:
            done += visit.ask(verb, body=body(list(some)))
        except CoveyError:
            for id in some:
                try:
                    done += visit.ask(verb, body=body([id]))
                except CoveyError as error:
                    refused.append((id, str(error)))
    return done, refused


def _sentence(verb: str, change: Change) -> str:
    if verb == "remove":
        return f"Job {change.id} is removed."
    if change.state == change.was:
        return f"Job {change.id} was {change.was} already."
    return f"Job {change.id} was {change.was} and is {change.state} now."


def _result(
    visit: Visit, verb: str, done: Sequence[Change], refused: Sequence[tuple[int, str]], is_more: bool
) -> Shown:
    rows = (
        (
            f"job-{each.id}",
            [each.id if verb == "remove" else job_link(visit, each.id), badge(each.was), badge(each.state)],
        )
        for each in done[:1000]
    )
    return Shown(
        f"{count(len(done), 'job')} {PAST[verb]}",
        [
            note("warn", f"These were {MOST:,}; there are more. Go back and ask again.") if is_more else None,
            note(
                "bad",
                count(len(refused), "job"),
                " could not be changed: ",
                ul(li(job_link(visit, id), " ", why) for id, why in refused[:MOST_NAMED]),
            )
            if refused
            else None,
            p(_back(visit)),
            grid((("job", "ref"), ("was", ""), ("is", "")), rows, label="what became of them") if done else None,
        ],
        is_live=False,
    )


def _again(visit: Visit) -> Done:
    (change,) = visit.ask("retry", body=bodies.RetryAsk([_one(visit)], again=True))
    new = change.new_id or change.id
    return Done(("jobs", new), f"Job {new} does the same as job {change.id}.")


def _one(visit: Visit) -> str:
    refs = _chosen(visit)
    if len(refs) != 1:
        raise InvalidInput("one job is meant here; name it")
    return refs[0]


def _enqueue(visit: Visit) -> Done:
    fields = fields_of(visit.query.get("object", ""), _known())
    if like := visit.query.get("like"):
        fields = again.uncovered(fields, visit.ask("job", ref=like))
    (made,) = visit.ask("enqueue_jobs", body=bodies.EnqueueJobs([fields]))
    return Done(("jobs", made.id), f"Job {made.id} is enqueued.")


def _known() -> Sequence[str]:
    from ...core.objects import FIELDS

    return FIELDS


# ── queues, pools ───────────────────────────────────────────────────────────────────────────────────────────────────


def _queue(visit: Visit) -> str:
    name = visit.query.get("queue", "")
    if not name:
        raise InvalidInput("which queue? the form names none")
    return name


def _pause(visit: Visit) -> Done:
    visit.ask("pause", body=bodies.Pause(), queue=_queue(visit))
    return Done(("queues", _queue(visit)), f"Nothing more of {_queue(visit)} is started.")


def _resume(visit: Visit) -> Done:
    visit.ask("resume", queue=_queue(visit))
    return Done(("queues", _queue(visit)), f"{_queue(visit)} goes on.")


def _set_queue(visit: Visit) -> Done:
    text = visit.query.get("concurrency", "").strip()
    if text and not (text.isdecimal() and 1 <= int(text) <= 1_000_000):
        raise InvalidInput(f"at most {text!r} at a time: a number from 1 to 1,000,000, or nothing for no limit")
    rules = bodies.QueueRules(
        serial=bool(visit.query.get("serial")), concurrency=int(text) if text else None, max_depth=UNSET
    )
    visit.ask("set_queue", body=rules, queue=_queue(visit))
    return Done(("queues", _queue(visit)), f"The rules of {_queue(visit)} are set.")


def _schedule(verb: str, body: Any, said: str) -> Callable[[Visit], Done]:
    def apply(visit: Visit) -> Done:
        name = visit.query.get("schedule", "")
        visit.ask(verb, body=body, name=name)
        return Done(("schedules",), said.format(name))

    return apply


def _stop_pools(visit: Visit) -> Done:
    visit.ask("stop_pools", body=bodies.StopPools([_pool(visit)]))
    return Done(("workers",), f"Pool {_pool(visit)} finishes what it runs, and leaves.")


def _pool(visit: Visit) -> int:
    text = visit.query.get("pool", "")
    if not text.isdecimal() or len(text) > 18:
        raise InvalidInput("which pool? the form names none")
    return int(text)


def _plain(title: str, said: Callable[[Visit], str], verb: str, word: str) -> Callable[[Visit], Shown]:
    """Asks before something without a list."""

    def preview(visit: Visit) -> Shown:
        fields = {name: value for name, value in visit.query.items() if name != "csrf"}
        decide = form(
            hidden(csrf=visit.visitor.csrf, **fields),
            a("no, go back", href=visit.url(), class_="button", data_close=True, autofocus=True),
            button(word, type="submit", class_="button bad"),
            method="post",
            action=visit.url("do", verb),
            class_="row decide",
        )
        return Shown(title, [p(said(visit)), decide], is_live=False)

    return preview


def _only_post(visit: Visit) -> Shown:
    return Shown(
        "Nothing is done yet",
        div(
            p("This is done by the button of its page, not by its address. "),
            p(a("To the overview", href=visit.url())),
            code("POST"),
        ),
        is_live=False,
    )


ACTIONS = {
    "cancel": Action(
        needs="cancel", apply=_change("cancel", lambda refs: bodies.Refs(refs)), preview=_preview("cancel")
    ),
    "retry": Action(
        needs="retry", apply=_change("retry", lambda refs: bodies.RetryAsk(refs)), preview=_preview("retry")
    ),
    "remove": Action(
        needs="remove", apply=_change("remove", lambda refs: bodies.RemoveAsk(refs)), preview=_preview("remove")
    ),
    "again": Action(needs="retry", apply=_again, preview=_only_post),
    "enqueue": Action(needs="enqueue_jobs", apply=_enqueue, preview=_only_post),
    "pause": Action(needs="pause", apply=_pause, preview=_only_post),
    "resume": Action(needs="resume", apply=_resume, preview=_only_post),
    "set_queue": Action(needs="set_queue", apply=_set_queue, preview=_only_post),
    "run_schedule": Action(
        needs="run_schedule",
        apply=_schedule("run_schedule", bodies.RunSchedule(), "{} has a job now."),
        preview=_only_post,
    ),
    "pause_schedule": Action(
        needs="pause_schedule",
        apply=_schedule("pause_schedule", bodies.PauseSchedule(), "Nothing more of {} is fired."),
        preview=_only_post,
    ),
    "resume_schedule": Action(
        needs="resume_schedule",
        apply=_schedule("resume_schedule", bodies.ResumeSchedule(), "{} goes on."),
        preview=_only_post,
    ),
    "stop_pools": Action(
        needs="stop_pools",
        apply=_stop_pools,
        preview=_plain(
            "Stop this pool?",
            lambda visit: f"Pool {_pool(visit)} finishes what it runs, takes nothing more and leaves.",
            "stop_pools",
            "stop the pool",
        ),
    ),
}


def find(name: str) -> Action:
    if name not in ACTIONS:
        raise NotFound("no such action; a page has a button for each that there is")
    return ACTIONS[name]
