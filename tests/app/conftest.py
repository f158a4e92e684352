from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from covey import Covey
from covey.core.ports import Source
from covey.testing import HandPool


@pytest.fixture
def app(url: str) -> Iterator[Covey]:
    """An app on an empty queue, a file and in memory."""
    with Covey(url) as app:
        yield app


@pytest.fixture
def worker(app: Covey) -> HandPool:
    """Claims and reports when the test says so."""
    return HandPool(cast(Source, app.client))
