"""From a URL, the environment or a covey.toml to a database."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from covey.errors import InvalidInput
from covey.open import find_database
from covey.store.postgres.url import Target
from tests.kit.faults import ForkError, in_fork


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


@pytest.mark.parametrize("data", [None, "", "relative/path"])
def test_without_a_place_of_its_own_the_queue_is_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str | None
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME") if data is None else monkeypatch.setenv("XDG_DATA_HOME", data)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_database(str(tmp_path)) == str(tmp_path / ".local" / "share" / "covey" / "queue.db")


def test_a_home_that_is_not_there_is_not_made_for_a_server_s_queue_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "no" / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert Target.of("postgresql://host/db").side().startswith(str(tmp_path / f"covey-{os.getuid()}"))
    assert not (tmp_path / "no").exists()


NOBODY = 54_321  # no user has this number


@pytest.mark.skipif(os.getuid() != 0, reason="NOT RUN: only root can be somebody else")
def test_a_user_without_a_name_and_without_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NOBODY not in {user.pw_uid for user in pwd.getpwall()}
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.delenv("HOME")

    def find() -> str:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        return find_database("/")

    with pytest.raises(ForkError, match="this user has no home directory and HOME is not set; name a queue with --db"):
        in_fork(find)
