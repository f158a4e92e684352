"""Files of running jobs: bounded, never somebody else's, gone with their run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from covey.engine import live_output
from covey.engine.live_output import LiveFile, live_file
from covey.errors import StoreError
from covey.open import open_engine
from covey.pool.live_output import Line
from covey.worker.output import show_info
from tests.kit import HandPool, command


@pytest.fixture
def file(tmp_path: Path) -> LiveFile:
    return live_file(str(tmp_path / "side"), 7, 3, "out")


def test_a_file_is_named_by_job_fence_and_stream(tmp_path: Path, file: LiveFile) -> None:
    assert file.path == str(tmp_path / "side" / "live" / "7.3.out")
    assert live_file("", 7, 3, "out").path == ""


def test_what_is_appended_is_read_from_any_place(file: LiveFile) -> None:
    assert (file.size(), file.read()) == (0, b"")
    file.append(b"", 100)
    assert not os.path.exists(file.path)
    file.append(b"hello", 100)
    file.append(b" you", 100)
    assert (file.size(), file.read(), file.read(6), file.read(1, 3)) == (9, b"hello you", b"you", b"ell")
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    file.remove()
    file.remove()
    assert file.size() == 0


def test_above_its_size_the_older_half_goes(file: LiveFile) -> None:
    file.append(b"12345678", 10)
    file.append(b"90", 10)
    assert file.read() == b"1234567890"
    Path(f"{file.path}.part").write_bytes(b"left by a kill")
    file.append(b"a", 10)
    assert file.read() == b"7890a"
    assert os.listdir(os.path.dirname(file.path)) == ["7.3.out"]


def test_nothing_is_kept_where_there_is_no_directory() -> None:
    nowhere = live_file("", 7, 3, "out")
    nowhere.append(b"x", 10)
    nowhere.remove()
    assert (nowhere.size(), nowhere.read()) == (0, b"")


def test_neither_a_link_nor_a_pipe_is_taken_for_the_file(tmp_path: Path, file: LiveFile) -> None:
    os.makedirs(os.path.dirname(file.path))
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    os.symlink(secret, file.path)
    assert file.read() == b""
    with pytest.raises(StoreError, match="cannot be kept"):
        file.append(b"x", 100)
    assert secret.read_bytes() == b"secret"
    os.unlink(file.path)
    os.mkfifo(file.path)
    assert file.read() == b""
    with pytest.raises(StoreError):
        file.append(b"x", 100)


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "side").write_bytes(b"a file where a directory should be")
    with pytest.raises(StoreError, match="output of a running job cannot be kept: Not a directory"):
        live_file(str(tmp_path / "side"), 7, 3, "out").append(b"x", 10)


def test_an_answer_is_bounded_and_what_has_ended_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_output, "MOST", 4)
    monkeypatch.setattr(live_output, "MOST_LIVE", 8)
    engine = open_engine(str(tmp_path / "q.db"))
    try:
        pool = HandPool(engine)
        engine.enqueue([command()])
        claim = pool.claim_one()
        engine.show_output(pool.id, claim.id, claim.fence, "1234567", "e")
        found = engine.output(claim.id)
        assert (found.stdout, found.out, found.stderr, found.err) == (b"1234", 4, b"e", 1)
        assert engine.output(claim.id, out=4).stdout == b"567"
        assert engine.shown_output(claim.id, claim.fence) == (b"1234567", b"e")
        engine.show_output(pool.id, claim.id, claim.fence, "890", "")
        assert engine.shown_output(claim.id, claim.fence) == (b"7890", b"e")
        engine.cancel([claim.id])
        engine.show_output(pool.id, claim.id, claim.fence, "!", "")  # it is still being stopped
        engine.hide_output(claim.id, claim.fence)
        assert engine.shown_output(claim.id, claim.fence) == (b"", b"")
    finally:
        engine.close()


def test_files_of_runs_that_nobody_holds_are_swept_when_a_pool_comes(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "q.db"))
    try:
        pool = HandPool(engine)
        engine.enqueue([command(), command()])
        held, ended = pool.claim(2)
        side = Path(engine.store.dialect.side, "live")
        assert side.is_dir()
        names = [f"{held.id}.{held.fence}.out", f"{held.id}.{held.fence}.spawn", f"{ended.id}.{ended.fence}.err"]
        names += [
            f"{held.id}.{held.fence + 1}.out",
            f"{held.id}.{held.fence - 1}.out",
            "999.1.out",
            "a.1.out",
            "1.1.txt",
        ]
        for name in names:
            (side / name).touch()
        pool.succeed(ended)
        HandPool(engine)
        left = {names[0], names[1], names[4], "a.1.out", "1.1.txt"}
        assert set(os.listdir(side)) == left
        engine.cancel([held.id])  # which raises the fence: the files belong to the run before it
        HandPool(engine)
        assert set(os.listdir(side)) == left - {names[4]}
    finally:
        engine.close()


def test_a_line_is_sent_whenever_it_is_another_one(tmp_path: Path) -> None:
    line, path = Line(), str(tmp_path / "7.3.info")
    assert line.more(path) == ""
    show_info(path, '{"step": "a long one"}')
    assert line.more(path) == '{"step": "a long one"}'
    assert line.more(path) == ""
    show_info(path, '{"n": 1}')
    assert line.more(path) == '{"n": 1}'
    Path(path).write_text("cut sho")
    assert line.more(path) == ""
    os.unlink(path)
    os.mkfifo(path)
    show_info(path, "{}")
    assert line.more(path) == ""


def test_two_lines_that_were_written_one_over_the_other_are_not_shown(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "queue.db"))
    pool = HandPool(engine)
    engine.enqueue([command()])
    claim = pool.claim_one()
    path = Path(live_file(engine.store.dialect.side, claim.id, claim.fence, "info").path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for torn in (b'{"step": "a lo{"n": 1}\n', b"\xff\n", b'{"no": "newline"}', b""):
        path.write_bytes(torn)
        assert engine.job(claim.id).info is None
    engine.close()
