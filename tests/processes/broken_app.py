"""An app that is there, but something it needs is not: no worker can import it."""

from __future__ import annotations

raise ImportError("libduck.so.3: cannot open shared object file")
