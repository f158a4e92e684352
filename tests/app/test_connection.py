"""When a queue is opened, by whom, and how often it is asked for its settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey import Covey, InvalidInput, StoreError
from covey.core.view import Filter

from . import functions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def stored(app: Covey) -> int:
    return len(app.client.jobs(Filter()).jobs)


def in_child(work: Callable[[], Any]) -> int:
    """The exit code of a forked child that did the work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_nothing_is_opened_before_the_first_use(path: Path) -> None:
    app = Covey(path)
    task = app.task(functions.add)
    task(1)
    task.call(2)
    assert not path.exists()
    task.enqueue(1)
    assert path.exists()
    app.close()


def test_a_relative_path_means_where_the_app_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Covey("queue.db") as app:
        monkeypatch.chdir("/")
        app.shell("true")
    assert (tmp_path / "queue.db").exists()


def test_without_a_path_it_is_the_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DB", str(tmp_path / "named.db"))
    with Covey() as app:
        app.shell("true")
    assert (tmp_path / "named.db").exists()


def test_a_memory_queue_is_shared_by_its_name() -> None:
    with Covey("memory:shared-by-name") as one, Covey("memory:shared-by-name") as two:
        one.shell("true")
        assert stored(two) == 1


def test_a_queue_that_cannot_be_opened_says_so_at_first_use(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="create it first"):
        Covey(tmp_path / "none" / "queue.db").shell("true")
    with pytest.raises(InvalidInput, match="no database of the kind"):
        Covey("mysql://host/db").shell("true")


def test_close_can_be_called_any_time(path: Path) -> None:
    app = Covey(path)
    app.close()
    job = app.shell("true")
    app.close()
    app.close()
    assert app.job(job.id).state == "pending"
    app.close()


def test_threads_share_one_engine(path: Path) -> None:
    app, barrier, found = Covey(path), threading.Barrier(8), []

    def use() -> None:
        barrier.wait()
        found.append(app.client)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(client) for client in found}) == 1
    app.close()


def test_threads_enqueue_at_the_same_time(path: Path) -> None:
    app = Covey(path)
    add, barrier = app.task(functions.add), threading.Barrier(4)

    def use() -> None:
        barrier.wait()
        for n in range(25):
            add.enqueue(n)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.client.status().counts["pending"] == 100
    app.close()


def test_a_forked_child_opens_its_own_and_leaves_the_parents(path: Path) -> None:
    app = Covey(path)
    add = app.task(functions.add)
    mine = app.client
    first = add.enqueue(1)

    def child() -> None:
        assert add.enqueue(2).id == first.id + 1
        assert app.client is not mine
        app.close()
        assert add.enqueue(3).id == first.id + 2

    assert in_child(child) == 0
    assert app.client is mine
    assert add.enqueue(4).id == first.id + 3
    app.close()


def test_a_fork_while_another_thread_opens_the_queue_does_not_hang(path: Path) -> None:
    app = Covey(path)
    with app._connection._lock:  # as if the fork came in the middle of another thread's opening
        assert in_child(lambda: app.shell("true")) == 0
    assert stored(app) == 1
    app.close()


def test_settings_are_not_read_at_every_enqueue(path: Path) -> None:
    app = Covey(path)
    connection = app._connection
    first = connection.settings()
    assert connection.settings() is first
    app.client.set_setting("max_attempts", "9")
    connection._settings_until = 0.0  # a second later
    assert connection.settings()["max_attempts"] == 9
    second = connection.settings()
    connection._settings_until = 0.0
    assert connection.settings() is second
    assert app.task(functions.add).enqueue(1).view.max_attempts == 9
    app.close()


def test_what_a_forked_child_enqueued_survives_its_parents_close(path: Path) -> None:
    app = Covey(path)
    add = app.task(functions.add)
    add.enqueue(1)
    (child_ready, ready), (go, parent_closed) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            add.enqueue(2)
            os.write(ready, b"!")
            os.read(go, 1)
            add.enqueue(3)
            code = 0
        finally:
            os._exit(code)
    os.read(child_ready, 1)
    app.close()
    os.write(parent_closed, b"!")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for fd in (child_ready, ready, go, parent_closed):
        os.close(fd)
    pending = app.client.status().counts["pending"]
    app.close()
    assert pending == 3
