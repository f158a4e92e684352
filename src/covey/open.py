"""From a URL to everything below it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import env
from .engine.engine import Engine
from .errors import InvalidInput, NoQueue
from .store import migrate
from .store.dialect import Dialect
from .store.sqlite.database import Sqlite
from .store.store import Store

if TYPE_CHECKING:
    from .remote.remote import Remote

NAME_ONE = "name a queue with --db PATH or COVEY_DB"


def open_engine(url: str | None = None, *, create: bool = True, upgrade: bool = False) -> Engine:
    """The engine for a database, its tables in place. ``upgrade`` applies migrations to an old one."""
    if url is not None and is_remote(url):
        raise InvalidInput(f"{url} is a server; this works on a database itself, so run it where the server runs")
    dialect = open_dialect(url or find_database(), create=create)
    try:
        found = migrate.current(dialect)
        if found == 0 and not create:
            raise NoQueue(f"no queue in {dialect.url}; `covey enqueue` creates it, or name another with --db")
        if found == 0 or upgrade:
            migrate.migrate(dialect, database_id=env.new_database_id(), now=env.now())
        else:
            migrate.check(found, migrate.newest(dialect.name), dialect.url)
        store = Store(dialect)
        store.plan()
        engine = Engine(store, clock=dialect.now, rng=env.rng)
        if engine.stored_settings().get("durability") == "normal":
            dialect.set_durability("normal")
    except BaseException:
        dialect.close()
        raise
    return engine


def open_client(url: str | None = None, *, token: str | None = None, create: bool = True) -> Engine | Remote:
    """The queue, wherever it is: a database that we open, or a server that has it open."""
    url = url or find_database()
    return open_remote(url, token=token) if is_remote(url) else open_engine(url, create=create)


def is_remote(url: str) -> bool:
    """Whether that is a server's address, not a database."""
    return url.startswith(("http://", "https://"))


def open_remote(url: str, *, token: str | None = None, patience_s: float = 5.0) -> Remote:
    """A server's queue. The token: as given, else COVEY_TOKEN, else what the file COVEY_TOKEN_FILE holds."""
    from .remote.remote import Remote

    return Remote(url, token=token or find_token(), patience_s=patience_s)


def find_token() -> str | None:
    """COVEY_TOKEN, else the content of COVEY_TOKEN_FILE; None if neither is set."""
    if token := os.environ.get("COVEY_TOKEN"):
        return token.strip()
    if path := os.environ.get("COVEY_TOKEN_FILE"):
        return read_token(path)
    return None


def read_token(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(1000).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidInput(f"the token file {path} cannot be read: {reason}") from None


def place(url: str) -> str:
    """What a URL names, always written in the same way."""
    from urllib.parse import urlsplit

    scheme, marker, _ = url.partition("://")
    if is_remote(url):
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}{parts.path.rstrip('/')}"
    if marker and scheme in ("postgresql", "postgres"):
        from .store.postgres.url import Target

        return Target.of(url).place
    return url if is_memory(url) else os.path.realpath(_path(url))


def shown(url: str) -> str:
    """The URL without its password."""
    scheme, marker, rest = url.partition("://")
    user, at, where = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}:***@{where}" if marker and at and ":" in user else url


def is_memory(url: str) -> bool:
    """Whether it names a queue that only its own process can see."""
    return url.startswith(("memory:", ":memory:", "sqlite://:memory:"))


def _path(url: str) -> str:
    """The file that a URL without a server names."""
    _, marker, rest = url.partition("://")
    return os.path.expanduser(url if not marker else "/" + rest.lstrip("/") if rest.startswith("/") else rest)


def open_dialect(url: str, *, create: bool = True) -> Dialect:
    if url in ("memory:", "sqlite://:memory:", ":memory:"):
        return Sqlite.memory(os.urandom(4).hex())
    if url.startswith("memory:"):
        return Sqlite.memory(url.removeprefix("memory:"))
    scheme, marker, _ = url.partition("://")
    if scheme in ("postgresql", "postgres") and marker:
        return _postgres(url)
    if marker and scheme not in ("sqlite", "file"):
        raise InvalidInput(f"no database of the kind {scheme!r}; pass a path, sqlite:///path or postgresql://…")
    path = _path(url)
    if not path or "\x00" in path:
        raise InvalidInput("the database needs a path, for example --db ./queue.db")
    return Sqlite(path, create=create)


def _postgres(url: str) -> Dialect:
    try:
        from .store.postgres.database import Postgres
    except ImportError as error:
        raise InvalidInput(f"PostgreSQL needs its driver ({error}); pip install 'covey[postgres]'") from None
    return Postgres(url)


def find_database(start: str | None = None) -> str:
    """COVEY_DB, else the nearest covey.toml upwards, else one per user."""
    if given := os.environ.get("COVEY_DB"):
        return given
    if found := _from_toml(Path(start or os.getcwd())):
        return found
    return str(_home() / "queue.db")


def _home() -> Path:
    """The user's own directory for queues, which is there; or one line about what is missing."""
    data = os.environ.get("XDG_DATA_HOME")
    if data is None or not os.path.isabs(data):  # a relative one means nothing, says the standard
        try:
            home = Path.home()
        except RuntimeError:
            raise InvalidInput(f"this user has no home directory and HOME is not set; {NAME_ONE}") from None
        if not home.is_dir():
            raise InvalidInput(f"the home directory {home} is not there; {NAME_ONE}")
        data = str(home / ".local" / "share")
    place = Path(data) / "covey"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{place} cannot be made ({error.strerror}); {NAME_ONE}") from None
    return place


def _from_toml(directory: Path) -> str | None:
    for place in (directory, *directory.parents):
        file = place / "covey.toml"
        if file.is_file():
            import tomllib

            try:
                named = tomllib.loads(file.read_text()).get("db")
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise InvalidInput(f"{file}: {error}") from None
            if named is None:
                continue
            if not isinstance(named, str):
                raise InvalidInput(f'{file}: db must be a string, as in db = "queue.db"')
            return named if "://" in named else str(place / named)
    return None
