"""Blobs: kept under their digests, checked whenever they are read, put in place whole."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from covey import env
from covey.blobs.blob_store import BlobMissing, BlobRefused, BlobStore
from covey.blobs.directory import Directory
from covey.blobs.http import HttpBlobs
from covey.blobs.placing import Output, OutputMissing, ingest, is_in_place, place
from covey.blobs.scan import changed, declared, look, relative, scan
from covey.errors import CoveyError, InvalidInput, Refused, StoreError, Unreachable

HELLO = b"hello" * 100_000
NAME = hashlib.sha256(HELLO).hexdigest()


class Shelf(BaseHTTPRequestHandler):
    """As nginx with DAV has it: what is put under a path is there, whatever it is."""

    kept: dict[str, bytes]

    def do_HEAD(self) -> None:
        self.send_response(200 if self.path in self.kept else 404)
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(self.kept.get(self.path, b""))

    def do_PUT(self) -> None:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        self.kept[self.path] = body
        self.send_response(201)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def shelf() -> Iterator[tuple[str, dict[str, bytes]]]:
    kept: dict[str, bytes] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Shelf", (Shelf,), {"kept": kept}))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kept
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["directory", "http"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "directory":
        return Directory(str(tmp_path / "blobs"))
    return HttpBlobs(request.getfixturevalue("shelf")[0])


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(str(tmp_path / "blobs"))


# ── kept and read ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_added_is_there_and_reads_the_same(blobs: BlobStore) -> None:
    assert not blobs.has(NAME)
    blobs.add(NAME, [HELLO[:7], HELLO[7:]])
    blobs.add(NAME, [HELLO])
    assert blobs.has(NAME)
    assert b"".join(blobs.read(NAME)) == HELLO


def test_what_is_not_there_is_missing(blobs: BlobStore) -> None:
    with pytest.raises(BlobMissing):
        list(blobs.read(NAME))


@pytest.mark.parametrize("name", ["../x", "", "0" * 63, "A" * 64, "0" * 63 + "/", NAME + "0"])
def test_a_name_is_a_digest_and_nothing_else(blobs: BlobStore, name: str) -> None:
    with pytest.raises(InvalidInput, match="64 characters"):
        blobs.has(name)


def test_bytes_with_another_digest_are_refused_and_leave_nothing(directory: Directory) -> None:
    with pytest.raises(BlobRefused, match="has the digest"):
        directory.add(NAME, [HELLO, b"!"])
    assert not directory.has(NAME)
    assert not os.listdir(directory.root)


def test_a_blob_over_the_limit_is_refused_while_it_arrives(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path / "blobs"), most=10)
    arrived = []

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            arrived.append(1)
            yield b"12345"

    with pytest.raises(BlobRefused, match="more than 10 bytes"):
        directory.add(NAME, chunks())
    assert len(arrived) == 3
    assert not os.listdir(directory.root)


@pytest.mark.parametrize("damage", [b"", HELLO[:-1], HELLO[:-1] + b"x"])
def test_a_damaged_blob_is_missing_and_no_more(directory: Directory, damage: bytes) -> None:
    directory.add(NAME, [HELLO])
    path = Path(directory.path(NAME))
    path.chmod(0o644)
    path.write_bytes(damage)
    assert directory.verify() == [NAME]
    with pytest.raises(BlobMissing, match="damaged"):
        list(directory.read(NAME))
    assert not directory.has(NAME)
    assert directory.verify() == []


def test_a_damaged_blob_behind_a_url_is_missing(shelf: tuple[str, dict[str, bytes]]) -> None:
    url, kept = shelf
    kept[f"/cas/{NAME}"] = HELLO[:-1]
    with pytest.raises(BlobMissing, match="something else"):
        list(HttpBlobs(url).read(NAME))


def test_blobs_behind_a_url_lie_in_the_layout_of_bazel(shelf: tuple[str, dict[str, bytes]]) -> None:
    url, kept = shelf
    HttpBlobs(url + "/some/where/").add(NAME, [HELLO])
    assert kept == {f"/some/where/cas/{NAME}": HELLO}


def test_a_store_that_does_not_answer_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
            HttpBlobs(f"http://127.0.0.1:{port}").has(NAME)


def test_verify_removes_what_is_damaged_only_if_asked(directory: Directory) -> None:
    directory.add(NAME, [HELLO])
    os.chmod(directory.path(NAME), 0o644)
    Path(directory.path(NAME)).write_bytes(b"?")
    assert directory.verify() == [NAME]
    assert directory.has(NAME)
    assert directory.verify(repair=True) == [NAME]
    assert not directory.has(NAME)


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="No space left"):
        directory.add(NAME, [HELLO])
    assert not os.listdir(directory.root)


def test_collecting_spares_what_is_used_and_what_is_young(directory: Directory) -> None:
    names = []
    for text in (b"used", b"young", b"old"):
        names.append(hashlib.sha256(text).hexdigest())
        directory.add(names[-1], [text])
    now_s = time.time()
    for name in (names[0], names[2]):
        os.utime(directory.path(name), (now_s - 7200, now_s - 7200))
    assert directory.collect({names[0]}, now_s) == 3
    assert [directory.has(name) for name in names] == [True, True, False]


def test_a_blob_that_is_added_again_is_young_again(directory: Directory) -> None:
    """Its record is about to be written: a collection in between must not take it away."""
    directory.add(NAME, [HELLO])
    os.utime(directory.path(NAME), (0, 0))
    directory.add(NAME, [HELLO])
    assert directory.collect(set(), time.time()) == 0
    assert directory.has(NAME)


# ── files of a run ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_outputs_become_read_only_copies_which_a_later_edit_does_not_reach(
    directory: Directory, tmp_path: Path
) -> None:
    made = tmp_path / "out.txt"
    made.write_bytes(HELLO)
    (output,) = ingest(str(tmp_path), ["out.txt"], directory)
    assert output == Output("out.txt", "file", NAME, len(HELLO))
    blob = Path(directory.path(NAME))
    assert blob.stat().st_mode & 0o777 == 0o444
    assert blob.stat().st_ino != made.stat().st_ino
    made.write_bytes(b"edited")
    assert b"".join(directory.read(NAME)) == HELLO


@pytest.mark.parametrize("make", ["nothing", "directory", "link"])
def test_a_declared_output_that_is_no_file_is_a_failure(blobs: BlobStore, tmp_path: Path, make: str) -> None:
    if make == "directory":
        (tmp_path / "out").mkdir()
    elif make == "link":
        (tmp_path / "out").symlink_to("/etc/hostname")
    with pytest.raises(OutputMissing):
        ingest(str(tmp_path), ["out"], blobs)


def test_outputs_over_the_cap_are_not_kept(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"123456")
    with pytest.raises(Refused, match="cache_max_bytes"):
        ingest(str(tmp_path), ["out"], directory, most=5)


def test_outputs_stand_in_place_with_bytes_and_executable_bit(blobs: BlobStore, tmp_path: Path) -> None:
    made, root = tmp_path / "made", tmp_path / "root"
    made.mkdir()
    root.mkdir()
    (made / "a").write_bytes(b"a")
    (made / "tool").write_bytes(b"#!")
    (made / "tool").chmod(0o755)
    outputs = ingest(str(made), ["a", "tool"], blobs)
    assert place(str(root), outputs, blobs) == ["a", "tool"]
    assert (root / "a").read_bytes() == b"a"
    assert not os.access(root / "a", os.X_OK)
    assert os.access(root / "tool", os.X_OK)
    assert all(is_in_place(str(root), output) for output in outputs)
    assert place(str(root), outputs, blobs) == []


def test_an_edited_a_missing_and_a_read_only_target_are_all_put_right(directory: Directory, tmp_path: Path) -> None:
    outputs = []
    for name in ("edited", "missing", "sub/read_only"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        outputs += ingest(str(tmp_path), [name], directory)
    (tmp_path / "edited").write_text("EDITED")
    (tmp_path / "missing").unlink()
    (tmp_path / "sub/read_only").write_text("x")
    (tmp_path / "sub/read_only").chmod(0o444)
    place(str(tmp_path), outputs, directory)
    assert [(tmp_path / each.path).read_text() for each in outputs] == [each.path for each in outputs]


def test_if_one_blob_is_missing_no_target_is_touched(directory: Directory, tmp_path: Path) -> None:
    outputs = []
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        outputs += ingest(str(tmp_path), [name], directory)
        (tmp_path / name).write_text("old")
    directory.drop(outputs[1].digest)
    with pytest.raises(BlobMissing):
        place(str(tmp_path), outputs, directory)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "blobs"]
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "old"


@pytest.mark.parametrize("name", ["blob.before_ingest", "blob.before_rename"])
def test_an_output_that_cannot_be_kept_leaves_no_blob_behind(directory: Directory, tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_text("a")
    env.arm(name, "raise")
    try:
        with pytest.raises((OSError, StoreError)):
            ingest(str(tmp_path), ["a"], directory)
    finally:
        env.arm(name, None)
    assert list(directory.all()) == []


def test_a_placing_that_is_cut_off_between_two_renames_is_put_right_by_the_next_look(
    directory: Directory, tmp_path: Path
) -> None:
    outputs = []
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        outputs += ingest(str(tmp_path), [name], directory)
        (tmp_path / name).write_text("old")
    env.arm("placing.between_renames", "raise")
    try:
        with pytest.raises(Refused):
            place(str(tmp_path), outputs, directory)
    finally:
        env.arm("placing.between_renames", None)
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["a", "old"]
    assert place(str(tmp_path), outputs, directory) == ["b"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "blobs"]


def test_a_placing_that_fails_before_its_renames_leaves_the_old_files(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("new")
    outputs = ingest(str(tmp_path), ["a"], directory)
    (tmp_path / "a").write_text("old")
    env.arm("placing.before_rename", "raise")
    try:
        with pytest.raises(Exception, match=r"placing\.before_rename"):
            place(str(tmp_path), outputs, directory)
    finally:
        env.arm("placing.before_rename", None)
    assert sorted(os.listdir(tmp_path)) == ["a", "blobs"]
    assert (tmp_path / "a").read_text() == "old"


def test_nothing_is_written_through_a_link_that_leads_out(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (output,) = ingest(str(tmp_path), ["f"], directory)
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    with pytest.raises(Refused, match="outside"):
        place(str(root), [Output("link/f", "file", output.digest, 1)], directory)
    assert not os.listdir(outside)


# ── what is declared ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "..",
        "../x",
        "a/../../b",
        "",
        ".",
        "a/",
        "~/x",
        "a\nb",
        "a\x00b",
        b"\xff".decode("utf-8", "surrogateescape"),
    ],
)
def test_a_path_that_leads_elsewhere_or_cannot_be_written_down_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="input"):
        relative(path, "input")


def test_a_path_is_the_same_however_it_is_written() -> None:
    assert relative("./a//b/./c", "input") == "a/b/c"


@pytest.mark.parametrize(
    ("inputs", "outputs", "why"),
    [
        (["a"], ["a"], "input and an output"),
        (["*.txt"], ["b.txt"], "input and an output"),
        (["src/**/*.txt"], ["src/b.txt"], "input and an output"),
        ([], ["a", "a"], "twice"),
        ([], ["a", "a/b"], "the directory of"),
        ([], ["*.txt"], "pattern is for inputs"),
    ],
)
def test_outputs_that_stand_in_the_way_are_refused(inputs: list[str], outputs: list[str], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        declared(inputs, outputs)


def test_one_more_file_one_fewer_and_one_renamed_are_other_inputs(tmp_path: Path) -> None:
    def parts() -> list[object]:
        return [each.part for each in scan(str(tmp_path), ["*.txt"])]

    (tmp_path / "a.txt").write_text("a")
    seen = [parts()]
    (tmp_path / "b.txt").write_text("b")
    seen.append(parts())
    (tmp_path / "b.txt").rename(tmp_path / "c.txt")
    seen.append(parts())
    (tmp_path / "c.txt").chmod(0o755)
    seen.append(parts())
    assert all(one not in seen[:place] for place, one in enumerate(seen))
    assert seen[0][0] == ("*.txt", "pattern", None)


def test_a_link_counts_as_what_it_leads_to_and_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    root = str(tmp_path)
    assert look(root, "link").digest == look(root, "a").digest
    assert look(root, "empty").digest == hashlib.sha256().hexdigest()
    assert look(root, "dangling").form == "absent"
    for name in ("dir", "fifo"):
        with pytest.raises(InvalidInput, match="pattern"):
            look(root, name)
    with pytest.raises(InvalidInput, match="no such file"):
        scan(root, ["nowhere"])


def test_two_clones_in_different_directories_have_the_same_parts(tmp_path: Path) -> None:
    for clone in ("one", "two"):
        (tmp_path / clone / "src").mkdir(parents=True)
        (tmp_path / clone / "src/a").write_text("a")
    one, two = (scan(str(tmp_path / clone), ["src/*"]) for clone in ("one", "two"))
    assert [each.part for each in one] == [each.part for each in two]


def test_a_second_content_of_the_same_size_is_seen_however_soon_it_is_written(tmp_path: Path) -> None:
    path, root = tmp_path / "a", str(tmp_path)
    for n in range(1000):
        path.write_text(f"{n:06}x")
        seen = scan(root, ["a"])
        path.write_text(f"{n:06}y")
        assert look(root, "a", seen[0]).digest != seen[0].digest


def test_an_old_file_is_not_read_again_and_a_touched_one_is(tmp_path: Path) -> None:
    path, root = tmp_path / "a", str(tmp_path)
    path.write_text("a")
    settled = look(root, "a")._replace(settled=True)
    assert look(root, "a", settled) is settled
    os.utime(path, (1, 1))
    again = look(root, "a", settled)
    assert again is not settled
    assert again.part == settled.part


def test_inputs_that_change_while_a_run_reads_them_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b").write_text("b")
    root, inputs = str(tmp_path), ["*.txt", "b"]
    seen = scan(root, inputs)
    assert changed(root, inputs, seen) is None
    (tmp_path / "new.txt").write_text("n")
    assert changed(root, inputs, seen) == "new.txt"
    (tmp_path / "new.txt").unlink()
    (tmp_path / "b").write_text("c")
    assert changed(root, inputs, seen) == "b"
    (tmp_path / "b").unlink()
    assert changed(root, inputs, seen) == "b"


def test_a_wrong_address_of_blobs_is_refused() -> None:
    for url in ("ftp://x", "http://", "http://u:p@x", "http://x?y"):
        with pytest.raises(CoveyError):
            HttpBlobs(url)
