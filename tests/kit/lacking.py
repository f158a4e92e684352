"""What a test needs and this machine has not: such a test is not run, and the run says so at its end."""

from __future__ import annotations

import os
import shutil


class Lacking(Exception):
    """``programs``: those that are missing, if that is the reason; a package manager could help."""

    def __init__(self, what: str, programs: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.programs = programs


def need(*programs: str) -> None:
    """All of these programs are there."""
    lacking = tuple(program for program in programs if shutil.which(program) is None)
    if lacking:
        raise Lacking(f"for lack of {', '.join(lacking)}", lacking)


def need_root(what: str) -> None:
    if os.getuid() != 0:
        raise Lacking(f"{what} needs root")
