"""Stands between a pool and its zygote: if both are killed at once, nothing that they have started lives on.

The zygote's parent, and a subreaper, so that whatever the kernel takes from a dead zygote comes here: also what a
function has started, whose worker the kernel ends without a word (`process_tree.die_with`), with whatever environment.
It runs no code but this and imports no app, so that it is small and hears at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
from typing import NoReturn

from ..system import cgroup, mark, process_tree

NAME = "covey-guard"  # what `ps` and `top` show
PR_SET_NAME = 15
PATIENCE_S = 2.0  # what a zygote may take to end everything when its pool is gone; then it is frozen


def stand(zygote: int, control: socket.socket, lifeline: int, marks: int, fate: int) -> NoReturn:
    """Never returns. Ends with the zygote's code if that ended in order: then it has left nobody."""
    control.close()  # the pool hears of the zygote's end by its end of this
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_NAME, NAME.encode(), 0, 0, 0)
    handle = os.pidfd_open(zygote)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(lifeline, 0)  # only its end: the pool is gone
    poll.register(marks, select.POLLIN)
    killed = alone = False
    while True:
        ready = [fd for fd, _ in poll.poll(PATIENCE_S * 1000 if alone else None)]
        for fd in ready:
            poll.unregister(fd)
        if marks in ready and (told := os.read(marks, 4096)):
            text, _, group = told.decode().partition("\n")
            mark.write(text)
            if group:
                cgroup.enter(group)
        if handle in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(zygote, 0)[1])
            if code >= 0:
                os._exit(code)
            with contextlib.suppress(OSError):  # the pool is gone
                os.write(fate, bytes([-code]))
            # While the pool lives it takes over those whom we have adopted, by ending us. Not before it has decided
            # to: it may be killed in this very moment.
            killed = True
        alone = alone or lifeline in ready
        if alone and (killed or not ready):
            process_tree.end_all(grace_s=0)
            os._exit(0)
