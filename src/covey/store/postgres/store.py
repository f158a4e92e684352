"""What travels with a turn in one message: reports as a text, claims as short rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ...core.model import Claim, Report
from ..families import json_text


class Taken(NamedTuple):
    """What came of a turn in one message; without its pool's row, nothing."""

    found: tuple[Any, ...] | None
    lanes: int  # that have work
    ended: int  # jobs that were reported
    claims: list[Claim]


def claims_of(rows: Sequence[tuple[Any, ...]], queue: str, kind: Any) -> list[Claim]:
    """Of one lane, as `claim_lane` answers them."""
    claims = []
    for id, fence, task, attempt, most, timeout_s, key, args, _, more in rows:
        if more is None:
            claim = Claim(id, fence, task, kind, attempt, most, timeout_s, queue, key, None, 0, 0, args, root_id=id)
        else:
            cwd, keeps, breaks, *rest = msgspec.json.decode(more)
            claim = Claim(id, fence, task, kind, attempt, most, timeout_s, queue, key, cwd, keeps, breaks, args, *rest)
        claims.append(claim)
    return claims


def done_text(reports: Sequence[Report]) -> str:
    return json_text([(r.id, r.fence, r.worker, r.started_at, r.exit_code, r.info) for r in reports])
