"""`covey` without waiting for an interpreter: a process that has everything imported forks a child for each call.

The child is a process like any other, with its own environment, directory and files; only its start is cheap. Each is
asked for with one message (words, directory, environment; stdin, stdout, stderr as descriptors); the answer is its exit
code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path


class Forge:
    """The side of the tests."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.cli.forge", str(theirs.fileno())]
        root = str(Path(__file__).parents[2])
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=root, stdin=subprocess.DEVNULL)
        theirs.close()

    def run(
        self, words: list[str], directory: Path, environ: dict[str, str], stdin: bytes, limit_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            asked = json.dumps({"words": words, "directory": str(directory), "environ": environ}).encode()
            self._ours.settimeout(limit_s)
            socket.send_fds(self._ours, [asked], [given.fileno(), out.fileno(), err.fileno()])
            try:
                code = int(self._ours.recv(100))
            except TimeoutError:
                self._process.kill()
                raise subprocess.TimeoutExpired(words, limit_s) from None
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())

    def close(self) -> None:
        self._ours.close()
        self._process.wait(60)


def serve(end: socket.socket) -> None:
    import typer.rich_utils  # noqa: F401

    import covey.cli
    import covey.cli.commands
    import covey.remote.remote
    import covey.store.postgres.database
    import covey.store.sqlite.database

    for room in (covey.cli, covey.cli.commands):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    gc.freeze()
    while True:
        asked, files, _, _ = socket.recv_fds(end, 1 << 20, 3)
        if not asked:
            return
        child = os.fork()
        if not child:
            end.close()
            _become(json.loads(asked), files)
        for file in files:
            os.close(file)
        end.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _become(asked: dict[str, object], files: list[int]) -> None:
    """This process is the command; it ends with it."""
    from covey import __main__ as start
    from covey.cli.main import main

    code = 70
    try:
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        os.chdir(str(asked["directory"]))
        os.environ.clear()
        os.environ.update(asked["environ"])  # type: ignore[call-overload]
        sys.argv = [str(start.__file__), *asked["words"]]  # type: ignore[misc]
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
