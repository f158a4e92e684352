"""The children of a job as its join sees them."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.model import Child
from ..errors import NotFound, Refused

_decode = msgspec.json.Decoder(list[Child]).decode


class Children(list[Child]):
    """How each child ended, in the order of spawning."""

    @classmethod
    def from_json(cls, text: str | bytes | None) -> Children:
        return cls(_decode(text)) if text else cls()

    def by_key(self, key: str) -> Child:
        """The child that was spawned with this key; NotFound if there is none."""
        for child in self:
            if child.key == key:
                return child
        raise NotFound(f"no child has the key {key!r}")

    def results(self) -> list[Any]:
        """What the completed ones returned, in order; Refused if a result was too large to be handed over."""
        for child in self:
            if child.left_out:
                raise Refused(
                    f"the results are too large together, from job {child.id} on; read them one by one with app.job(id)"
                )
        return [child.result for child in self if child.state == "completed"]

    def failed(self) -> Children:
        """Those that did not complete."""
        return Children(child for child in self if child.state != "completed")
