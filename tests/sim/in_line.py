"""What must hold of a line at every step: its order, and for whom the resource is reserved.

The order of first arrival is kept here, apart from the ranks that Redis keeps. Exempt are: who does
not stand in line just then (it was called and lies in its queue, or it never had to wait), a waiter
that is dead or did not come when it was called, and whoever arrived before data was lost or the
clock was set, or has a rank from then. A copy of a job that knows no rank gets a place of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tests.sim import said
from tests.sim.shelf import Line, reserved_for
from tests.sim.violation import Violation

from giliran import keys

if TYPE_CHECKING:
    from tests.sim.fake_redis import FakeRedis

    from giliran.steps import Call

RESERVED_MS = range(1000, 5001)


class InLine:
    """Watches the order of the lines of all resources.

    Attributes:
        repeated: tickets of jobs of which there may be more than one copy; by the broker.
        carried: what ranks the messages carry for which tokens ask; by the work.
        stray: tokens of which a request may still arrive; by the oracle.
        is_lost: whether a ticket was parked when data was lost; by the oracle.
    """

    def __init__(
        self, redis: FakeRedis, seen: Counter[str], stray: set[str], is_lost: Callable[[str], bool]
    ) -> None:
        self.redis = redis
        self.seen = seen
        self.stray = stray
        self.is_lost = is_lost
        self.repeated: set[str] = set()
        self.carried: dict[str, int] = {}
        self._arrived: dict[tuple[str, str, float], int] = {}  # lock key, ticket, rank
        self._here: set[tuple[str, str]] = set()
        self._called_ms: dict[str, int] = {}
        self._count = 0

    def disorder(self, key: str | None) -> None:
        """The order of those who have arrived is not known any more: of one line, or of any."""
        for place in self._arrived:
            if key in (None, place[0]):
                self._arrived[place] = 0
        self._here = {name for name in self._here if key not in (None, name[0])}

    def note_sent(self, call: Call[Any]) -> None:
        """Who carries a rank says so, else it would lose its place."""
        if call.script.name in ("claim", "park"):
            carried = self.carried.get(said.token(call), 0)
            if carried and float(said.rank(call) or 0) != carried:
                raise Violation(f"FIFO: {call.script.name} of {said.ticket(call)} hides its rank")

    def note_published(self, key: str, ticket: str, rank: int) -> None:
        """A called job is given to the broker, and must be able to come back to its place."""
        if (key, ticket, float(rank)) not in self._arrived and not self.is_lost(ticket):
            raise Violation(f"FIFO: {ticket} is published with rank {rank}, which it never had")
        if reserved_for(self.redis.peek(key)) != ticket:
            self.seen["published after its reservation"] += 1
        late = self.redis.us // 1000 - self._called_ms.get(ticket, 0) > 60_000
        self.seen["published over a minute after it was called"] += late

    # ------------------------------------------------------------------ every script

    def check(self, call: Call[Any], before: Line, after: Line, value: object, reply: Any) -> None:
        """Compare a line before and after a script; `value` is what the lock was before."""
        key = said.resource(call)
        now = self.redis.peek(key)
        if call.script.name == "leave":
            self._here.discard((key, said.ticket(call)))
        granted = call.script.name == "claim" and reply[1] == "held" and now is not value
        resent = isinstance(value, str) and value.startswith(said.token(call))
        self._check_reservation(call, key, before, value, now, granted=granted)
        if granted and not resent:
            self._check_grant(call, key, before, value)
        self._check_ranks(call, before, after, reply)
        for ticket in before.ranks.keys() - after.ranks.keys():
            if ticket in before.entries and before.entries[ticket].kind == "wait":
                self._here.discard((key, ticket))
        if after.dead > before.dead:  # Who is set aside and comes all the same comes anew.
            for ticket in before.entries.keys() - after.entries.keys():
                self._here.discard((key, ticket))
        self._note_arrivals(call, key, before, after)
        called = reserved_for(now)
        if called and called != reserved_for(value):
            self._check_called(call, key, after, called)

    def _check_reservation(
        self, call: Call[Any], key: str, before: Line, value: object, now: object, *, granted: bool
    ) -> None:
        ticket, ours = reserved_for(value), said.ticket(call)
        if not ticket or now is value or ticket == ours:
            return
        if not granted:
            raise Violation(f"{call.script.name} of {ours} ended the reservation for {ticket}")
        rank = float(cast("str", value).partition(";rank=")[2].partition(";")[0])
        mine, theirs = self._mine(call, key, before), self._arrived.get((key, ticket, rank), 0)
        if mine is None or 0 < theirs < mine:
            raise Violation(f"FIFO: {ours} took {key}, which was reserved for {ticket}")
        self.seen["a reservation yields to who was there before"] += 1

    def _mine(self, call: Call[Any], key: str, before: Line) -> int | None:
        """When the asker arrived: by its place, or by the rank that it carries."""
        ours = said.ticket(call)
        ranks = [float(said.rank(call) or 0), before.ranks.get(ours, 0.0)]
        known = [self._arrived[key, ours, r] for r in ranks if (key, ours, r) in self._arrived]
        return min(known, default=None)

    def _standing(self, key: str, line: Line) -> list[tuple[int, str]]:
        return [
            (self._arrived.get((key, ticket, line.ranks[ticket]), 0), ticket)
            for ticket in line.standing(self.redis.us // 1000)
        ]

    def _check_grant(self, call: Call[Any], key: str, before: Line, value: object) -> None:
        ours, mine = said.ticket(call), self._mine(call, key, before)
        called = reserved_for(value)
        for theirs, ticket in self._standing(key, before) if called != ours else ():
            if ticket not in (ours, called) and (mine is None or 0 < theirs < mine):
                raise Violation(f"FIFO: {ours} was granted {key} before {ticket}")
        self.seen["granted in turn"] += bool(before.ranks) and mine is not None
        self._here.discard((key, ours))

    def _check_ranks(self, call: Call[Any], before: Line, after: Line, reply: Any) -> None:
        """Nobody is moved back, and who comes with a rank stands there, or better."""
        for ticket, rank in before.ranks.items():
            if after.ranks.get(ticket, 0.0) > rank:
                raise Violation(f"FIFO: {call.script.name} moved {ticket} back from {rank:.0f}")
        had, ticket = float(said.rank(call) or 0), said.ticket(call)
        if not had or reply[1] not in ("parked", "busy", "queued"):
            return
        position, rank = reply[2:4] if reply[1] == "parked" else reply[-2:]
        if int(position) >= 0:
            if float(rank) > had:
                raise Violation(f"FIFO: {ticket} had rank {had:.0f}, and stands at {rank}")
            self.seen["back in line at its old rank"] += 1
            self.seen["back in line before a copy"] += before.ranks.get(ticket, 0.0) > had

    def _note_arrivals(self, call: Call[Any], key: str, before: Line, after: Line) -> None:
        """Note who stands in line now and did not, and who took another's place."""
        for ticket, rank in after.ranks.items():
            if before.ranks.get(ticket) == rank:
                continue
            fresh = not said.rank(call) and ticket not in before.ranks
            again = call.script.name == "park" and fresh and (key, ticket) in self._here
            late = said.token(call) in self.stray  # A copy of a request comes when all is over.
            if again and not late and ticket not in self.repeated and not self.is_lost(ticket):
                raise Violation(f"FIFO: {ticket} was here before, and stands behind everybody")
            self._here.add((key, ticket))
            self._count += 1
            grouped = after.entries[ticket].group
            others = {*before.ranks, said.ticket(call)} if grouped else ()  # Whom it supersedes.
            known = [self._arrived.get((key, other, rank)) for other in others]
            place = next((one for one in known if one is not None), self._count)
            ahead = rank > self.redis.us + 1000  # It stands behind one from before a clock was set.
            self._arrived.setdefault((key, ticket, rank), 0 if ahead else place)
            self.seen["arrived in line"] += fresh
            self.seen["a copy without a rank stands behind"] += again

    def _check_called(self, call: Call[Any], key: str, after: Line, called: str) -> None:
        mine = self._arrived.get((key, called, after.ranks.get(called, 0.0)), 0)
        kind = after.entries[called].kind
        self._called_ms[called] = self.redis.us // 1000
        self.seen[f"{call.script.name} called the next"] += 1
        self.seen[f"called: {kind}"] += 1
        if kind == "wait" and not self.redis.peek(keys.bell(key, called)):
            raise Violation(f"{call.script.name} called {called} to {key}, and does not ring")
        left = self.redis.ends[key] - self.redis.us // 1000
        if left not in RESERVED_MS:
            raise Violation(f"S10: {key} is reserved for {left} ms")
        for theirs, ticket in self._standing(key, after):
            if ticket != called and 0 < theirs < mine:
                raise Violation(f"FIFO: {called} was called to {key} before {ticket}")
