"""A mutant in place of what it is a mutant of: in functions that are loaded already, or in a file that will be."""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .operators import Mutant, mutated

SOURCE = Path(__file__).parents[2] / "src" / "covey"

Functions = dict[tuple[str, str, int], list[FunctionType]]  # (path, qualified name, first line)


def read(file: str) -> str:
    return (SOURCE / file).read_text()


def module_of(file: str) -> str:
    return "covey." + file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def compiled(mutant: Mutant) -> CodeType:
    return compile(mutated(read(mutant.file), mutant.number), str(SOURCE / mutant.file), "exec")


def loaded_functions() -> Functions:
    """Every function of core/ and engine/ that exists in this process, however it is wrapped or bound."""
    found: Functions = {}
    for path in (*SOURCE.glob("core/*.py"), *SOURCE.glob("engine/*.py")):
        importlib.import_module(module_of(str(path.relative_to(SOURCE))))
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(str(SOURCE)):
            code = thing.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(thing)
    return found


def plant(mutant: Mutant, functions: Functions) -> None:
    """The function is its mutant from now on, for whoever holds it."""
    assert mutant.function is not None
    name, line = mutant.function
    places = functions[str(SOURCE / mutant.file), name, line]
    (code,) = (code for code in _codes(compiled(mutant)) if (code.co_qualname, code.co_firstlineno) == (name, line))
    for function in places:
        function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


class PlantedFile:
    """The file is its mutant once it is imported."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = module_of(mutant.file)

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        spec.loader = _Loader(self.mutant, name)
        return spec

    def plant(self) -> None:
        assert self.name not in sys.modules, f"{self.name} is imported already"
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, name: str) -> None:
        super().__init__(name, str(SOURCE / mutant.file))
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compiled(self.mutant)
