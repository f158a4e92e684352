"""Every transaction has a failpoint; whatever happens there, the verb was done whole or not at all."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import pytest

import covey
from covey import env
from covey.errors import Busy, CoveyError
from covey.store.sqlite.database import Sqlite
from covey.store.sqlite.gate import Gate
from covey.testing import until
from tests.kit import check_queue
from tests.kit.faults import Fork
from tests.kit.postgres import Given, Schema, Server
from tests.kit.running import Yard

from .scenes import SCENES, Place, Scene

T = TypeVar("T")

SOURCE = Path(covey.__file__).parent
ARCHITECTURE = SOURCE.parents[1] / "docs" / "architecture.md"
ACTIONS = ("kill", "raise", "sleep")
SLEEP_S = 0.05
FREE_S = 8.0  # by then a lock that was left has shown: others wait ten seconds for it
# Not about a transaction of the queue, but about processes.
OF_POOLS = ("pool.before_register", "pool.after_register", "pool.started", "worker.starting")
ELSEWHERE = {"containers.ticked": "tests/containers/test_supervisor.py"}


# ── every transaction has one of its own ────────────────────────────────────────────────────────────────────────────


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if "testing" not in path.parts:
            yield str(path.relative_to(SOURCE)), path.read_text()


def openers(texts: dict[str, str]) -> set[str]:
    """What is called to have a transaction: `transaction`, and every function that opens one for its own caller."""
    found = {"transaction"}
    for text in texts.values():
        if "transaction(" not in text:
            continue  # most files: no need to look at every node
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef):
                for block in ast.walk(function):
                    if isinstance(block, ast.With) and opens(block, found) and yields(block):
                        found.add(function.name)
    return found


def opens(block: ast.With, names: set[str]) -> bool:
    return any(called(item.context_expr) in names for item in block.items)


def called(node: ast.AST) -> str | None:
    """The last word of what is called."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", None) or getattr(function, "id", None)


def yields(block: ast.With) -> bool:
    return any(isinstance(node, ast.Yield) for node in ast.walk(block))


def points(*nodes: ast.AST) -> list[str]:
    return [
        call.args[0].value
        for node in nodes
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and called(call) == "failpoint" and isinstance(call.args[0], ast.Constant)
    ]


def transactions(texts: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """(where, the failpoints inside or right behind) of every transaction in these sources."""
    names = openers(texts)
    for path, text in texts.items():
        if not any(f"{name}(" in text for name in names):
            continue
        for node in ast.walk(ast.parse(text)):
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(node, field, None)
                if not isinstance(statements, list):
                    continue
                for block, behind in zip_longest(statements, statements[1:]):
                    if isinstance(block, ast.With) and opens(block, names) and not yields(block):
                        after = points(behind) if isinstance(behind, ast.Expr) else []
                        yield f"{path}:{block.lineno}", points(*block.body) + after


def bare(texts: dict[str, str]) -> list[str]:
    """Transactions without a failpoint, and failpoints that two of them share although neither is inside the other."""
    problems, owners = [], dict[str, str]()
    for where, names in transactions(texts):
        if not names:
            problems.append(f"{where}: a transaction without a failpoint")
        for name in names:
            file, _, line = where.rpartition(":")
            first, _, earlier = owners.setdefault(name, where).rpartition(":")
            if first != file or int(line) - int(earlier) > 3:
                problems.append(f"{where}: {name} is that of {owners[name]}")
    return problems


def test_every_transaction_has_a_failpoint_of_its_own() -> None:
    texts = dict(sources())
    assert openers(texts) == {"transaction", "writing"}  # else this test looks for the wrong words
    assert bare(texts) == []


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        ("with store.transaction():\n    store.ask('x')", "planted.py:1: a transaction without a failpoint"),
        (
            "if x:\n    with store.dialect.transaction(alone=True), y:\n        pass",
            "planted.py:2: a transaction without a",
        ),
        ("with store.transaction():\n    pass\nx = 1\nfailpoint('late.one')", "planted.py:1: a transaction without"),
        (
            "def mine():\n    with x.transaction():\n        yield\n\n\nwith mine():\n    pass",
            "planted.py:6: a transaction without a failpoint",
        ),
        (
            "with a.transaction():\n    failpoint('a.b')\n\n\n\nwith b.transaction():\n    failpoint('a.b')",
            "planted.py:6: a.b is that of planted.py:1",
        ),
    ],
)
def test_a_planted_transaction_without_a_failpoint_is_found(planted: str, problem: str) -> None:
    (found,) = bare({"planted.py": textwrap.dedent(planted)})
    assert found.startswith(problem)


def test_a_failpoint_inside_or_right_behind_a_transaction_is_enough() -> None:
    inside = "with store.transaction():\n    if x:\n        failpoint('a.b')"
    behind = "with store.transaction():\n    pass\nfailpoint('c.d')"
    assert bare({"inside.py": inside, "behind.py": behind}) == []


def test_the_documented_names_are_those_of_the_source_and_each_is_tried() -> None:
    used = {name for _, text in sources() for name in re.findall(r'\bfailpoint\("([a-z_.]+)"\)', text)}
    section = re.search(r"^## Failpoints$.*?^## ", ARCHITECTURE.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    assert set(re.findall(r"`([a-z]+\.[a-z_]+)`", section[0])) - {"env.py"} == used
    assert {*SCENES, *OF_POOLS, *ELSEWHERE} == used
    for name, file in ELSEWHERE.items():
        assert name in (SOURCE.parents[1] / file).read_text(), f"{file} does not try {name}"


# ── kill, raise, sleep ──────────────────────────────────────────────────────────────────────────────────────────────


def cases() -> Iterator[tuple[str, str, str]]:
    """Every (store, name, action); in `make test` one for each name, always the same."""
    for name, scene in SCENES.items():
        yield from chosen(name, [(store, name, action) for store in scene.stores for action in ACTIONS])


def chosen(name: str, every: list[T]) -> list[T]:
    """All of them in `make proof`, else one."""
    return every if os.environ.get("COVEY_PROOF") == "full" else [every[zlib.crc32(name.encode()) % len(every)]]


@pytest.fixture(scope="module")
def spares(server: Server | Given) -> Callable[[Scene], str]:
    """A second schema of the server: an empty queue, or none at all."""
    empty, name = Schema(server, f"spare_{os.getpid()}").emptied, f"fresh_{os.getpid()}"

    def spare(scene: Scene) -> str:
        if scene.spare:
            return empty()
        if scene.spare is False:
            with server.admin() as db:
                db.execute(f"drop schema if exists {name} cascade".encode())
        return server.url(name)

    return spare


Places = Callable[[str, Scene], Place]


@pytest.fixture
def places(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Places]:
    """A new place for a scene, in the store of that name. On PostgreSQL one at a time."""
    made: list[Place] = []

    def place(store: str, scene: Scene) -> Place:
        if store == "postgres":
            url, spare = request.getfixturevalue("postgres_queue")(), request.getfixturevalue("spares")(scene)
        else:
            directory = tmp_path / str(len(made))
            directory.mkdir()
            url, spare = str(directory / "queue.db"), str(directory / "spare.db")
        made.append(Place(url, spare, watched=scene.spare is not None))
        return made[-1]

    yield place
    for each in made:
        each.close()


def attempts(scene: Scene, place: Place, known: object, name: str, action: str) -> Iterator[str]:
    """In a process of its own: the verb with that failpoint armed, then (if it was not done) without."""
    env.arm(name, f"sleep:{SLEEP_S}" if action == "sleep" else action)
    began = time.monotonic()
    try:
        scene.act(place, known)
        yield "done" if time.monotonic() - began >= SLEEP_S else "the failpoint was not passed"
    except OSError as error:
        yield "raised" if str(error) == f"failpoint {name}" else repr(error)
    env.arm(name, None)
    yield again(scene, place, known)


def again(scene: Scene, place: Place, known: object) -> str:
    try:
        scene.act(place, known)
    except CoveyError as refused:
        return f"refused: {refused}"
    return "done"


def trial(scene: Scene, place: Place, name: str, action: str, reference: tuple[object, object]) -> list[str]:
    """What went wrong; nothing if the verb was done whole or not at all, left no lock, and could be asked for again."""
    before, after = reference
    known = scene.prepare(place)
    problems = (
        [] if place.picture() == before else [f"the scene begins otherwise: {difference(place.picture(), before)}"]
    )
    with Fork(attempts(scene, place, known, name, action)) as fork:
        try:
            outcome = fork.ask()
        except EOFError:
            outcome = "killed"
        if outcome != {"kill": "killed", "raise": "raised", "sleep": "done"}[action]:
            problems.append(outcome)
        began = time.monotonic()
        place.write()
        if time.monotonic() - began > FREE_S:
            problems.append(f"others had to wait {time.monotonic() - began:.1f} s")
        seen = place.picture()
        done = action == "sleep" or name.endswith(".after_commit")
        if (scene.whole or done) and seen != (after if done else before):
            problems.append(f"half done, or not when it should be: {difference(seen, after if done else before)}")
        if action == "sleep":
            return problems + checked(place)
        second = again(scene, place, known) if action == "kill" else fork.ask()
    if not done and scene.whole and second != "done":
        problems.append(f"the second attempt was {second}")
    if not done and place.picture() != after:
        problems.append(f"after the second attempt ({second}): {difference(place.picture(), after)}")
    return problems + checked(place)


def checked(place: Place) -> list[str]:
    return check_queue(place.open())


def difference(seen: object, wanted: object) -> str:
    lines, others = (set(re.findall(r"\"?\{[^{}]*\}|\w+", str(each))) for each in (seen, wanted))
    return f"there is {sorted(lines - others)[:5]} instead of {sorted(others - lines)[:5]}"


References = Callable[[str, Scene], tuple[object, object]]


@pytest.fixture(scope="module")
def known_references() -> dict[tuple[str, int], tuple[object, object]]:
    return {}


@pytest.fixture
def reference(places: Places, known_references: dict[tuple[str, int], tuple[object, object]]) -> References:
    """What a scene looks like before and after its verb, if nothing goes wrong."""

    def look(store: str, scene: Scene) -> tuple[object, object]:
        key = store, id(scene)
        if key not in known_references:
            place = places(store, scene)
            known = scene.prepare(place)
            before = place.picture()
            scene.act(place, known)
            known_references[key] = before, place.picture()
        return known_references[key]

    return look


@pytest.mark.parametrize(("store", "name", "action"), list(cases()))
def test_whatever_happens_at_a_failpoint_the_verb_was_done_whole_or_not_at_all(
    places: Places, reference: References, store: str, name: str, action: str
) -> None:
    scene = SCENES[name]
    before, after = reference(store, scene)
    assert (before != after) is scene.changes
    assert trial(scene, places(store, scene), name, action, (before, after)) == []


STRIKES = [case for name in OF_POOLS for case in chosen(name, [(name, action) for action in ACTIONS])]


def test_whatever_happens_to_a_pool_that_starts_nothing_is_lost_and_the_next_one_works(tmp_path: Path) -> None:
    """All of them at the same time, each with a queue of its own."""
    with contextlib.ExitStack() as closing:
        yards: dict[tuple[str, str], Yard] = {}
        for name, action in STRIKES:
            home = tmp_path / f"{name}-{action}"
            home.mkdir()
            yard = yards[name, action] = closing.enter_context(Yard(home))
            strike = f"once:{home}/struck:{'sleep:0.3' if action == 'sleep' else action}"
            yard.shell("echo ran >>traces")
            yard.pool(count=2, commands_only=True, failpoints={name: strike})  # of two workers one is struck
        for (name, action), yard in yards.items():
            until(lambda yard=yard: (yard.home / "struck").exists(), 30, f"{name} is passed")  # type: ignore[misc]
            if name.startswith("pool.") and action != "sleep":
                assert yard.pools[0].ended() != 0
                yard.pool(count=1, commands_only=True)
            (job,) = yard.completes(1)
            assert (job.attempts, yard.traces()) == (1, ["ran"])
            assert check_queue(yard.engine) == []
            assert yard.pools[-1].stop() == 0
            assert yard.engine.pool_views() == []


# ── the trial itself can fail ───────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def statement_by_statement(self: Sqlite, **_: object) -> Iterator[None]:
    """A transaction that is none: whatever was written before an error stays."""
    yield


@contextlib.contextmanager
def forgotten(self: Sqlite, **_: object) -> Iterator[None]:
    """A transaction that is never committed."""
    self._db.execute("begin immediate")
    try:
        yield
    finally:
        self._db.execute("rollback")


@pytest.mark.parametrize(
    ("planted", "action", "problem"),
    [
        (statement_by_statement, "kill", "half done"),
        (forgotten, "sleep", "half done"),
        (forgotten, "raise", "after the sec"),
    ],
)
def test_a_planted_transaction_that_is_none_is_found(
    places: Places,
    reference: References,
    monkeypatch: pytest.MonkeyPatch,
    planted: Callable[..., object],
    action: str,
    problem: str,
) -> None:
    name = "change.before_commit"
    scene = SCENES[name]
    usual, place = reference("file", scene), places("file", scene)
    known = scene.prepare(place)
    monkeypatch.setattr(Sqlite, "transaction", planted)
    found = trial(scene._replace(prepare=lambda place: known), place, name, action, usual)
    assert any(each.startswith(problem) for each in found), found
    place.close()


def test_a_planted_lock_that_is_kept_is_found(
    places: Places, reference: References, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "change.before_commit"
    scene = SCENES[name]
    usual, place = reference("file", scene), places("file", scene)
    place.open().store.dialect._timeout_s = 0.2  # type: ignore[attr-defined]
    mine, leave = os.getpid(), Gate.leave
    monkeypatch.setattr(Gate, "leave", lambda self: leave(self) if os.getpid() == mine else None)
    with pytest.raises(Busy, match="has held the write lock"):
        trial(scene, place, name, "raise", usual)
