"""A job's end as an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.view import JobView

TIMED_OUT = 124


def code_of(view: JobView | None) -> int:
    """0 if it completed, the command's own code if that is why it did not, else 1; a signal as the shell says it."""
    if view is None or view.state == "cancelled":
        return 1
    if view.state == "completed":
        return 0
    code = view.exit_code or 1
    return min(128 - code, 255) if code < 0 else min(code, 255)
