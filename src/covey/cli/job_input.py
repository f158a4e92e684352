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
    command: str | None = None,
    json: bool = False,
    db: str | None = None,
    caching: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """The jobs are on disk and their ids on stdout, or there is an error and nothing is."""
    refuse_nameless_inside_job(db)
    chosen = job_options(options)
    if words == ["-"] and argv is None and file is None:
        file, words = "-", []
    refuse_mixture(words, argv, file, chosen.get("key"), command)
    engine = open_queue(db, create=True)
    if file is not None:
        done = _from_file(engine, file, chosen, caching)
    elif command is not None:
        from ..core.specs import shell_spec

        done = engine.enqueue(_cached([shell_spec(command, **chosen)], caching))
    else:
        done = engine.enqueue(_cached(from_words(words, argv, chosen), caching))
    if json:
        as_json([{"id": job.id, "existing": job.existing} for job in done])
    elif done:
        answer("\n".join(str(job.id) for job in done))


def job_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the command line, each by its name, in the words of a Spec."""
    from ..core.options import NAMES

    words: dict[str, Any] = {}
    for name, value in meant_here(given).items():
        option = NAMES[name]
        words[option.field] = (option.form.words or option.form.json)(value, option.flags[0])
    return words


def meant_here(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with what only we know, who are where the caller is: the directory and the environment."""
    cwd, env = given.get("cwd"), given.get("env")
    here: dict[str, Any] = {"cwd": os.path.abspath(cwd) if cwd else os.getcwd()}
    if env:
        here["env"] = dict(variable(text) for text in env)
    return {**given, **here}


def is_whole(word: str) -> bool:
    """Whether a first word is all of the job: a line for the shell, a JSON object, stdin. Else it names a program."""
    return word == "-" or word.lstrip().startswith("{") or len(word.split()) > 1


def say_options_behind(words: list[str]) -> None:
    """An option of ours that stands behind the command's first word, and so belongs to the command, is named."""
    from ..core.options import OPTIONS

    ours = {flag for option in OPTIONS if option.verbs for flag in option.flags if flag.startswith("--")}
    found = [name for name in (word.partition("=")[0] for word in words[1:]) if name in ours | {"--db", "--json"}]
    if found:
        from .printing import note

        note(f"covey: {found[0]} is the command's here, behind {words[0]!r}; options of covey's own go before it")


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


def refuse_mixture(
    words: list[str], argv: list[str] | None, file: str | None, key: str | None, command: str | None = None
) -> None:
    """InvalidInput unless there is exactly one way in which the job is given."""
    if argv is not None and not argv:
        raise InvalidInput("nothing follows --; name the program to run")
    ways = (("words", words), ("-- and words", argv), ("--file", file is not None), ("--command", command is not None))
    given = [what for what, there in ways if there]
    if not given:
        raise InvalidInput("nothing to queue; pass a command, as in: covey enqueue 'echo hello'")
    if len(given) > 1:
        raise InvalidInput(f"{' together with '.join(given)}: give the job in one way only")
    if file is not None and key is not None:
        raise InvalidInput('--key names one job, --file holds many; write {"id": …, "command": …} lines instead')


def from_words(words: list[str], argv: list[str] | None, options: Mapping[str, Any]) -> list[Spec]:
    """The job in the words of a command line."""
    if argv is None and words[0].lstrip().startswith("{"):
        from .specs import from_object

        if len(words) > 1 and options.get("key") is not None:
            raise InvalidInput("--key names one job, and here are several; use their id fields")
        return [from_object(word, defaults=options) for word in words]
    from ..core.specs import shell_spec

    if argv is None and len(words) > 1:
        if len(words[0].split()) > 1 and not os.path.exists(words[0]):
            raise InvalidInput(
                f"{len(words)} commands, {words[0]!r} the first: one `covey enqueue` each, or lines in --file -; "
                "a program whose name has a space goes behind --"
            )
        say_options_behind(words)
    return [shell_spec(argv or (words if len(words) > 1 else words[0]), **options)]


def _cached(specs: list[Spec], caching: dict[str, Any] | None) -> list[Spec]:
    if not caching:
        return specs
    from .caching import cached

    return cached(specs, caching)


def _from_file(engine: Client, file: str, options: Mapping[str, Any], caching: dict[str, Any] | None) -> list[Enqueued]:
    from .specs import from_lines

    numbered = list(from_lines(_lines(file), defaults=options))
    try:
        return engine.enqueue(_cached([spec for _, spec in numbered], caching))
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
