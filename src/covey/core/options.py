"""Each option of a job, once: its names in Python, in JSON and on the command line, what it may be, where it is kept.

An option without rules of its own is an entry in `OPTIONS`, its type in a TypedDict below, its field in Spec and, if
it is kept, a column. What several options mean together is in specs.py; what one of them means for the insert, in
engine/arrivals.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ..errors import InvalidInput
from . import check, forms
from .model import KINDS, MODES, ON_ERROR, Kind, Spec

if TYPE_CHECKING:
    import os
    from datetime import datetime, timedelta
    from typing import TypedDict

    from .model import IfExists, Mode, OnError

# ── as Python says them. Absent (or None) means: as configured ──────────────────────────────────────────────────────

if TYPE_CHECKING:  # nobody asks for them when the program runs, and 30 types cost 3 % of an `enqueue`

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


# ── the options ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Option(Struct, frozen=True, kw_only=True):
    """One option. What it is called by others than Python and JSON is here, and what holds where nothing is said."""

    name: str
    form: forms.Form
    about: str  # its line in the help
    aliases: tuple[str, ...] = ()
    called: str = ""  # its field in a Spec, and its column, where the name alone lacks something
    spec: bool = True  # whether it is a field of a Spec
    kept: bool = True  # whether there is a column that an insert fills with it
    once: bool = False  # it names this one job: a copy of the job does not have it
    asks: bool = False  # something must be looked up or decided before the insert
    of: Literal["task", "job", "command"] = "task"  # what it can be said of: of a task, of one job, of a command only
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
        name="queue", form=forms.QUEUE, about="The lane it waits in.",
        flags=("--queue", "-q"), metavar="NAME", verbs=ALL, default="default",
    ),
    Option(
        name="priority", form=forms.PRIORITY, about="Higher runs first.",
        flags=("--priority", "-p"), verbs=ALL, default=0,
    ),
    Option(
        name="key", aliases=("id",), form=forms.KEY, about="Your own unique name for the job.",
        flags=("--key", "--id"), verbs="enqueue run spawn", once=True, asks=True, of="job",
    ),
    Option(
        name="if_exists", form=forms.one_of(("error", "return")), about="When the key is taken.",
        flags=("--if-exists",), metavar="error|return", verbs="enqueue", default="error", kept=False, of="job",
    ),
    Option(
        name="unique_key", form=forms.KEY, about="One waiting job for all that ask for this name.",
        flags=("--unique-key",), metavar="KEY", verbs="after", once=True, asks=True, of="job",
    ),
    Option(
        name="run_at", form=forms.INSTANT, about="Not before; RFC 3339 with a zone.",
        flags=("--run-at",), metavar="TIME", verbs="enqueue", kept=False, asks=True, of="job",
    ),
    Option(
        name="delay", called="delay_s", form=forms.DELAY, about="Not before 90s, 2h, 1d from now.",
        flags=("--delay",), metavar="TIME", verbs="enqueue", kept=False, asks=True, of="job",
    ),
    Option(
        name="max_attempts", aliases=("max_retries",), form=forms.ATTEMPTS,
        about="Runs in all, the first included.",
        flags=("--max-attempts", "--max-retries", "--retries"), verbs=ALL, setting="max_attempts",
    ),
    Option(
        name="timeout", called="timeout_s", form=forms.TIMEOUT, about="Limit of one run: 90s, 2h, never.",
        flags=("--timeout",), metavar="TIME", verbs="enqueue spawn after",
        setting="job_timeout_seconds", setting_of=("command",),
    ),
    Option(
        name="backoff_base", form=forms.BASE,
        about="After failed run n, wait base ** n seconds.", json=False, setting="backoff_base",
    ),
    Option(
        name="max_backoff", called="backoff_cap_s", form=forms.CAP,
        about="And never longer than this.", json=False, setting="max_backoff_seconds",
    ),
    Option(
        name="jitter", form=forms.FLAG, about="Spread each back-off evenly over (0, delay].", json=False,
        setting="backoff_jitter",
    ),
    Option(
        name="cwd", form=forms.PATH, about="Where it runs; else here.",
        flags=("--cwd",), metavar="DIR", verbs=ALL, of="command",
    ),
    Option(
        name="env", form=forms.ENV, kept=False, spec=False, about="Give it a variable.",
        flags=("--env", "-e"), metavar="NAME[=VALUE]", verbs=ALL, of="command",
    ),
    Option(
        name="batch", form=forms.text(200), about="Name of a set of jobs.",
        flags=("--batch",), metavar="NAME", verbs="enqueue",
    ),
    Option(
        name="labels", form=forms.LABELS, about="Note something on it.",
        flags=("--label",), metavar="NAME=VALUE", verbs="enqueue run",
    ),
    Option(
        name="keep_background", form=forms.FLAG, about="Leave what it starts running.",
        flags=("--keep-background",), verbs="enqueue", default=False, of="command",
    ),
    Option(
        name="on_error", form=forms.one_of(ON_ERROR), about="When a child fails: what becomes of the others.",
        flags=("--on-error",), metavar="wait|cancel|collect", verbs="enqueue", default="wait",
    ),
    Option(
        name="mode", called="child_mode", form=forms.one_of(MODES), about="How its children run: concurrent or serial."
    ),
    Option(
        name="tree_timeout", called="tree_timeout_s", form=forms.time(check.check_tree_timeout),
        about="Limit of the job and all its children together.",
        flags=("--tree-timeout",), metavar="TIME", verbs="enqueue",
    ),
)  # fmt: skip

# ── what others make of them ────────────────────────────────────────────────────────────────────────────────────────

NAMES = {name: option for option in OPTIONS for name in option.names}
FIELDS = {option.field: option for option in OPTIONS if option.spec}
IN_JSON_ONLY = ("id",)
IN_JSON = tuple(option for option in OPTIONS if option.json)
KEPT = tuple(option for option in OPTIONS if option.kept)
COLUMNS = tuple(option.field for option in KEPT)
COPIED = tuple(option.field for option in KEPT if not option.once)

_said = attrgetter(*FIELDS)
_NOTHING = (None,) * len(FIELDS)
_CHECKS = tuple((option.form.check, option.name) for option in FIELDS.values())
_ASKING = tuple(option.field for option in FIELDS.values() if option.asks)
_asked, _NOTHING_ASKED = attrgetter(*_ASKING), (None,) * len(_ASKING)

Defaults = Mapping[Kind, tuple[Any, ...]]  # for each kind of job a value for each column


def task_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a task, in the words of a Spec; InvalidInput for an option that a task does not have."""
    return _from_python(given, ("task",))


def job_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a job, in the words of a Spec; InvalidInput for an option that a job does not have."""
    return _from_python(given, ("task", "job"))


def command_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a command, in the words of a Spec; InvalidInput for an option that a command does not have."""
    return _from_python(given, ("task", "job", "command"))


def _from_python(given: Mapping[str, Any], of: tuple[str, ...]) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for name, value in given.items():
        option = NAMES.get(name)
        if option is None or option.of not in of or name in IN_JSON_ONLY:
            known = [name for name, option in NAMES.items() if option.of in of and name not in IN_JSON_ONLY]
            raise InvalidInput(f"no option {name!r}; known: {', '.join(known)}")
        if value is None:
            continue
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
    return _asked(spec) != _NOTHING_ASKED


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
