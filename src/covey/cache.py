"""What a cached run depends on besides its arguments: what was declared, the code, the environment, tools.

The same functions make the parts of a key for whoever enqueues and for whoever runs the job. A part that cannot be
known is refused: it is never left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Literal

from msgspec.structs import replace

from .blobs import scan
from .core import codec
from .core.cache_key import Parts, call_of, digest, env_part
from .core.model import SHELL, CacheAsk, Spec
from .errors import CoveyError, InvalidInput

PROBE_S = 30.0
CLOCK_NS = 10_000_000  # so much the time stamp of a file may be behind the clock
PASSED_ON = frozenset({"PATH", "HOME", "USER", "TMPDIR"})  # to cached commands, and XDG_*, COVEY_*
FIXED = {"LANG": "C.UTF-8", "TZ": "UTC"}

Asked = bool | Literal["refresh"]  # of one job: as its task says, not at all, or run and keep the result anew


class Cache:
    """How the results of a task are cached: ``@app.task(cache=Cache(version="2", env=["LANG"]))``.

    ``version``: a word that stands for the code, instead of its digest. ``env``: names of variables that count.
    ``tools``: files, or commands whose output names a version. ``code``: modules that no import statement names.
    """

    def __init__(
        self,
        *,
        version: str | None = None,
        env: Iterable[str] = (),
        tools: Iterable[str | os.PathLike[str]] = (),
        code: Iterable[ModuleType | Callable[..., Any] | str] = (),
    ) -> None:
        if version is not None and (not isinstance(version, str) or not version):
            raise InvalidInput(f"version {version!r}: a word is needed, such as '2'")
        if isinstance(env, str) or isinstance(tools, str) or isinstance(code, str):
            raise InvalidInput("env, tools and code of a Cache are lists")
        self.version = version
        self.env = tuple(_is_name(name) for name in env)
        self.tools = tuple(os.fspath(tool) for tool in tools)
        self.code = tuple(map(_module_of, code))


class CachedTask:
    """What the runs of one task depend on."""

    def __init__(self, name: str, module: str, cache: Cache) -> None:
        self.cache = cache
        self._name, self._module = name, module
        self._code: dict[str, Any] | None = None
        self._problem: CoveyError | None = None
        if cache.version is not None:
            self._code = {"version": cache.version}

    def freeze(self, imported_at_ns: int | None = None) -> None:
        """The code is what it is now, whatever becomes of the files. A worker's is fixed when its app is imported."""
        if self._code is not None or self._problem is not None:
            return
        from . import code_digest  # only who computes a digest needs a parser of Python

        try:
            names = (self._module, *self.cache.code)
            before = None if imported_at_ns is None else imported_at_ns - CLOCK_NS
            modules = code_digest.modules(names, imported_at_ns=before)
            self._code = {"python": code_digest.PYTHON, "modules": modules}
        except CoveyError as error:
            self._problem = error

    def parts(self, args: str | None) -> str:
        """What a run of this call (arguments as JSON) would depend on here; InvalidInput if that cannot be told."""
        self.freeze()
        if self._problem is not None:
            raise self._problem
        arguments, _ = call_of(self._name, args)
        env = env_part({name: os.environ.get(name) for name in self.cache.env})
        return Parts(self._name, self._code, arguments, env=env, tools=tools_part(self.cache.tools)).text()


def cached_task(name: str, module: str, cache: bool | Cache | None) -> CachedTask | None:
    """As a task was declared."""
    if cache is None or cache is False:
        return None
    if cache is not True and not isinstance(cache, Cache):
        raise InvalidInput(f"cache {cache!r}: true, false or Cache(…)")
    return CachedTask(name, module, Cache() if cache is True else cache)


def check_asked(asked: object) -> None:
    if asked not in (True, False, "refresh"):
        raise InvalidInput(f"cache {asked!r}: true, false or 'refresh'")


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────────


def cached_command(spec: Spec, cache: Cache, asked: Asked) -> Spec:
    """The job says what it depends on. One that shall run uncached does not ask, and runs in the same way."""
    check_asked(asked)
    given = json.loads(spec.args or "{}")
    declared = {"version": cache.version, "tools": list(cache.tools)}
    given["cache"] = {name: value for name, value in declared.items() if value}
    if env := {name: os.environ[name] for name in cache.env if name in os.environ}:
        given["env"] = env | given.get("env", {})
    text = codec.encode(given, what="command")
    ask = None if asked is False else CacheAsk(command_parts(text), asked == "refresh")
    return replace(spec, args=text, cache=ask)


def command_parts(payload: str | None) -> str:
    """Of a command that was enqueued with the cache: what its run here depends on."""
    declared = json.loads(payload or "{}").get("cache") or {}
    code = {"version": declared["version"]} if "version" in declared else None
    arguments, env = call_of(SHELL, payload)
    return Parts(SHELL, code, arguments, env=env, tools=tools_part(declared.get("tools") or ())).text()


def small_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a cached command sees of its worker's environment: nothing that its result should depend on."""
    kept = {name: value for name, value in environ.items() if name in PASSED_ON or name.startswith(("XDG_", "COVEY_"))}
    return kept | FIXED


# ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_files: dict[str, scan.Seen] = {}
_probes: dict[str, str] = {}


def tools_part(tools: Iterable[str]) -> dict[str, str]:
    """File → digest of its content; command → digest of what it says, asked once."""
    return {tool: _probed(tool) if _is_probe(tool) else _of_file(tool) for tool in tools}


def _of_file(tool: str) -> str:
    path = os.path.expanduser(tool)
    if not os.path.isabs(path):
        raise InvalidInput(
            f"tool {tool!r}: a file by its whole path, or a command that tells a version, such as '{tool} --version'"
        )
    seen = _files[tool] = scan.look("/", path, _files.get(tool))
    if seen.digest is None:
        raise InvalidInput(f"tool {tool!r}: there is no such file")
    return seen.digest


def _is_probe(tool: str) -> bool:
    return not os.path.isabs(os.path.expanduser(tool)) and " " in tool


def _probed(tool: str) -> str:
    if tool not in _probes:
        import shlex
        import subprocess

        try:
            done = subprocess.run(
                shlex.split(tool), stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=True
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise InvalidInput(f"tool {tool!r} does not tell its version ({error})") from None
        _probes[tool] = digest(done.stdout + done.stderr)
    return _probes[tool]


def _is_name(name: object) -> str:
    if not isinstance(name, str) or not name or "=" in name or "\x00" in name:
        raise InvalidInput(f"environment name {name!r}: needs text without '=' and NUL")
    return name


def _module_of(given: ModuleType | Callable[..., Any] | str) -> str:
    name = given if isinstance(given, str) else getattr(given, "__module__", None) or getattr(given, "__name__", None)
    if isinstance(given, ModuleType):
        name = given.__name__
    if not isinstance(name, str) or name == "builtins":
        raise InvalidInput(f"code {given!r}: a module, its name, or a function of it")
    return name
