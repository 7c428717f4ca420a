"""What Redis holds of a line, read: its places, its shelf, and for whom a resource is reserved."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from giliran import keys

if TYPE_CHECKING:
    from tests.sim.fake_redis import FakeRedis


@dataclass(frozen=True, slots=True)
class Entry:
    """What the shelf says of one ticket."""

    kind: str
    called: int
    by: str
    ends: int
    verdict: str
    group: str
    route: str

    @property
    def waits(self) -> bool:
        """Whether it is parked and was not called."""
        return self.kind == "job" and not self.by and not self.verdict


@dataclass(frozen=True, slots=True)
class Line:
    """A line at one moment; `dead` is how many were set aside."""

    ranks: dict[str, float] = field(default_factory=dict[str, float])
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    dead: int = 0

    def waiting(self, group: str) -> list[str]:
        """Name who of a group is parked and was not called."""
        return [t for t, one in self.entries.items() if one.waits and one.group == group]

    def standing(self, now_ms: int) -> list[str]:
        """Name who stands in line and would come."""
        known = ((ticket, self.entries.get(ticket)) for ticket in self.ranks)
        return [
            ticket for ticket, one in known
            if one and (one.kind == "job" or (one.ends > now_ms and not one.called))
        ]  # fmt: skip


NOBODY = Line()


@lru_cache(10_000)
def entry(text: str) -> Entry:
    """Read one entry of the shelf."""
    kind, called, by, ends, verdict, group, route = text.split("|")
    return Entry(kind, int(called), by, int(ends), verdict, group, route)


def reserved_for(value: object) -> str:
    """Name the ticket that a lock value is reserved for; "" if it is a lease or nothing."""
    if not isinstance(value, str) or not value.startswith("reserved;"):
        return ""
    return value.partition(";pub=")[2].partition(";")[0]


def look(redis: FakeRedis, key: str) -> Line:
    """Read the line of a resource."""
    ranks, shelf = (redis.peek(one) for one in keys.line(key))
    told = cast("dict[str, str]", shelf or {})
    entries = {name[1:]: entry(text) for name, text in told.items() if name[0] == "="}
    dead = redis.peek(keys.dead(key)) or ()
    return Line(cast("dict[str, float]", ranks or {}), entries, len(dead))
