"""Log lines and the file they go to."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey.core.model import Claim, Report
from covey.log import KEPT, Log, LogFile
from tests.kit.faults import Child

APPEND = """
import sys
from covey.log import LogFile
file = LogFile(sys.argv[1], most_bytes=int(sys.argv[4]))
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[3])):
    file.write(f"{sys.argv[2]} {n:06d} {'x' * 40}\\n")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool.log"


def files(path: Path) -> list[Path]:
    """The file and those put aside, oldest first."""
    return sorted(path.parent.iterdir(), reverse=True)


def lines(path: Path) -> list[str]:
    return [line for each in files(path) for line in each.read_text().splitlines()]


def write(file: LogFile, who: str, count: int) -> None:
    for n in range(count):
        file.write(f"{who} {n:06d} {'x' * 40}\n")


def in_threads(count: int, work: Callable[[str], None]) -> None:
    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ── the file ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_file_is_put_aside_and_no_line_is_lost_or_torn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def take_a_while(older: str, newer: str) -> None:
        time.sleep(0.01)  # so that the other threads come while the file is being put aside
        replace(older, newer)

    monkeypatch.setattr(os, "replace", take_a_while)
    file = LogFile(str(path), most_bytes=60_000)
    try:
        in_threads(4, lambda who: write(file, who, 600))  # 122 kB: two full files and a bit
    finally:
        file.close()
    found = lines(path)
    assert sorted(found) == sorted(f"t{t} {n:06d} {'x' * 40}" for t in range(4) for n in range(600))
    for t in range(4):
        assert [line for line in found if line.startswith(f"t{t}")] == sorted(
            line for line in found if line.startswith(f"t{t}")
        )
    assert [each.name for each in files(path)] == ["pool.log.2", "pool.log.1", "pool.log"]
    assert all(60_000 <= each.stat().st_size < 61_000 for each in files(path)[:-1])


def test_only_so_many_files_are_kept_and_they_are_the_last(path: Path) -> None:
    file = LogFile(str(path), most_bytes=5_000)
    try:
        write(file, "w", 2_000)
    finally:
        file.close()
    assert len(files(path)) == KEPT
    found = lines(path)
    assert found == [f"w {n:06d} {'x' * 40}" for n in range(2_000 - len(found), 2_000)]
    assert sum(each.stat().st_size for each in files(path)) <= KEPT * 5_100


def test_several_processes_append_to_one_file_and_tear_no_line(path: Path) -> None:
    """Two pools of the same name, or a pool and what its workers say."""
    with (
        Child(APPEND, path, "a", 2_000, 1 << 30) as one,
        Child(APPEND, path, "b", 2_000, 1 << 30) as other,
    ):
        for child in (one, other):
            assert child.line() == "ready"
        for child in (one, other):
            assert child.process.stdin
            child.process.stdin.write("go\n")
            child.process.stdin.flush()
        for child in (one, other):
            assert child.process.wait(30) == 0
    assert sorted(lines(path)) == [f"{who} {n:06d} {'x' * 40}" for who in "ab" for n in range(2_000)]


def test_a_file_that_another_process_has_put_aside_is_left_and_not_put_aside_again(path: Path) -> None:
    """Otherwise two pools of the same name push each other's lines out of what is kept."""
    mine, other = LogFile(str(path), most_bytes=100), LogFile(str(path), most_bytes=100)
    try:
        mine.write("x" * 120 + "\n")
        other.write("old\n")  # where it belongs or in the new file: only that it is kept counts
        mine.write("mine\n")
        other.write("new\n")
    finally:
        mine.close()
        other.close()
    assert [each.name for each in files(path)] == ["pool.log.1", "pool.log"]
    assert sorted(lines(path)) == ["mine", "new", "old", "x" * 120]


def test_whoever_holds_the_old_file_writes_on_in_it_and_newcomers_have_the_new_one(path: Path) -> None:
    """The descriptor keeps its number, so a zygote started later inherits the file of that day."""
    file = LogFile(str(path), most_bytes=100)
    held = os.dup(file.fd)
    number = file.fd
    try:
        file.write("x" * 120 + "\n")
        os.write(held, b"late\n")
        os.write(file.fd, b"new\n")
    finally:
        os.close(held)
        file.close()
    assert file.fd == number
    assert (path.parent / "pool.log.1").read_text().endswith("x\nlate\n")
    assert path.read_text() == "new\n"


def test_a_log_that_cannot_be_written_stops_nobody(path: Path) -> None:
    file = LogFile(str(path))
    os.close(file.fd)
    file.fd = os.open("/dev/full", os.O_WRONLY)
    try:
        file.write("nobody reads this\n")
    finally:
        file.close()
    assert path.read_text() == ""


def test_a_text_that_no_encoding_knows_is_escaped(path: Path) -> None:
    file = LogFile(str(path))
    file.write("a\ud800b ✓\n")
    file.close()
    assert path.read_text() == "a\\ud800b ✓\n"


def test_a_log_file_is_appended_to_when_a_pool_of_the_same_name_comes_back(path: Path) -> None:
    for text in ("first\n", "second\n"):
        file = LogFile(str(path))
        file.write(text)
        file.close()
    assert path.read_text() == "first\nsecond\n"
    assert path.stat().st_mode & 0o777 == 0o600


# ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────────────

LEVELS = ["debug", "info", "warning", "error"]


def say_all(log: Log) -> None:
    """One line of each level."""
    log.job_ended(Report(1, 1, "success"))
    log.draining([])
    log.zygote_lost()
    log.given_up("sync", "error")


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("level", [*LEVELS, "", "ERROR", "nonsense"])
def test_the_level_decides_what_is_written_and_quiet_what_is_heard(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: str, quiet: bool
) -> None:
    monkeypatch.setenv("COVEY_LOG", level)
    file = LogFile(str(path))
    say_all(Log("pool-7", quiet=quiet, file=file))
    file.close()
    least = LEVELS.index(level.lower()) if level.lower() in LEVELS else 1
    assert re.findall(r"Z (\w+) pool-7 ", path.read_text()) == LEVELS[least:]
    heard = LEVELS[max(least, 2) if quiet else least :]
    assert len(capsys.readouterr().err.splitlines()) == len(heard)


def test_the_result_of_a_start_names_who_failed_and_where_to_read_on(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = LogFile(str(path))
    log = Log("pool-7", file=file)
    log.all_started(16, 16, 0.412, [])
    log.all_started(15, 16, 0.4, ["notebook-2 (MemoryError)"])
    log.all_started(0, 10, 0.4, [f"shell-{n} (no)" for n in range(1, 11)])
    file.close()
    fine, partly, nobody = (line.partition(" pool-7 ")[2] for line in capsys.readouterr().err.splitlines())
    assert fine == "started 16/16 workers in 0.4s"
    assert partly == f"started 15/16 workers in 0.4s; failed: notebook-2 (MemoryError); log: {path}"
    eight = ", ".join(f"shell-{n} (no)" for n in range(1, 9))
    assert nobody == f"started 0/10 workers in 0.4s; failed: {eight} and 2 more; log: {path}"
    assert re.findall(r"Z (\w+) ", path.read_text()) == ["info", "warning", "error"]


def test_what_repeats_is_said_once_in_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log("pool-7")
    for _ in range(100):
        log.store_failed("disk full")
    assert capsys.readouterr().err.count("disk full") == 1


def test_without_standard_error_a_pool_still_writes_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile(str(path))
    with open(os.devnull, "w") as closed:
        pass
    monkeypatch.setattr("sys.stderr", closed)
    Log("pool-7", file=file).stopped(1, 0)
    file.close()
    assert path.read_text().endswith(" info pool-7 stopped; 1 runs succeeded, 0 failed\n")


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def claimed(task: str = "shell", args: str | None = None, **fields: Any) -> Claim:
    given = {"key": None, "cwd": None, "keep_background": 0, "interruptions": 0, **fields}
    return Claim(5, 2, task, "command", 1, 3, None, "default", given.pop("key"), args=args, **given)


def test_each_job_has_a_line_at_its_start_and_at_its_end_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COVEY_LOG", "debug")
    log = Log("pool-7")
    assert log.tells_jobs
    log.job_given(claimed(args='{"command": "echo hi\\n  there", "env": {"TOKEN": "s3cret"}}'), "command-1")
    log.job_given(claimed(args='{"argv": ["ls", "a b"]}', key="k"), "command-1")
    log.job_given(claimed("mail.send", '[["s3cret"], {}]'), "sync-1")
    log.job_given(claimed(args=f'{{"command": "echo {"x" * 200}"}}'), "command-1")
    log.job_ended(Report(5, 2, "success", 1_000_000, 1_250_000, "command-1\tpool\thost"))
    log.job_ended(Report(5, 2, "failure", 1_000_000, 1_250_000, "command-1", "exit code 3:\n no"))
    log.job_ended(Report(5, 2, "taken_back"))
    lines = [line.partition(" pool-7 ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "job 5 is given to command-1 (attempt 1 of 3): echo hi there",
        "job 5 is given to command-1 (attempt 1 of 3): k: ls 'a b'",
        "job 5 is given to sync-1 (attempt 1 of 3): mail.send",
        f"job 5 is given to command-1 (attempt 1 of 3): echo {'x' * 74}…",
        "job 5 has ended on command-1 after 0.250 s: success",
        "job 5 has ended on command-1 after 0.250 s: failure: exit code 3: no",
        "job 5 has ended: it was not started and goes back",
    ]


@pytest.mark.parametrize("level", ["info", "warning", "nonsense"])
def test_what_nobody_reads_is_not_put_into_words(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv("COVEY_LOG", level)
    assert not Log("pool-7").tells_jobs
