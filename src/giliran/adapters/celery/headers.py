"""What a message carries for its guards: the stamp of its publication, and what it met so far."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from giliran.jobs import Carried

PUBLICATION = "giliran_publication"
ELDER = "giliran_elder"
AGAIN = "giliran_again"  # Marks our own put-back for the stamp, which takes it off: never sent.
CARRIED = {
    "contentions": "giliran_contentions",
    "contended_since_ms": "giliran_contended_since_ms",
    "recoveries": "giliran_recoveries",
    "outages": "giliran_outages",
    "rank": "giliran_rank",
    "verdict": "giliran_verdict",
}


def carried(headers: dict[str, Any]) -> Carried:
    """Read what a message carries of its earlier deliveries."""
    found = {name: headers.get(key) for name, key in CARRIED.items()}
    verdict = str(found.pop("verdict") or "")
    return Carried(**{name: int(value or 0) for name, value in found.items()}, verdict=verdict)


def stamp(headers: dict[str, Any] | None = None, **_: object) -> None:
    """Give every publication an id of its own; only our own put-back keeps the one it has."""
    if headers is None or headers.pop(AGAIN, False):
        return
    for key in CARRIED.values():
        headers.pop(key, None)
    # Only the framework's own retry brings the headers of the message it is a retry of.
    headers[ELDER] = headers.get(PUBLICATION, "")
    headers[PUBLICATION] = uuid4().hex
