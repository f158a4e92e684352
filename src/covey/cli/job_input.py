"""From the words and options of a command line to jobs on disk. No typer here: a plain `enqueue` does without it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..errors import Duplicate, InvalidInput
from .open_queue import open_queue, refuse_nameless_inside_job
from .printing import answer, as_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..core.model import Enqueued, Spec
    from ..core.ports import Client

MANY = 2000  # lines from which on a progress bar is worth its place


def submit(
    words: list[str],
    argv: list[str] | None,
    *,
    file: str | None = None,
    key: str | None = None,
    json: bool = False,
    db: str | None = None,
    **options: Any,
) -> None:
    """The jobs are on disk and their ids on stdout, or there is an error and nothing is."""
    refuse_nameless_inside_job(db)
    chosen = job_options(**options)
    if words == ["-"] and argv is None and file is None:
        file, words = "-", []
    refuse_mixture(words, argv, file, key)
    engine = open_queue(db, create=True)
    if file is not None:
        done = _from_file(engine, file, chosen)
    else:
        done = engine.enqueue(from_words(words, argv, engine.settings(), {**chosen, "key": key}))
    if json:
        as_json([{"id": job.id, "existing": job.existing} for job in done])
    elif done:
        answer("\n".join(str(job.id) for job in done))


def job_options(
    *,
    queue: str = "default",
    priority: int = 0,
    if_exists: str = "error",
    run_at: str | None = None,
    delay: str | None = None,
    max_attempts: int | None = None,
    timeout: str | None = None,
    cwd: str | None = None,
    env: list[str] | None = None,
    batch: str | None = None,
    label: list[str] | None = None,
    keep_background: bool = False,
    on_error: str | None = None,
    tree_timeout: str | None = None,
) -> dict[str, Any]:
    """The options of the command line as a Spec wants them."""
    options: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "if_exists": if_exists,
        "cwd": os.path.abspath(cwd) if cwd else os.getcwd(),
        "batch": batch,
        "keep_background": keep_background,
    }
    if run_at is not None:
        from ..core.times import moment

        options["run_at"] = moment(run_at, "--run-at")
    if delay is not None:
        from ..core.times import seconds

        options["delay_s"] = seconds(delay, "--delay")
    if tree_timeout is not None:
        from ..core.times import seconds

        options["tree_timeout_s"] = seconds(tree_timeout, "--tree-timeout")
    if on_error is not None:
        options["on_error"] = on_error
    if max_attempts is not None:
        from ..core.objects import attempts

        options["max_attempts"] = attempts(max_attempts, "--max-attempts")
    if timeout is not None:
        from ..core.objects import timeout as limit

        options["timeout_s"] = limit(timeout)
    if env:
        options["env"] = dict(variable(text) for text in env)
    if label:
        options["labels"] = dict(_pair(text) for text in label)
    return options


def variable(text: str) -> tuple[str, str]:
    """NAME=VALUE, or NAME with the value that it has here."""
    name, given, value = text.partition("=")
    if not given:
        if name not in os.environ:
            raise InvalidInput(
                f"-e {name}: there is no such variable here; write -e {name}=VALUE "
                "(an option of the command itself goes after --)"
            )
        value = os.environ[name]
    return name, value


def _pair(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not given:
        raise InvalidInput(f"--label {text!r}: write NAME=VALUE")
    return name, value


def refuse_mixture(words: list[str], argv: list[str] | None, file: str | None, key: str | None) -> None:
    """InvalidInput unless there is exactly one way in which the job is given."""
    if argv is not None and not argv:
        raise InvalidInput("nothing follows --; name the program to run")
    given = [what for what, there in (("words", words), ("-- and words", argv), ("--file", file is not None)) if there]
    if not given:
        raise InvalidInput("nothing to queue; pass a command, as in: covey enqueue 'echo hello'")
    if len(given) > 1:
        raise InvalidInput(f"{' together with '.join(given)}: give the job in one way only")
    if file is not None and key is not None:
        raise InvalidInput('--key names one job, --file holds many; write {"id": …, "command": …} lines instead')


def from_words(
    words: list[str], argv: list[str] | None, settings: dict[str, Any], options: dict[str, Any]
) -> list[Spec]:
    """The job in the words of a command line."""
    if argv is None and words[0].lstrip().startswith("{"):
        from .specs import from_object

        if len(words) > 1 and options.get("key") is not None:
            raise InvalidInput("--key names one job, and here are several; use their id fields")
        return [from_object(word, settings=settings, defaults=options) for word in words]
    from ..core.specs import shell_spec

    return [shell_spec(argv or (words if len(words) > 1 else words[0]), settings=settings, **options)]


def _from_file(engine: Client, file: str, options: Mapping[str, Any]) -> list[Enqueued]:
    from .specs import from_lines

    numbered = list(from_lines(_lines(file), settings=engine.settings(), defaults=options))
    try:
        return engine.enqueue([spec for _, spec in numbered])
    except Duplicate as error:
        line = next((number for number, spec in numbered if f"{spec.key!r} is taken" in str(error)), "?")
        raise Duplicate(f"line {line}: {error}; nothing was queued", error.job_id) from None


def _lines(file: str) -> Iterable[bytes]:
    import sys

    if file == "-":
        lines = sys.stdin.buffer.readlines()
    else:
        try:
            with open(file, "rb") as source:
                lines = source.readlines()
        except OSError as error:
            raise InvalidInput(f"--file {file!r}: {error.strerror}") from None
    if len(lines) < MANY or not sys.stderr.isatty():
        return lines
    from .render import progress

    return progress(lines, "reading")
