"""The small bugs: what one slip of a programmer may change in a source file.

The operators are those of mutmut and cosmic-ray, with statements left out and conditions turned round. What can make no
difference to anybody who uses the program is left alone: docstrings, annotations and type aliases, `__repr__`, prose (a
text with a space in it: wording is no promise), protocols, failpoints that do nothing unless a test arms them.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Div,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
UNREACHABLE = ("NotImplementedError", "AssertionError")
DISCIPLINE = ("frozen", "kw_only", "eq")  # of classes: what mypy checks
PLUMBING = ("failpoint", "warn", "cast", "TypeVar", "ParamSpec")  # calls whose text or presence is nobody's business


class Mutant(NamedTuple):
    file: str  # under src/covey
    number: int  # of the mutants of that file, in the order of the text
    line: int
    column: int
    lines: tuple[int, int]  # of the statement: whoever runs one of these may notice
    function: tuple[str, int] | None  # outermost function it is in: qualified name, first line; None: runs at import
    operator: str
    before: str
    after: str

    @property
    def id(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.operator}: {self.before} → {self.after}"


class Place(NamedTuple):
    """Where a node hangs, so that it can be replaced."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


class Found(NamedTuple):
    place: Place
    node: ast.AST
    statement: ast.stmt
    function: tuple[str, int] | None
    operator: str
    replacement: ast.AST


def mutants(file: str, source: str) -> list[Mutant]:
    return [_described(file, number, found) for number, found in enumerate(_find(ast.parse(source)))]


def mutated(source: str, number: int) -> ast.Module:
    """The file with its mutant of that number in it."""
    tree = ast.parse(source)
    found = next(itertools.islice(_find(tree), number, None))
    found.place.put(found.replacement)
    return ast.fix_missing_locations(tree)


def _find(tree: ast.Module) -> Iterator[Found]:
    for place, node, statement, function in _walk(tree):
        for operator, replacement in _changes(node, place):
            if isinstance(replacement, ast.expr | ast.stmt | ast.ExceptHandler) and hasattr(node, "lineno"):
                ast.copy_location(replacement, node)
            yield Found(place, node, statement, function, operator, replacement)


def _described(file: str, number: int, found: Found) -> Mutant:
    at = found.node if isinstance(found.node, ast.expr | ast.stmt) else found.statement
    lines = (found.statement.lineno, _last_line(found.statement))
    before, after = _short(found.node), _short(found.replacement)
    return Mutant(file, number, at.lineno, at.col_offset, lines, found.function, found.operator, before, after)


def _last_line(statement: ast.stmt) -> int:
    """Of a compound statement only its head: whoever runs the body has run the head."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return statement.end_lineno or statement.lineno
    first = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return max(statement.lineno, first - 1)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split()) if not isinstance(node, ast.match_case) else "case"
    return text if len(text) <= 90 else text[:89] + "…"


# ── where ───────────────────────────────────────────────────────────────────────────────────────────────────────────

Visit = tuple[Place, ast.AST, ast.stmt, tuple[str, int] | None]


def _walk(tree: ast.Module) -> Iterator[Visit]:
    for index, statement in enumerate(tree.body):
        yield from _statement(Place(tree, "body", index), statement, (), None)


def _statement(place: Place, node: ast.stmt, names: tuple[str, ...], function: Any) -> Iterator[Visit]:
    if _is_left_alone(node):
        return
    yield place, node, node, function
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params", "bases"):
            continue
        inner_names, inner = names, function
        if field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner_names = (*names, node.name)
            inner = function or (".".join(inner_names), min(d.lineno for d in [node, *node.decorator_list]))
        elif field == "body" and isinstance(node, ast.ClassDef):
            inner_names = (*names, node.name)
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            where = Place(node, field, index)
            if isinstance(child, ast.stmt):
                yield from _statement(where, child, inner_names, inner)
            elif isinstance(child, ast.AST):
                yield from _inside(where, child, node, inner_names, inner)


def _inside(place: Place, node: ast.AST, statement: ast.stmt, names: tuple[str, ...], function: Any) -> Iterator[Visit]:
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("Literal", "Callable")
    ):
        return
    if isinstance(node, ast.match_case | ast.ExceptHandler):
        statement = node.body[0]
    if isinstance(node, ast.keyword) and node.arg in DISCIPLINE and isinstance(statement, ast.ClassDef):
        return
    if not isinstance(node, ast.arguments):
        yield place, node, statement, function
    if _is_plumbing(node):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "format_spec"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            where = Place(node, field, index)
            if isinstance(child, ast.stmt):
                yield from _statement(where, child, names, function)
            elif isinstance(child, ast.arg):
                continue
            elif isinstance(child, ast.AST):
                yield from _inside(where, child, statement, names, function)


def _is_left_alone(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(name="__repr__") | ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Global():
            return True
        case ast.Expr(value=ast.Constant()):  # docstrings, the dots of protocols
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.ClassDef(bases=[*_, ast.Name(id="Protocol")]):
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name)) | ast.Name(id=name)) if name in UNREACHABLE:
            return True
        case ast.Expr(value=call) | ast.Assign(value=call) if _is_plumbing(call):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp(op=ast.BitOr())):
            return name[0].isupper() and not name.isupper()  # a type alias
    return False


def _is_plumbing(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PLUMBING


# ── what ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _changes(node: ast.AST, place: Place) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare():
            for index, op in enumerate(node.ops):
                if type(op) in COMPARISONS:
                    other = copy.copy(node)
                    other.ops = [*node.ops[:index], COMPARISONS[type(op)](), *node.ops[index + 1 :]]
                    yield "comparison", other
        case ast.BoolOp():
            other = copy.copy(node)
            other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "boolean", other
        case ast.UnaryOp(op=ast.Not()):
            yield "not", copy.copy(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            yield "minus", copy.copy(node.operand)
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield "arithmetic", ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
            yield "arithmetic", ast.Assign([node.target], node.value)
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield "constant", ast.Constant(node.value + 1)
        case ast.Constant(value=str()) if _is_word(node, place):
            yield "constant", ast.Constant(f"XX{node.value}XX")
        case ast.Break():
            yield "loop", ast.Continue()
        case ast.Continue():
            yield "loop", ast.Break()
        case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated):
            other = copy.copy(node)
            other.iter = ast.copy_location(ast.List([], ast.Load()), iterated)
            yield "loop", other
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "statement", ast.Pass()
        case ast.Assign() if not _is_nothing(node.value):
            yield "assignment", ast.Assign(node.targets, ast.Constant(None))
        case ast.AnnAssign(value=ast.expr()) if not _is_nothing(node.value):
            other = copy.copy(node)
            other.value = ast.copy_location(ast.Constant(None), node.value)
            yield "assignment", other
        case ast.Return(value=ast.expr()) if not _is_nothing(node.value):
            yield "return", ast.Return(ast.Constant(None))
        case ast.Call(keywords=[_, *_]):
            for index, keyword in enumerate(node.keywords):
                if keyword.arg is not None:
                    other = copy.copy(node)
                    other.keywords = node.keywords[:index] + node.keywords[index + 1 :]
                    yield f"keyword {keyword.arg}", other
        case ast.ExceptHandler(type=ast.expr()):
            other = copy.copy(node)
            other.type = ast.copy_location(ast.Tuple([], ast.Load()), node.type)
            yield "except", other
        case ast.match_case(pattern=pattern) if not isinstance(pattern, ast.MatchAs):
            other = copy.copy(node)
            other.guard = ast.copy_location(ast.Constant(False), pattern)
            yield "case", other
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for index, decorator in enumerate(node.decorator_list):
                if not (isinstance(decorator, ast.Name) and decorator.id in ("overload", "abstractmethod")):
                    other = copy.copy(node)
                    other.decorator_list = node.decorator_list[:index] + node.decorator_list[index + 1 :]
                    yield "decorator", other
    if place.field == "test" and isinstance(node, ast.expr) and not _turns_anyway(node):
        yield "condition", ast.UnaryOp(ast.Not(), node)


def _is_word(node: ast.Constant, place: Place) -> bool:
    """A name that something depends on; prose and the texts around its values are not."""
    return bool(node.value) and " " not in node.value and not isinstance(place.parent, ast.JoinedStr)


def _is_nothing(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _turns_anyway(test: ast.expr) -> bool:
    """Whether another operator turns this condition round already."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and isinstance(
            test.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn
        )
    return isinstance(test, ast.UnaryOp)
