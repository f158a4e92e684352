"""What is public is documented."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import covey
from covey.cli.commands import GROUPS, VERBS
from covey.env import failpoint
from covey.settings import ALIASES, SETTINGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CLI = (DOCS / "cli.md").read_text()
OPERATIONS = (DOCS / "operations.md").read_text()
PYTHON = (DOCS / "python.md").read_text()
ARCHITECTURE = (DOCS / "architecture.md").read_text()
README = (ROOT / "README.md").read_text()
SOURCES = sorted((ROOT / "src").rglob("*.py"))

COMMANDS = [verb for verb in VERBS if verb not in GROUPS]
COMMANDS += [f"{group} {verb}" for group, verbs in GROUPS.items() for verb in verbs]
PROMISES = (
    "1. A job that was acknowledged is on disk.",
    "2. It runs at least once, and it completes exactly once: a stale worker can change nothing.",
    "3. A job that is stopped leaves no process behind.",
    "4. A parent never completes before its children, and a crash at any instruction loses no child and adds none.",
)
HIDDEN = {
    "COVEY_",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_heading_and_an_example(command: str) -> None:
    section = re.search(rf"^###? `{command}`.*?(?=^##|\Z)", CLI, re.MULTILINE | re.DOTALL)
    assert section, f"docs/cli.md has no heading `{command}`"
    assert f"covey {command}" in section[0], f"docs/cli.md shows no example of covey {command}"


def test_docs_name_no_command_that_does_not_exist() -> None:
    headings = re.findall(r"^###? `([a-z ]+)`", CLI, re.MULTILINE)
    assert sorted(headings) == sorted(COMMANDS)


@pytest.mark.parametrize("name", [*SETTINGS, *ALIASES])
def test_every_setting_is_documented(name: str) -> None:
    assert f"`{name}`" in OPERATIONS


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_the_documented_default_is_the_real_one(setting: object) -> None:
    from covey.cli.commands.config import text
    from covey.settings import Setting

    assert isinstance(setting, Setting)
    row = next(line for line in OPERATIONS.splitlines() if line.startswith(f"| `{setting.name}` |"))
    assert row.split("|")[2].strip() == text(setting.default)


def test_every_environment_variable_is_documented() -> None:
    used = {name for source in SOURCES for name in re.findall(r"\bCOVEY_[A-Z_]*", source.read_text())} - HIDDEN
    missing = sorted(name for name in used if f"`{name}`" not in OPERATIONS)
    assert not missing, f"docs/operations.md does not say what {', '.join(missing)} does"


def test_every_public_name_is_documented() -> None:
    public = set(getattr(covey, "__all__", ())) | set(covey._ROOMS)
    missing = sorted(name for name in public if not re.search(rf"\b{name}\b", PYTHON))
    assert not missing, f"docs/python.md does not mention {', '.join(missing)}"


def test_every_failpoint_is_listed() -> None:
    named = re.compile(rf'{failpoint.__name__}\("([a-z_.]+)"\)')
    used = {name for source in SOURCES for name in named.findall(source.read_text()) if "testing" not in source.parts}
    missing = sorted(name for name in used if name not in ARCHITECTURE)
    assert not missing, f"docs/architecture.md does not list {', '.join(missing)}"


def test_every_file_is_named_on_the_front_page_of_its_room() -> None:
    """And nothing else is: the page is the room's `__init__`, a line for each file."""
    for page in (ROOT / "src/covey").glob("*/**/__init__.py"):
        lines = (ast.get_docstring(ast.parse(page.read_text())) or "").splitlines()[2:]
        named = [line.split("  ")[0].rstrip("/") for line in lines if line and not line.startswith(" ")]
        found = [each for each in page.parent.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()]
        assert sorted(named) == sorted(each.stem for each in found if each.name != "__init__.py"), page


def test_every_table_is_described() -> None:
    schema = "".join(file.read_text() for file in (ROOT / "src/covey/store").glob("*/schema/*.sql"))
    names = re.findall(r"create (?:unique )?(?:table|index) (\w+)", schema)
    missing = sorted(name for name in names if f"`{name}`" not in ARCHITECTURE)
    assert not missing, f"docs/architecture.md does not describe {', '.join(missing)}"


def test_the_readme_gives_the_promise_word_for_word() -> None:
    for sentence in PROMISES:
        assert sentence in README


def test_every_link_between_the_documents_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)} → {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def test_decisions_are_numbered_without_a_gap_and_have_their_four_parts() -> None:
    files = sorted((DOCS / "decisions").glob("*.md"))
    assert [file.name[:4] for file in files] == [f"{n:04}" for n in range(1, len(files) + 1)]
    for file in files:
        parts = re.findall(r"^## (\w+)", file.read_text(), re.MULTILINE)
        assert parts == ["Context", "Decision", "Consequence", "Evidence"], file.name
