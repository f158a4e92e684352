"""A PostgreSQL server for as long as standard input is open: its URL is the only line that is said."""

from __future__ import annotations

import sys

from tests.kit.postgres import Server


def main() -> None:
    server = Server()
    try:
        print(server.admin_url, flush=True)
        sys.stdin.read()
    finally:
        server.close()


if __name__ == "__main__":
    main()
