"""What must hold of parked jobs at every step: each is kept until it ends, of a group the newest.

Exempt is what was parked when data was lost, and a copy that comes later than it is known for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.sim import said
from tests.sim.shelf import NOBODY, Entry, Line, look, reserved_for
from tests.sim.violation import Violation

from giliran import keys

if TYPE_CHECKING:
    from tests.sim.fake_redis import FakeRedis

    from giliran.steps import Call

REFUSED, HOPELESS = 20, 100  # What one refusal counts, and how much is too much.
HUGE = float("inf")
CALLERS = ("finish", "sweep", "leave", "reclaim")


class OnShelf:
    """Watches the parked jobs of all resources.

    Attributes:
        carries: whether queue or workers have a publication, or had it until its end; by the world.
        repeated: tickets of jobs of which there may be more than one copy; by the broker.
        recovered: tickets of jobs that were put back since they lost their lease; by their ends.
        stray: tokens of which a request may still arrive; by the oracle.
        index_lost: whether some line may be marked no more, since data was lost.
        lost: tickets that were parked when data was lost: nothing is promised to them.
        dead: tickets that were set aside.
        lines: every line that was looked at, as it was last.
    """

    def __init__(self, redis: FakeRedis, seen: Counter[str], stray: set[str]) -> None:
        self.redis = redis
        self.seen = seen
        self.stray = stray
        self.carries: Callable[[str], bool] = lambda _: True
        self.repeated: set[str] = set()
        self.recovered: set[str] = set()
        self.index_lost = False
        self.lost: set[str] = set()
        self.dead: set[str] = set()
        self.lines: dict[str, Line] = {}
        self._came: dict[tuple[str, str], int] = {}
        self._superseded: dict[tuple[str, str], int] = {}  # Until when a copy is known, in ms.
        self._blame: Counter[str] = Counter()
        self._answered: set[str] = set()  # Somebody has answered for its last call.

    def unfinished(self) -> list[str]:
        """Name who is parked and was promised an end, and lines that only a sweep can end."""
        left: list[str] = []
        for key in self.lines:
            endless = keys.line(key)[1] not in self.redis.ends
            for ticket, one in look(self.redis, key).entries.items():
                if one.kind == "job" or (one.kind == "wait" and endless):
                    left.append(ticket)
        return [ticket for ticket in left if ticket not in self.lost]

    # ------------------------------------------------------------------ what others tell

    def lose(self, key: str | None) -> None:
        """Redis has lost data of one resource, or of any: who was parked may be lost."""
        there = {one[1:].partition("}")[0] for one in self.redis.values if one.endswith(":parked")}
        for name in there | self.lines.keys():
            if key in (None, name):  # Who is gone, and who is back.
                self.lost |= self.lines.get(name, NOBODY).entries.keys()
                self.lost |= look(self.redis, name).entries.keys()
        self.index_lost = True
        self.disorder(key)

    def disorder(self, key: str | None) -> None:
        """Time is not what it was, or what was known of one resource, or of any."""
        for name in [name for name in self._came if key in (None, name[0])]:
            self._came[name] = 0
        for name in [name for name in self._superseded if key in (None, name[0])]:
            del self._superseded[name]

    def note_answer(self, call: Call[Any], reply: Any) -> None:
        """Somebody reads this answer to its claim: the job has met the resource, if not before."""
        self._came.setdefault((said.resource(call), said.ticket(call)), int(reply[0]))

    # ------------------------------------------------------------------ every script

    def check(self, call: Call[Any], before: Line, after: Line, reply: Any) -> None:
        """Compare a line before and after a script."""
        key, name = said.resource(call), call.script.name
        self.lines[key] = after
        if name == "claim" and reply[1] == "held":
            self._check_newest(key, said.ticket(call), "runs")
        if after == before:
            return
        set_aside = self._set_aside(key, before.dead)
        for ticket, old in before.entries.items():
            new = after.entries.get(ticket)
            self._count(call, ticket, old, new)
            if new is not None:
                self._check_entry(call, key, ticket, old, new)
            elif ticket in set_aside:
                self._check_dead(name, ticket, set_aside[ticket])
            else:
                self._check_gone(call, ticket, old)
        for ticket in after.entries.keys() - before.entries.keys():
            self._check_new(call, key, ticket, after.entries[ticket])
        if name == "park":
            self._check_superseded(call, key, before, after)
        for group in {one.group for one in after.entries.values()} - {""}:
            stays = [ticket for ticket in after.waiting(group) if ticket not in self.lost]
            if len(stays) > 1:
                raise Violation(f"coalesce: {stays} wait in {key} as {group}")

    def _count(self, call: Call[Any], ticket: str, old: Entry, new: Entry | None) -> None:
        """Note what speaks against a job: its calls, unless there was no broker; and refusals."""
        name, own = call.script.name, said.ticket(call) == ticket
        if name == "offer" and own and old.by.startswith(call.args[1]):
            became = call.args[2]
            if ticket not in self._answered and became != "taken":
                self._answered.add(ticket)
                self._blame[ticket] += REFUSED - 1 if became == "refused" else -1
        elif new and (new.called, new.by) != (old.called, old.by):
            self._answered.discard(ticket)
            if name in CALLERS:
                self.seen["called again"] += self._blame[ticket] > 0
                self._blame[ticket] += 1
            else:
                self._blame[ticket] = int(new.verdict == "superseded")

    def _check_entry(self, call: Call[Any], key: str, ticket: str, old: Entry, new: Entry) -> None:
        name = call.script.name
        if new.kind != old.kind:
            raise Violation(f"{name} made {new} of {ticket}, which was {old}")
        if new.kind == "wait":
            return
        if new.called != self._blame[ticket] and ticket not in self.lost:
            raise Violation(f"{ticket} has {new.called} against it, not {self._blame[ticket]}")
        if new.verdict != old.verdict:
            self._check_verdict(name, key, ticket, old, new.verdict)
        elif name in CALLERS and not new.verdict and new.called > old.called:
            if reserved_for(self.redis.peek(key)) != ticket:
                raise Violation(f"{name} called {ticket} to {key}, and keeps it for nobody")
        elif name == "park" and said.ticket(call) == ticket:
            self.seen["a copy is parked already"] += 1
        if name == "offer" and new.called > old.called and new.called >= HOPELESS:
            raise Violation(f"S8: {ticket} was refused too often, and is not set aside")

    def _check_verdict(self, name: str, key: str, ticket: str, old: Entry, verdict: str) -> None:
        """A job ends once: for a newer one, or when its time is over and its turn has not come."""
        by = {"gave_up": "sweep", "superseded": "park"}.get(verdict)
        early = by == "sweep" and old.ends > self.redis.us // 1000
        if old.verdict or by != name or early:
            raise Violation(f"{name} ends {ticket} as {verdict!r}; it was {old}")
        if by == "sweep" and reserved_for(self.redis.peek(key)) == ticket:
            raise Violation(f"{name} ends {ticket}, whose turn has come")
        self.seen[f"verdict: {verdict}"] += 1

    def _check_gone(self, call: Call[Any], ticket: str, old: Entry) -> None:
        """Only who waits leaves by itself; a job is kept until it ended or the queue has it."""
        name, own = call.script.name, said.ticket(call) == ticket
        if old.kind == "wait":
            if not own and old.ends > self.redis.us // 1000 and not old.called:
                raise Violation(f"{name} put {ticket} out of the line, which waits")
            self.seen["a waiter that is gone is passed over"] += not own
            return
        if not own or name not in ("finish", "offer"):
            raise Violation(f"S8: {name} took {ticket} off the shelf, as {old}")
        if ticket not in self.lost and not self.carries(unquote(ticket)):
            raise Violation(f"S8: {name} took {ticket} off the shelf, and nobody has it")

    def _set_aside(self, key: str, dead: int) -> dict[str, str]:
        """Name who was set aside by this script, with what is kept of each."""
        told: Any = self.redis.peek(keys.dead(key)) or ()
        return dict(one.split("|", 1) for one in told[dead:])

    def _check_dead(self, name: str, ticket: str, kept: str) -> None:
        """A job is given up for dead after five refusals, or very many calls without an answer."""
        if not kept.split("|", 3)[3] and ticket not in self.lost:
            raise Violation(f"S8: {ticket} is set aside without what it was")
        blame = self._blame[ticket] + (name == "sweep")
        if blame < HOPELESS and ticket not in self.lost:
            raise Violation(f"S8: {name} gave {ticket} up for dead, with {blame} against it")
        self.dead.add(ticket)
        self.seen[f"dead by {name}"] += 1

    def _check_new(self, call: Call[Any], key: str, ticket: str, new: Entry) -> None:
        by = {"job": "park", "wait": "claim"}.get(new.kind)
        if call.script.name != by or said.ticket(call) != ticket:
            raise Violation(f"{call.script.name} made {new} of {ticket} out of nothing")
        self._blame[ticket] = int(new.verdict == "superseded")
        self._answered.discard(ticket)
        self.seen["back from the dead"] += ticket in self.dead
        self.dead.discard(ticket)
        if new.kind == "job" and key not in (self.redis.peek(keys.index(new.route)[1]) or {}):
            if self.index_lost or said.token(call) in self.stray:
                self.lost.add(ticket)
            self.seen["parked in a line that is marked no more"] += 1

    def check_marked(self, key: str, ticket: str) -> None:
        """The queue is told that it need not keep this job: sweeps must know of its line."""
        one = look(self.redis, key).entries.get(ticket)
        if one is None or ticket in self.lost or self.index_lost:
            return
        if key not in (self.redis.peek(keys.index(one.route)[0]) or {}):
            raise Violation(f"S8: {ticket} is parked in {key}, and no sweep will look there")

    # ------------------------------------------------------------------ groups

    def _check_superseded(self, call: Call[Any], key: str, before: Line, after: Line) -> None:
        """Who is superseded ends for the newest, and never comes back."""
        for ticket, one in after.entries.items():
            old = before.entries.get(ticket)
            if one.verdict != "superseded" or (old and old.verdict):
                continue
            self._superseded[key, ticket] = self.redis.us // 1000 + int(call.args[9])
            stays = after.waiting(one.group)
            if not stays:
                raise Violation(f"coalesce: {ticket} is superseded by nobody")
            for other in stays:
                if after.ranks[other] > before.ranks.get(ticket, HUGE):
                    raise Violation(f"coalesce: {other} has a worse place than {ticket} had")
                self._check_newest(key, other, f"waits in place of {ticket}")
                self._check_newer(key, ticket, other)

    def _check_newer(self, key: str, ticket: str, other: str) -> None:
        mine, theirs = self._came.get((key, ticket), 0), self._came.get((key, other), 0)
        if not 0 < theirs < mine:
            return
        if other not in self.recovered and other not in self.repeated:
            raise Violation(f"coalesce: {ticket} is superseded by {other}, which is older")
        self.seen["coalesce: an older job came back"] += 1

    def _check_newest(self, key: str, ticket: str, does: str) -> None:
        if self._superseded.get((key, ticket), 0) > self.redis.us // 1000:
            raise Violation(f"coalesce: {ticket} {does}, although a newer one superseded it")
