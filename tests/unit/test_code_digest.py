"""Which code a task is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey import code_digest
from covey.code_digest import CodeChanged, modules
from covey.errors import InvalidInput

TASKS = "import json\nimport helpers\nfrom pack import inner\n\nN = 3\n\ndef f(x=1):\n    return helpers.g(x) + N\n"

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    monkeypatch.syspath_prepend(tmp_path)

    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        code_digest._found.clear()
        return path

    put("tasks_.py", TASKS)
    put("helpers.py", "def g(x):\n    return x\n")
    put("pack/__init__.py", "")
    put("pack/inner.py", "from .deep import H\n")
    put("pack/deep.py", "H = 1\n")
    put("unused.py", "")
    yield put
    code_digest._found.clear()
    assert "helpers" not in sys.modules  # nothing was imported for a digest


def test_the_module_and_what_it_imports_of_the_project_is_its_code(write: Write) -> None:
    assert sorted(modules(["tasks_"])) == ["helpers", "pack", "pack.deep", "pack.inner", "tasks_"]


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n" + TASKS,
        TASKS.replace("N = 3", "\n\nN   =   3  # three"),
        TASKS.replace("    return", '    """What it does."""\n    return'),
        '"""The module."""\n' + TASKS,
    ],
)
def test_comments_blank_lines_layout_and_docstrings_are_no_code(write: Write, text: str) -> None:
    before = modules(["tasks_"])
    write("tasks_.py", text)
    assert modules(["tasks_"]) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tasks_.py", TASKS.replace("N = 3", "N = 4")),
        ("tasks_.py", TASKS.replace("x=1", "x=2")),
        ("tasks_.py", TASKS.replace("+ N", "- N")),
        ("helpers.py", "def g(x):\n    return -x\n"),
        ("pack/__init__.py", "import os\n"),
        ("pack/deep.py", "H = 2\n"),
    ],
)
def test_a_constant_a_default_or_a_helper_is_code(write: Write, name: str, text: str) -> None:
    before = modules(["tasks_"])
    write(name, text)
    assert modules(["tasks_"]) != before


def test_a_circle_of_imports_ends(write: Write) -> None:
    write("helpers.py", "import tasks_\n")
    assert "helpers" in modules(["tasks_"])


def test_python_itself_installed_packages_and_covey_are_no_code_of_the_project(write: Write) -> None:
    write("tasks_.py", "import os.path\nimport msgspec\nimport covey.core.model\nfrom covey import Covey\n")
    assert sorted(modules(["tasks_"])) == ["tasks_"]


def test_a_module_without_source_or_with_a_broken_one_is_refused(write: Write) -> None:
    with pytest.raises(InvalidInput, match="version="):
        modules(["nowhere_at_all"])
    write("helpers.py", "def (")
    with pytest.raises(InvalidInput, match=r"helpers\.py is no Python"):
        modules(["tasks_"])


def test_a_file_that_is_younger_than_its_import_is_refused(write: Write) -> None:
    path = write("helpers.py", "def g(x):\n    return x\n")
    written = path.stat().st_mtime_ns
    with pytest.raises(CodeChanged, match=r"helpers\.py was written while it was imported"):
        modules(["helpers"], imported_at_ns=written)
    assert modules(["helpers"], imported_at_ns=written + 1)
