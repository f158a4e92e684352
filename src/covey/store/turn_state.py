"""What a turn must know before anything else: `{turn_state}` of statements.py, by name."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import astuple


class Instants(Struct, frozen=True):
    """When something happens to jobs by itself; None where nothing of that sort is ahead. As `{instants}` has them."""

    due_at: int | None  # a job may run
    deadline_at: int | None  # a tree's time is over
    fire_at: int | None  # a schedule has a tick

    @property
    def next_at(self) -> int | None:
        known = [at for at in astuple(self) if at is not None]
        return min(known) if known else None


class TurnState(Struct, frozen=True):
    """Of one pool; the seal, the rules and the instants are the queue's."""

    turn_no: int  # of the pool's last turn
    stop_requested_at: int | None
    sealed: str | None
    cancels: bool  # whether a job that the pool has is to be stopped
    has_rules: bool  # whether queues have any for claims
    instants: Instants


def turn_state(
    turn_no: int, stop_requested_at: int | None, sealed: str | None, cancels: bool, has_rules: bool, *instants: Any
) -> TurnState:
    """From the columns of `{turn_state}`."""
    return TurnState(turn_no, stop_requested_at, sealed, cancels, has_rules, Instants(*instants))
