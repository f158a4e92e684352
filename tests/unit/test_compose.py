"""From a URL, the environment or a covey.toml to a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.compose import find_database
from covey.errors import InvalidInput


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COVEY_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_the_environment_comes_before_a_file_and_a_file_before_the_user_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "deep" / "er").mkdir(parents=True)
    assert find_database(str(project / "deep" / "er")) == str(tmp_path / "data" / "covey" / "queue.db")
    (project / "covey.toml").write_text('db = "jobs.db"\n')
    assert find_database(str(project / "deep" / "er")) == str(project / "jobs.db")
    monkeypatch.setenv("COVEY_DB", "/somewhere/else.db")
    assert find_database(str(project / "deep" / "er")) == "/somewhere/else.db"


def test_the_nearest_file_that_names_a_database_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "covey.toml").write_text('db = "outer.db"\n')
    (inner / "covey.toml").write_text("queues = 3\n")
    assert find_database(str(inner)) == str(tmp_path / "outer.db")
    (tmp_path / "a" / "covey.toml").write_text('db = "sqlite:///x/inner.db"\n')
    assert find_database(str(inner)) == "sqlite:///x/inner.db"


@pytest.mark.parametrize("text", ["db = 3\n", "db = [\n", "\udcff"])
def test_a_broken_file_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "covey.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput, match=r"covey\.toml") as refusal:
        find_database(str(tmp_path))
    assert "\n" not in str(refusal.value)
