"""The zygote: started by exec, preloads the app, forks workers, adopts and kills what they leave.

It runs no user code after the preload and waits on the pool's pipe: end of file means the pool is gone, and then
every descendant is killed before it exits itself. Above it stands a guard (`zygote_guard.py`), should both be killed
at once.

If there is an app, the pool does not know yet which queue is its own: that is one of the things that the app tells.
So it is told later whose zygote it is (`Adopt`).

    python -m covey.worker.zygote '{"control": 5, "preload": true, "app": "shop:app", …}'
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
from array import array
from typing import Any

import msgspec
from msgspec import structs

from ..core.codec import clean
from ..env import start_ticks
from ..system import cgroup, mark, process_tree
from . import messages, zygote_guard
from .main import NoApp, load_app, other_threads, work
from .setting import WorkerConfig

MOST = 1 << 16  # bytes of a message


class Zygote:
    def __init__(self, control: socket.socket, config: WorkerConfig, *, preload: bool, marks: int = -1) -> None:
        self._control, self._config, self._preloads, self._marks = control, config, preload, marks
        self._workers: set[int] = set()
        self._bell, self._ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Returns once the pool has hung up and no descendant is left."""
        process_tree.become_subreaper()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)
        told = self._preload()
        self._say(structs.replace(told, pid=os.getpid(), ticks=start_ticks(os.getpid()) or 0))
        gc.freeze()  # what the workers share stays shared
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._bell, select.POLLIN)
        try:
            while self._step(poll):
                pass
        finally:
            process_tree.end_all(grace_s=0)

    def _step(self, poll: select.poll) -> bool:
        ready = {fd for fd, _ in poll.poll()}
        if self._bell in ready:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._bell, 512):
                    pass
            self._bury()
        return self._control.fileno() not in ready or self._listen()

    def _preload(self) -> messages.Preloaded:
        """What workers need is imported once, before they are forked; then the app."""
        importlib.import_module("covey.worker.command_worker")
        if self._config.app is not None:
            importlib.import_module("covey.worker.sync_worker")
            importlib.import_module("covey.worker.async_worker")
        if self._config.app is None or not self._preloads:
            return messages.Preloaded({})
        try:
            app = load_app(self._config.app)
        except NoApp as error:
            return messages.Preloaded({}, error=clean(str(error)))
        except BaseException as error:
            return messages.Preloaded({}, error=_explained(error))
        kinds = {name: "async" if task.is_async else "sync" for name, task in app.tasks.items()}
        connection = getattr(app, "_connection", None)
        told = messages.Preloaded(
            kinds, queue=getattr(connection, "url", None), token=getattr(connection, "token", None)
        )
        sys.stdout.flush()  # who listens to it may change now
        if threads := other_threads():
            told.note = f"importing {self._config.app} started threads ({', '.join(threads)})"
        return told

    def _listen(self) -> bool:
        """One request of the pool; False when it has hung up."""
        try:
            data, beside, _, _ = self._control.recvmsg(MOST, socket.CMSG_SPACE(12), socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:  # it died with our messages unread
            return False
        if not data:
            return False
        fds = array("i", beside[0][2] if beside else b"")
        asked = messages.decode_from_pool(data)
        if isinstance(asked, messages.Adopt):
            self._adopt(asked, *fds)
        else:
            self._fork(asked, (fds[0], fds[1], fds[2]))
        for fd in fds:
            os.close(fd)
        return True

    def _adopt(self, told: messages.Adopt, log: int | None = None) -> None:
        """From now on this is the zygote of that pool, as if it had been started as such."""
        self._config = told.config
        text = f"{told.config.mark}:0:0"
        if not mark.write(text):
            sys.exit(f"{text} cannot be put where others see it")  # the pool starts another one, with it
        with contextlib.suppress(OSError):  # nobody stands above us, or not any more
            os.write(self._marks, f"{text}\n{told.config.cgroup or ''}".encode())
        os.environ["COVEY_DB"] = told.url
        if told.config.cgroup:
            # The app may have started something already.
            cgroup.enter(told.config.cgroup, *process_tree.descendants(os.getpid()))
        if log is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(log, 1)
            os.dup2(log, 2)

    def _fork(self, asked: messages.ForkWorker, fds: tuple[int, int, int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._say(messages.NotForked(asked.name, f"cannot fork: {error.strerror}"))
            return
        if pid == 0:
            code = 70
            try:
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                self._control.close()
                os.close(self._bell)
                os.close(self._ring)
                if self._marks != -1:
                    os.close(self._marks)
                work(asked.name, asked.kind, asked.places, fds, self._config)
                code = 0
            finally:
                with contextlib.suppress(BaseException):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
        self._workers.add(pid)
        self._say(messages.Forked(asked.name, pid, start_ticks(pid) or 0))

    def _bury(self) -> None:
        """Reaps; what a dead worker has left behind is now our child, and is killed."""
        for pid, status in process_tree.reap().items():
            if pid in self._workers:
                self._workers.discard(pid)
                if self._config.cgroup:
                    cgroup.end(self._config.group_of(pid))
                self._kill_strangers()
                self._say(messages.Exited(pid, status))
        self._kill_strangers()

    def _kill_strangers(self) -> None:
        """They are gone, as far as a second suffices: a lost worker's job may start elsewhere once we say so."""
        deadline = time.monotonic() + 1.0
        while strangers := [p for p in process_tree.children(os.getpid()) if p not in self._workers and start_ticks(p)]:
            for pid in strangers:
                process_tree.send([pid, *process_tree.descendants(pid)], signal.SIGKILL)
            if time.monotonic() > deadline:
                break
            time.sleep(0.0005)

    def _say(self, message: messages.FromZygote) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(messages.encode(message))


def _explained(error: BaseException) -> str:
    """What Python would say last of it, in one line, and where it happened."""
    import traceback

    said = traceback.format_exception_only(error)[-1]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    place = (frames[-1].filename, frames[-1].lineno) if len(frames) > 2 else ("", None)  # two are ours
    if isinstance(error, SyntaxError) and error.filename:
        place = error.filename, error.lineno
    where = f" ({place[0]}, line {place[1]})" if place[0] else ""
    return clean(" ".join(said.split())[:500] + where)


def main(given: str) -> None:
    options: dict[str, Any] = msgspec.json.decode(given)
    control, preload = socket.socket(fileno=options.pop("control")), options.pop("preload")
    fate: int = options.pop("fate")
    config = WorkerConfig(**options)
    os.set_inheritable(config.lifeline, False)
    control.set_inheritable(False)
    os.set_inheritable(fate, False)
    resource.setrlimit(resource.RLIMIT_NOFILE, (config.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if config.cgroup:
        cgroup.enter(config.cgroup)  # before anybody else's code runs
    process_tree.become_subreaper()
    mark.reserve()
    heard, marks = os.pipe2(os.O_CLOEXEC)
    try:
        zygote = os.fork()
    except OSError:
        zygote = 0  # the system gives us no more processes: better without a guard than not at all
    if zygote:
        os.close(marks)
        zygote_guard.stand(zygote, control, config.lifeline, heard, fate)
    os.close(heard)
    os.close(fate)
    Zygote(control, config, preload=preload, marks=marks).run()


if __name__ == "__main__":
    main(sys.argv[1])
