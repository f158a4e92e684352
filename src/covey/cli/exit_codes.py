"""How a command ends: one line on stderr where something went wrong, and the exit code that says so."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ..errors import CoveyError
from .printing import decided, note, safe

OWN_CODES = {"run", "wait"}  # their exit code is the job's, so Covey's own errors have another one
OWN_ERROR = 125


def exit_code_of(error: BaseException, args: list[str]) -> int:
    """The error has been said in one line; its exit code."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, BrokenPipeError) or (isinstance(error, SystemExit) and error.code == 1 and not is_read()):
        return 1 if verb_of(args) in OWN_CODES else decided()
    if isinstance(error, SystemExit):  # completion ends that way
        return error.code if isinstance(error.code, int) else 0
    if (usage := getattr(error, "format_message", None)) is not None:  # what typer raises on wrong usage
        _say(_usage_line(error, usage()))
        return int(getattr(error, "exit_code", 2))
    own = OWN_ERROR if verb_of(args) in OWN_CODES else None
    if isinstance(error, CoveyError):
        _say(str(error))
        return own or error.exit_code
    if type(error).__name__ == "Abort":
        _say("stopped; nothing was changed")
        return own or 1
    if isinstance(error, OSError):
        _say(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
        return own or 1
    if isinstance(error, UnicodeEncodeError) and (word := _unreadable(args)):
        _say(f"{word!r} is not UTF-8, and nothing here can be called that")
        return own or 2
    if os.environ.get("COVEY_DEBUG"):
        raise error
    _say(f"unexpected {type(error).__name__}: {error}; a bug in Covey, COVEY_DEBUG=1 shows where")
    return own or 1


def is_read() -> bool:
    """False once whoever read our stdout is gone: it was `head`, perhaps, and has seen enough.

    Or if nobody ever did: a library that meets a closed pipe puts /dev/null in its place before it ends us.
    """
    import select

    watch = select.poll()
    try:
        watch.register(1, 0)  # errors are told unasked
        gone = any(what & select.POLLERR for _, what in watch.poll(0))
        return not gone and not os.path.samestat(os.fstat(1), os.stat(os.devnull))
    except OSError:
        return True


def verb_of(args: list[str]) -> str | None:
    """The verb among the arguments: the first word that is neither an option of Covey's own nor its value."""
    words = iter(args)
    for word in words:
        if word in ("--db", "--token-file"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def _unreadable(args: list[str]) -> str | None:
    """The first argument that is not text."""
    from ..core.check import is_unicode

    return next((word for word in args if not is_unicode(word)), None)


def _usage_line(error: BaseException, message: str) -> str:
    context = getattr(error, "ctx", None)
    text = " ".join(message.split()).rstrip(".").replace(". Did you mean", "; did you mean")
    mark = " " if text.endswith("?") else "; "
    where = f"{mark}see `{context.command_path} --help`" if context is not None else ""
    return (text[:1].lower() + text[1:] if text else "wrong usage") + where


def _say(message: str) -> None:
    note("error: " + safe(" ".join(message.split("\n"))))


def end(code: int) -> NoReturn:
    """The process is over; what was printed is out, or its reader is gone, which changes no exit code."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass
    except OSError as error:  # a full disk behind a redirect
        code = code or 1
        os.write(2, f"error: cannot write the answer: {error.strerror}\n".encode())
    # Everything durable is on disk already; tearing the interpreter down would only cost time.
    os._exit(code)
