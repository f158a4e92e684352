"""The file through which containers get their token: private, and gone with its supervisor, or with the next one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from .docker import Docker
from .launch import is_gone, owner

PREFIX = "covey-token-"  # then the supervisor, so that those of killed ones can be told


@contextlib.contextmanager
def token_file(docker: Docker, image: str, user: str, token: str | None) -> Iterator[tuple[str | None, str | None]]:
    """(A file with the token that the containers' user can read, and nobody else here; that user if not the image's.)

    The file is 0600 in a private directory. As root it is given to the image's user; else containers run as we do.
    """
    sweep()
    if token is None:
        yield None, None
        return
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{owner().replace(':', '_')}-") as directory:
        path = os.path.join(directory, "token")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
        run_as = None
        if os.getuid() == 0:
            os.chown(path, docker.user_id(image, user), -1)
        elif user.partition(":")[0] != str(os.getuid()):
            run_as = f"{os.getuid()}:{os.getgid()}"
        yield path, run_as


def sweep() -> None:
    """Files of supervisors that were killed are gone."""
    place = tempfile.gettempdir()
    for name in os.listdir(place):
        if name.startswith(PREFIX):
            who = name.removeprefix(PREFIX).rpartition("-")[0].replace("_", ":")
            if is_gone(who):
                shutil.rmtree(os.path.join(place, name), ignore_errors=True)
