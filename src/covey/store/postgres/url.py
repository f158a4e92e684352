"""What a PostgreSQL URL names: a database, a schema in it, and where to listen."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...errors import InvalidInput

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")

# A host that is gone without a word is noticed in seconds, not in the hours of TCP's defaults.
DEFAULTS = {
    "application_name": "covey",
    "client_encoding": "UTF8",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


class Target(Struct, frozen=True):
    conninfo: str
    listen: str | None  # where to listen; None: not at all
    schema: str
    shown: str  # the URL without its password

    @classmethod
    def of(cls, url: str) -> Target:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        schema = options.pop("schema", "covey")
        listen = options.pop("listen", "on")
        listen_url = options.pop("listen_url", None)
        if not SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
            raise InvalidInput(f"schema {schema!r}: small letters, digits and _, at most 41, not pg_…")
        if listen not in ("on", "off"):
            raise InvalidInput(f"listen={listen!r}: on, or off where the server can only be polled")
        conninfo = _conninfo(urlunsplit(parts._replace(query=urlencode(options, quote_via=quote))))
        where = conninfo if listen_url is None else _conninfo(listen_url)
        return cls(conninfo, where if listen == "on" else None, schema, _shown(url))

    @property
    def lock(self) -> int:
        """The number of the advisory lock that every writer of this queue shares."""
        return int.from_bytes(hashlib.sha256(f"covey {self.schema}".encode()).digest()[:8], signed=True)

    @property
    def place(self) -> str:
        """The database and the schema, however the URL was written, whoever comes in."""
        named = conninfo_to_dict(self.conninfo)
        base = named.get("dbname") or named.get("user") or ""
        where = f"{named.get('host') or named.get('hostaddr') or ''}:{named.get('port') or 5432}"
        return f"postgresql://{where}/{base}?schema={self.schema}"

    @property
    def channel(self) -> str:
        return f"covey_{self.schema}"

    def side(self) -> str:
        """This host's own directory for the queue."""
        named = {name: value for name, value in conninfo_to_dict(self.conninfo).items() if name != "password"}
        server = [str(named.get(name) or "") for name in ("host", "port", "dbname")]
        name = hashlib.sha256("\n".join([*server, self.schema]).encode()).hexdigest()[:16]
        home = os.path.expanduser("~")  # stays as it is where nobody knows one
        state = os.environ.get("XDG_STATE_HOME") or (os.path.join(home, ".local/state") if os.path.isdir(home) else "")
        side = os.path.join(state, "covey", name)
        try:
            if not os.path.isabs(state):
                raise NotADirectoryError(state)
            os.makedirs(side, exist_ok=True)
        except OSError:
            side = os.path.join(tempfile.gettempdir(), f"covey-{os.getuid()}", name)
            os.makedirs(side, mode=0o700, exist_ok=True)
        return side


def _conninfo(url: str) -> str:
    try:
        given = conninfo_to_dict(url)
        return make_conninfo(**{name: str(value) for name, value in (DEFAULTS | given).items() if value is not None})
    except psycopg.Error as error:
        raise InvalidInput(f"{_shown(url)}: {str(error).strip()}") from None


def _shown(url: str) -> str:
    parts = urlsplit(url)
    user, marker, place = parts.netloc.rpartition("@")
    if ":" in user:
        user = user.partition(":")[0] + ":***"
    options = [(name, "***" if name in ("password", "listen_url") else value) for name, value in parse_qsl(parts.query)]
    return urlunsplit(parts._replace(netloc=user + marker + place, query=urlencode(options, safe="/*:")))
