"""Each option of a job, once: its names in Python, in JSON and on the command line, what it may be, where it is kept.

An option without rules of its own is an entry in `OPTIONS`, its type in a TypedDict below, its field in Spec and, if
it is kept, a column. What several options mean together is in specs.py; what one of them means for the insert, in
engine/arrivals.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, TypedDict

import msgspec
from msgspec import Struct

from ..errors import InvalidInput
from . import check
from .model import KINDS, MODES, NEVER, ON_ERROR, IfExists, Kind, Mode, OnError, Spec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)

# ── as Python says them. Absent (or None) means: as configured ──────────────────────────────────────────────────────


class _Any(TypedDict, total=False):
    queue: str | None
    priority: int | None
    max_attempts: int | None
    max_retries: int | None  # the same, under its other name
    timeout: float | timedelta | None
    backoff_base: float | None
    max_backoff: float | timedelta | None
    jitter: bool | None
    batch: str | None
    labels: Mapping[str, str] | None
    on_error: OnError | None  # what a child that did not complete means for the others
    tree_timeout: float | timedelta | None  # how long it and all its descendants may take together


class _OneJob(TypedDict, total=False):
    run_at: datetime | None
    delay: float | timedelta | None
    key: str | None
    unique_key: str | None
    if_exists: IfExists | None


class _Command(TypedDict, total=False):
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    keep_background: bool


class TaskOptions(_Any, total=False):
    """What can be said of a task."""

    mode: Mode | None  # how its children run


class JobOptions(TaskOptions, _OneJob, total=False):
    """What can be said of one job besides."""


class CommandOptions(JobOptions, _Command, total=False):
    """What can be said of a command besides."""


class SpawnedCommandOptions(_Any, _OneJob, _Command, total=False):
    """The same of a command that a task spawns, whose `mode` is said of all children together."""


# ── what their values look like ─────────────────────────────────────────────────────────────────────────────────────


def _as_it_is(value: Any, name: str) -> Any:
    return value


class Form(Struct, frozen=True):
    """Each function takes a value and the name under which it was said, and answers the value as a Spec has it."""

    check: Callable[[Any, str], Any]  # InvalidInput for what cannot be
    python: Callable[[Any, str], Any] = _as_it_is
    json: Callable[[Any, str], Any] = _as_it_is
    word: Any = str  # of the command line: str, int, bool, list[str]
    words: Callable[[Any, str], Any] | None = None  # None: as in JSON
    column: str = "text"
    stored: Callable[[Any], Any] | None = None  # None: as it is
    null: Any = None  # what a JSON null says; None: nothing


def seconds(value: float | timedelta, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name} {value!r}: pass a number of seconds or a timedelta")
    return value


def _path(value: Any, name: str) -> str:
    return value if isinstance(value, str) else os.fspath(value)


def instant(value: datetime, name: str) -> int:
    """Microseconds since the epoch. A time without a zone is refused: it would mean something else on another host."""
    if not isinstance(value, datetime):
        raise InvalidInput(f"{name} {value!r}: pass a datetime with a time zone, or use delay=")
    if value.utcoffset() is None:
        raise InvalidInput(
            f"{name} {value.isoformat()} has no time zone; add one, for example tzinfo=UTC, or use delay="
        )
    if value > LAST:
        raise InvalidInput(f"{name} {value.isoformat()} is after the year 9999 in UTC; choose an earlier time")
    return (value - EPOCH) // timedelta(microseconds=1)


def _duration(value: Any, name: str) -> Any:
    from .times import seconds

    return seconds(value, name) if isinstance(value, str) else value


def _moment(value: Any, name: str) -> int:
    from .times import moment

    return moment(check.is_text(value, name), name)


def timeout(value: Any, name: str = "timeout") -> Any:
    """A number of seconds or a duration; null and `never` are no limit."""
    if value is None or (isinstance(value, str) and value.strip().lower() in (NEVER, "none", "off")):
        return NEVER
    return _duration(value, name)


def attempts(value: Any, name: str) -> int:
    """How often a job may run in all."""
    if type(value) is not int:
        raise InvalidInput(f"{name} {value!r}: a whole number, 1 or more")
    if value == 0:
        raise InvalidInput(f"{name} 0: it counts all runs, so 0 would never run the job; 1 is one run and no retry")
    return value


def _key(value: Any, name: str) -> str:
    return str(value) if type(value) is int else check.is_text(value, name)


def _object(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidInput(f'{name}: an object with strings is needed, as in {{"name": "value"}}')
    return value


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _limit(value: Any) -> Any:
    return None if value == NEVER else value


def _pairs(texts: Any, flag: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if bad := [text for text, (_, given, _) in zip(texts, pairs, strict=True) if not given]:
        raise InvalidInput(f"{flag} {bad[0]!r}: write NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _one_of(words: tuple[str, ...]) -> Form:
    return Form(lambda value, name: check.check_choice(value, name, words))


def _text(most: int) -> Form:
    return Form(lambda value, name: check.check_text(check.is_text(value, name), name, most=most))


def _whole(checked: Callable[[Any, str], Any], read: Callable[[Any, str], Any] = _as_it_is) -> Form:
    return Form(checked, json=read, word=int, column="bigint")


def _time(checked: Callable[[Any, str], Any]) -> Form:
    return Form(checked, seconds, _duration, column="double precision")


QUEUE = Form(check.check_queue)
KEY = Form(check.check_key, json=_key)
FLAG = Form(check.check_flag, word=bool, column="integer", stored=int)
INSTANT = Form(check.check_run_at, instant, _moment, column="bigint")
PATH = Form(lambda value, name: check.check_text(check.refuse_nul(value, name), name, most=4096), _path)
TIMEOUT = Form(check.check_timeout, seconds, timeout, column="double precision", stored=_limit, null=NEVER)
LABELS = Form(check.check_labels, json=_object, word=list[str], words=_pairs, stored=_json_text)
ENV = Form(check.check_env, json=_object, word=list[str])

# ── the options ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Option(Struct, frozen=True, kw_only=True):
    """One option. What it is called by others than Python and JSON is here, and what holds where nothing is said."""

    name: str
    form: Form
    about: str  # its line in the help
    aliases: tuple[str, ...] = ()
    called: str = ""  # its field in a Spec, and its column, where the name alone lacks something
    spec: bool = True  # whether it is a field of a Spec
    kept: bool = True  # whether there is a column that an insert fills with it
    once: bool = False  # it names this one job: a copy of the job does not have it
    asks: bool = False  # something must be looked up or decided before the insert
    commands: bool = False  # for commands only
    json: bool = True
    flags: tuple[str, ...] = ()  # on the command line
    metavar: str | None = None
    verbs: str = ""  # of the command line
    default: Any = None
    setting: str = ""  # that has the default
    setting_of: tuple[Kind, ...] = KINDS  # whose default it is; the others have none

    @property
    def field(self) -> str:
        return self.called or self.name

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.aliases, self.name)


ALL = "enqueue run spawn after"
OPTIONS: tuple[Option, ...] = (
    Option(
        name="queue", form=QUEUE, about="The lane it waits in.",
        flags=("--queue", "-q"), metavar="NAME", verbs=ALL, default="default",
    ),
    Option(
        name="priority", form=_whole(check.check_priority), about="Higher runs first.",
        flags=("--priority", "-p"), verbs=ALL, default=0,
    ),
    Option(
        name="key", aliases=("id",), form=KEY, about="Your own unique name for the job.",
        flags=("--key",), verbs="enqueue run spawn", once=True, asks=True,
    ),
    Option(
        name="if_exists", form=_one_of(("error", "return")), about="When the key is taken.",
        flags=("--if-exists",), metavar="error|return", verbs="enqueue", default="error", kept=False,
    ),
    Option(
        name="unique_key", form=KEY, about="One waiting job for all that ask for this name.",
        flags=("--unique-key",), metavar="KEY", verbs="after", once=True, asks=True,
    ),
    Option(
        name="run_at", form=INSTANT, about="Not before; RFC 3339 with a zone.",
        flags=("--run-at",), metavar="TIME", verbs="enqueue", kept=False, asks=True,
    ),
    Option(
        name="delay", called="delay_s", form=_time(check.check_delay), about="Not before 90s, 2h, 1d from now.",
        flags=("--delay",), metavar="TIME", verbs="enqueue", kept=False, asks=True,
    ),
    Option(
        name="max_attempts", aliases=("max_retries",), form=_whole(check.check_attempts, attempts),
        about="Runs in all, the first included.",
        flags=("--max-attempts", "--max-retries"), verbs=ALL, setting="max_attempts",
    ),
    Option(
        name="timeout", called="timeout_s", form=TIMEOUT, about="Limit of one run: 90s, 2h, never.",
        flags=("--timeout",), metavar="TIME", verbs="enqueue spawn after",
        setting="job_timeout_seconds", setting_of=("command",),
    ),
    Option(
        name="backoff_base", form=Form(check.check_backoff_base, column="double precision"),
        about="After failed run n, wait base ** n seconds.", json=False, setting="backoff_base",
    ),
    Option(
        name="max_backoff", called="backoff_cap_s", form=_time(check.check_backoff_cap),
        about="And never longer than this.", json=False, setting="max_backoff_seconds",
    ),
    Option(
        name="jitter", form=FLAG, about="Spread each back-off evenly over (0, delay].", json=False,
        setting="backoff_jitter",
    ),
    Option(
        name="cwd", form=PATH, about="Where it runs; else here.",
        flags=("--cwd",), metavar="DIR", verbs=ALL, commands=True,
    ),
    Option(
        name="env", form=ENV, kept=False, spec=False, about="Give it a variable.",
        flags=("--env", "-e"), metavar="NAME[=VALUE]", verbs=ALL, commands=True,
    ),
    Option(
        name="batch", form=_text(200), about="Name of a set of jobs.",
        flags=("--batch",), metavar="NAME", verbs="enqueue",
    ),
    Option(
        name="labels", form=LABELS, about="Note something on it.",
        flags=("--label",), metavar="NAME=VALUE", verbs="enqueue run",
    ),
    Option(
        name="keep_background", form=FLAG, about="Leave what it starts running.",
        flags=("--keep-background",), verbs="enqueue", default=False, commands=True,
    ),
    Option(
        name="on_error", form=_one_of(ON_ERROR), about="When a child fails: what becomes of the others.",
        flags=("--on-error",), metavar="wait|cancel|collect", verbs="enqueue", default="wait",
    ),
    Option(name="mode", called="child_mode", form=_one_of(MODES), about="How its children run: concurrent or serial."),
    Option(
        name="tree_timeout", called="tree_timeout_s", form=_time(check.check_tree_timeout),
        about="Limit of the job and all its children together.",
        flags=("--tree-timeout",), metavar="TIME", verbs="enqueue",
    ),
)  # fmt: skip

# ── what others make of them ────────────────────────────────────────────────────────────────────────────────────────

NAMES = {name: option for option in OPTIONS for name in option.names}
FIELDS = {option.field: option for option in OPTIONS if option.spec}
KEPT = tuple(option for option in OPTIONS if option.kept)
COLUMNS = tuple(option.field for option in KEPT)
COPIED = tuple(option.field for option in KEPT if not option.once)

_said = attrgetter(*FIELDS)
_NOTHING = (None,) * len(FIELDS)
_CHECKS = tuple((option.form.check, option.name) for option in FIELDS.values())
_asked = attrgetter(*(option.field for option in FIELDS.values() if option.asks))

Defaults = Mapping[Kind, tuple[Any, ...]]  # for each kind of job a value for each column


def task_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a task, in the words of a Spec; InvalidInput for an option that a task does not have."""
    return from_python(given, TaskOptions.__annotations__)


def job_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a job, in the words of a Spec; InvalidInput for an option that a job does not have."""
    return from_python(given, JobOptions.__annotations__)


def command_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a command, in the words of a Spec; InvalidInput for an option that a command does not have."""
    return from_python(given, CommandOptions.__annotations__)


def from_python(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidInput(f"no option {name!r}; known: {', '.join(known)}")
        if value is None:
            continue
        option = NAMES[name]
        said = option.form.python(value, name)
        if option.field in words and words[option.field] != said:  # only max_attempts has two names
            raise InvalidInput(f"{' and '.join(option.names[::-1])} are the same thing; give one of them")
        words[option.field] = said
    return words


def check_options(spec: Spec) -> None:
    """InvalidInput if something that was said cannot be."""
    if (said := _said(spec)) == _NOTHING:
        return
    for value, (check_value, name) in zip(said, _CHECKS, strict=True):
        if value is not None:
            check_value(value, name)


def asks(spec: Spec) -> bool:
    """Whether something about it must be looked up or decided before it is stored."""
    return any(value is not None for value in _asked(spec))


def defaults(settings: Mapping[str, Any]) -> Defaults:
    """What holds where nothing is said."""
    return {kind: tuple(_default(option, settings, kind) for option in KEPT) for kind in KINDS}


def _default(option: Option, settings: Mapping[str, Any], kind: Kind) -> Any:
    value = option.default
    if option.setting:
        value = settings[option.setting] if kind in option.setting_of else None
    return value if value is None or option.form.stored is None else option.form.stored(value)


def _row() -> Callable[..., tuple[Any, ...]]:
    """A function of a Spec and its defaults: a value for each of `COLUMNS`, as it is stored.

    It is written out, column by column, because it runs for every job: a loop over the options takes 3.5 times as long
    (1.36 µs, so: 0.39 µs), a tenth of all that a job among a hundred costs.
    """
    taken, values = ["spec"], []
    for option in KEPT:
        said = f"{option.field}_stored(said)" if option.form.stored else "said"
        values.append(f"{option.field} if (said := spec.{option.field}) is None else {said}")
        taken.append(option.field)
    stored = {f"{option.field}_stored": option.form.stored for option in KEPT if option.form.stored}
    made: Callable[..., tuple[Any, ...]] = eval(f"lambda {', '.join(taken)}: ({', '.join(values)})", stored)
    return made


row = _row()
