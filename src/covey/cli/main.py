"""Where `covey` begins."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, NoReturn

from .exit_codes import end, exit_code_of
from .fast_path import understood, understood_start
from .open_queue import close_queues


def main() -> NoReturn:
    """Runs the verb in sys.argv and ends the process with its exit code."""
    # Importing makes many objects and little garbage; `load` switches the collector on again.
    gc.disable()
    _open_streams()
    args = sys.argv[1:] or ["--help"]
    try:
        code = _run(args)
    except BaseException as error:
        code = exit_code_of(error, args)
    with suppress(Exception):  # what had to be on disk is; a failure to tidy up changes no answer
        close_queues()
    end(code if isinstance(code, int) else 0)


def _open_streams() -> None:
    """Anything can be printed: what the terminal's encoding lacks is shown as an escape. A closed stdin is empty."""
    if sys.stdin is None:  # closed by the caller
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(args: list[str]) -> Any:
    if "_COVEY_COMPLETE" not in os.environ and (plain := understood(args)) is not None:
        from .job_input import submit

        words, argv, options = plain
        return submit(words, argv, **options)
    if "_COVEY_COMPLETE" not in os.environ and (start := understood_start(args)) is not None:
        from .worker_options import start_pool

        gc.enable()
        return start_pool(**start)
    from .parser import root

    return root().main(args=args, prog_name="covey", standalone_mode=False)
