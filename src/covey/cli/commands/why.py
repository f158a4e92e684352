"""covey why: why a job is where it is, and what would move it."""

from __future__ import annotations

from ..open_queue import open_queue
from ..options import Db, Json, Ref
from ..pasting import pasteable
from ..printing import answer, as_json, one_line


def why(job: Ref, json: Json = False, db: Db = None) -> None:
    """Say why a job is in its state, and what to do about it."""
    engine = open_queue(db)
    found = engine.why(job)
    found.advice = [pasteable(each, db) for each in found.advice]
    if json:
        as_json(found)
        return
    answer(f"job {found.id} is {found.state}: {one_line(found.reason)}")
    for advice in found.advice:
        answer(f"  try: {one_line(advice)}")
    for event in found.facts.get("events") or ():
        answer(f"  seen: {one_line(event)}")
