"""Which code a task is: the module that defines it, and every module of the project that this one imports.

A digest is of what Python makes of the source: comments, blank lines, docstrings and layout are no part of it.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .core.cache_key import digest
from .errors import InvalidInput

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
OWN = __name__.partition(".")[0]


class Module(NamedTuple):
    name: str
    path: str
    package: str  # what its relative imports are relative to


class CodeChanged(InvalidInput):
    """A file is younger than the import of what it holds: nobody can say which of the two runs."""


def modules(names: Iterable[str], *, imported_at_ns: int | None = None) -> dict[str, str]:
    """Digest by name of these modules and, transitively, of what they import from the project.

    ``imported_at_ns``: when the import of the app began, so that a file that is younger is noticed.
    """
    found: dict[str, str] = {}
    left = [_the(name) for name in names]
    while left:
        module = left.pop()
        if module.name in found:
            continue
        source = _read(module)
        if imported_at_ns is not None and os.stat(module.path).st_mtime_ns >= imported_at_ns:
            raise CodeChanged(f"{module.path} was written while it was imported; start the pool again")
        if not module.path.endswith(".py"):
            found[module.name] = digest(source)
            continue
        tree = _parse(module, source)
        found[module.name] = digest(ast.dump(_without_docstrings(tree)).encode())
        left += (each for each in _imported(tree, module) if each.name not in found)
    return found


def _the(name: str) -> Module:
    module = _find(name)
    if module is None:
        raise InvalidInput(f"the source of module {name!r} cannot be found, so its code has no digest; say version=")
    return module


def _read(module: Module) -> bytes:
    try:
        with open(module.path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidInput(f"the source of module {module.name!r} cannot be read ({error}); say version=") from None


def _parse(module: Module, source: bytes) -> ast.Module:
    try:
        return ast.parse(source, module.path)
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"{module.path} is no Python any more ({error}), so its code has no digest") from None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                node.body = node.body[1:] or [ast.Pass()]
    return tree


def _imported(tree: ast.Module, by: Module) -> Iterator[Module]:
    """Modules of the project that imports name, wherever these stand. What is imported by other means is not seen."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = by.package.split(".")
                above = parents[: len(parents) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]
        for name in names:
            yield from _along(name)


def _along(name: str) -> Iterator[Module]:
    """The module and the packages around it, because importing it runs them all."""
    words = name.split(".")
    if words[0] == OWN or words[0] in sys.stdlib_module_names:
        return
    for count in range(1, len(words) + 1):
        module = _find(".".join(words[:count]))
        if module is not None and not _is_installed(module.path):
            yield module


_found: dict[str, Module | None] = {}


def _find(name: str) -> Module | None:
    """Where it is, without importing anything."""
    if name not in _found:
        _found[name] = _look_for(name)
    return _found[name]


def _look_for(name: str) -> Module | None:
    path: list[str] | None = None
    spec = None
    words = name.split(".")
    for count in range(1, len(words) + 1):
        full = ".".join(words[:count])
        loaded = sys.modules.get(full)
        spec = getattr(loaded, "__spec__", None)
        if spec is None:
            try:
                spec = importlib.machinery.PathFinder.find_spec(full, path)
            except (ImportError, ValueError):
                return None
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
        if count < len(words) and not path:
            return None
    if spec is None or spec.origin is None or not os.path.isfile(spec.origin):
        return None
    return Module(name, spec.origin, name if spec.submodule_search_locations is not None else name.rpartition(".")[0])


def _is_installed(path: str) -> bool:
    """Part of Python or of an installed package: its upgrade is not seen; tools= and version= are for that."""
    real = os.path.realpath(path)
    return "site-packages" in real or "dist-packages" in real or real.startswith(_PYTHON_ITSELF)


_PYTHON_ITSELF = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})
