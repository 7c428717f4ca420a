"""What must hold at every step, seen from the store and from all holders at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.sim import said
from tests.sim.in_line import InLine
from tests.sim.on_shelf import OnShelf
from tests.sim.shelf import look
from tests.sim.violation import Violation

from giliran.holder import parse

if TYPE_CHECKING:
    from tests.sim.server import Server

    from giliran.lease import Lease
    from giliran.steps import Call

FENCE_LIFE, RECORD_LIFE = 86_400_000, 30 * 86_400_000
LISTED = (":line", ":parked", ":due")  # Without an end for as long as jobs are parked.


@dataclass(frozen=True, slots=True)
class Written:
    """What a finish wrote down: every repeat must be answered with it."""

    state: str
    fingerprint: str
    result: str
    until_ms: int


class Oracle:
    """Watches every script run and every lease that a body runs under.

    What was granted or written before data was lost is excused from then on, and only that.

    Attributes:
        counted: overlaps and repetitions that were excused.
        granted: fences by token.
        finished: tokens whose finish was applied.
        closed: tokens whose body is over.
        crashed: tokens whose body was ended by a time limit, at any point.
        written: what was recorded, by record key.
        disordered: the largest fence of a resource from before its order was lost.
        line: watches who stands in line.
        shelf: watches what is parked.
        queued: tokens that met a free resource with a line.
        dead: pids of processes that have ended.
        stray, doubled: tokens of which a request may still arrive, or arrived twice.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.redis = server.redis
        self.counted: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.dead: set[str] = set()
        self.granted: dict[str, int] = {}
        self.finished: set[str] = set()
        self.closed: set[str] = set()
        self.crashed: set[str] = set()
        self.stray: set[str] = set()
        self.shelf = OnShelf(server.redis, self.seen, self.stray)
        self.line = InLine(
            server.redis, self.seen, self.stray, lambda ticket: ticket in self.shelf.lost
        )
        self.doubled: set[str] = set()
        self.blocked_by: dict[str, str] = {}
        self.queued: set[str] = set()
        self.written: dict[str, Written] = {}
        self._fences: dict[str, int] = defaultdict(int)
        self.disordered: dict[str, int] = {}
        self._floor_only: set[str] = set()
        self._keys: dict[str, str] = {}
        self._attempts: dict[str, int] = {}
        self._holding: dict[str, list[Lease]] = defaultdict(list)
        self._trusted_until: dict[str, float] = {}
        self._forgotten: set[str] = set()

    # ------------------------------------------------------------------ holders

    def begin(self, lease: Lease) -> None:
        """A body starts under this lease."""
        if lease.token not in self.granted:
            raise Violation(f"S11: a body starts under {lease!r}, which nobody granted")
        if lease.lost:
            raise Violation(f"S2: a body starts under {lease!r}, which is lost")
        self._holding[lease.key].append(lease)

    def end(self, lease: Lease) -> None:
        """The body is over."""
        self._holding[lease.key].remove(lease)

    def check_trust(self, lock_key: str) -> None:
        """At most one holder trusts its lease, and Redis agrees with it."""
        holding = self._holding[lock_key]
        if not holding:
            return
        for lease in holding:
            before = self._trusted_until.get(lease.token, lease.trusted_until)
            if before < lease.trusted_until and lease._clock() >= before:
                raise Violation(f"S2: {lease!r} was lost, and revives")
            self._trusted_until[lease.token] = lease.trusted_until
        trusted = [lease for lease in holding if not lease.lost]
        strict = [lease for lease in trusted if lease.token not in self._forgotten]
        if len(strict) > 1:
            raise Violation(f"S2: {len(strict)} holders trust their lease of {lock_key}")
        self.counted["holders at once"] += len(trusted) > 1
        for lease in strict:
            value = self.redis.peek(lock_key)
            if not isinstance(value, str) or not value.startswith(lease.token):
                raise Violation(f"S2: {lease!r} is trusted, but Redis has {value!r}")

    def excused(self, token: str) -> bool:
        """Whether data was lost since this token was granted."""
        return token in self._forgotten

    # ------------------------------------------------------------------ losses

    def lose(self, lock_key: str | None) -> None:
        """Redis has lost data of one resource, or of any; "" for the index of lines."""
        self.shelf.lose(lock_key or None)
        self.line.disorder(lock_key or None)
        if lock_key == "":
            return
        self._forgotten.update(
            token for token in self.granted if lock_key in (None, self._keys[token])
        )
        for kept in (self.written, self._attempts):
            for key in [k for k in kept if lock_key is None or lock_key in k]:
                del kept[key]
        self._floor_only.update([*self._fences] if lock_key is None else [lock_key])
        self.finished -= self._forgotten
        self._excuse_fences()

    def expire(self) -> None:
        """Forget what ended by itself, before the clock is set and time comes twice."""
        now_ms = self.redis.us // 1000
        for key in [key for key, known in self.written.items() if known.until_ms < now_ms]:
            del self.written[key]
        for key in list(self.redis.values):
            self.redis.peek(key)

    def clock_moved(self, *, forward: bool) -> None:
        """The server's clock was set: forward, all may be over early."""
        self.line.disorder(None)
        self.shelf.disorder(None)
        if forward:
            self._forgotten.update(self.granted)
            self.written.clear()
            self._attempts.clear()
            return
        self._excuse_fences()

    def _excuse_fences(self) -> None:
        """Fences whose last value was lost have only time to rise by, so it must not go back."""
        for key in self._floor_only:
            if self._fences[key] > self.redis.us:
                self.disordered[key] = max(self.disordered.get(key, 0), self._fences[key])
                self._fences[key] = 0
                self.counted["fence order after a loss and a clock set back"] += 1

    # ------------------------------------------------------------------ the store

    def apply(self, call: Call[Any]) -> Any:
        """Run a script, and compare before and after."""
        redis, key, token = self.redis, said.resource(call), said.token(call)
        before, record = redis.peek(key), redis.peek(said.record(call))
        all_before = [(redis.peek(each), redis.ends.get(each)) for each in call.keys]
        ours = isinstance(before, str) and before.startswith(token + ";")
        line = look(self.redis, key)
        reply = self.server.run(call)
        name = call.script.name
        if name == "lines":
            self.seen[f"lines: {call.args[0]}"] += 1
        else:
            self._check_lock(call, before, ours=ours)
            after = look(self.redis, key)
            self.shelf.check(call, line, after, reply)
            self.line.check(call, line, after, before, reply)
        if name == "claim":
            self._check_claim(call, reply, before, record, ours=ours)
        elif name in ("renew", "finish") and not ours:
            if all_before != [(redis.peek(each), redis.ends.get(each)) for each in call.keys]:
                raise Violation(f"S5: {name} by {token} changed what is not its own")
        elif name == "finish":
            self._note_finish(call, token, record)
        elif name == "renew" and int(reply) > 0:
            self._check_life(call, str(before))
        if name == "finish" and not ours:
            self.seen["finish sent again" if reply[1] == "done" else f"finish: {reply[1]}"] += 1
        elif name == "renew":
            self.seen[f"renew: {min(int(reply), 1)}"] += 1
        self._check_ends(call)
        return reply

    def _check_lock(self, call: Call[Any], before: Any, *, ours: bool) -> None:
        """Nobody but its holder changes a lease, unless its process is dead."""
        leased = isinstance(before, str) and not before.startswith("reserved;")
        if not leased or ours or self.redis.peek(said.resource(call)) is before:
            return
        if call.script.name != "reclaim" or parse(before)["pid"] not in self.dead:
            raise Violation(f"S5: {call.script.name} ended a lease of others: {before}")
        self.seen["reclaimed"] += 1

    def _check_claim(
        self, call: Call[Any], reply: Any, before: Any, noted: Any, *, ours: bool
    ) -> None:
        token, key, answer = call.args[0], call.keys[0], reply[1]
        record = said.record(call)
        if ours and answer not in ("held", "done", "mismatch"):
            raise Violation(f"R2: the holder {token} sent its claim again and was told {answer}")
        if answer == "done":
            self._check_replay(call, reply, record)
        if answer != "held":
            return
        self._check_life(call, str(self.redis.peek(key)))
        if ours:
            self.seen["claim sent again found its lease"] += 1
            if f";fence={int(reply[2])};" not in str(before):
                raise Violation(f"R2: the second answer to {token} has another fence")
            return
        if before is not None and not str(before).startswith("reserved;"):
            raise Violation(f"S1: {token} was granted {key}, which is held")
        self._note_grant(call, reply, record, noted)

    def _note_grant(self, call: Call[Any], reply: Any, record: str, noted: Any) -> None:
        token, key, fence = call.args[0], call.keys[0], int(reply[2])
        if fence <= self._fences[key]:
            raise Violation(f"S3: fence {fence} of {key} follows {self._fences[key]}")
        self._fences[key] = fence
        self._floor_only.discard(key)
        self.granted[token], self._keys[token] = fence, key
        if not record:
            return
        known = self.written.get(record)
        now_ms = self.redis.us // 1000
        if known is not None and now_ms <= known.until_ms:
            raise Violation(f"S6r: {record} runs although it is {known.state}")
        if call.args[5] == "record":
            self._note_attempt(call, reply, record, noted)

    def _note_attempt(self, call: Call[Any], reply: Any, record: str, noted: Any) -> None:
        """An attempt may start: the record agrees, is not in doubt, and allows another one."""
        if noted is None:
            self._attempts[record] = 0
        elif noted.get("fingerprint") != call.args[6]:
            raise Violation(f"S7: {record} runs for another fingerprint")
        elif noted.get("token") == call.args[0]:
            return  # A late copy of a claim whose lease is over; that is the same attempt.
        if record not in self._attempts:
            return  # Data was lost since it began.
        started = self._attempts[record] = self._attempts[record] + 1
        if started > int(call.args[9]):
            raise Violation(f"S9: attempt {started} of {record}, {call.args[9]} are allowed")
        if started > 1 and call.args[8] == "hold":
            raise Violation(f"S6r: {record} is in doubt, and runs again")
        if int(reply[3]) != started:
            raise Violation(f"S9: attempt {started} of {record} is called {reply[3]}")

    def _check_replay(self, call: Call[Any], reply: Any, record: str) -> None:
        known = self.written.get(record)
        self.seen[f"replay of {reply[2]}"] += 1
        if known is None:
            return
        told = (reply[2], call.args[6], reply[3])
        if told != (known.state, known.fingerprint, known.result):
            raise Violation(f"S7: {record} holds {known}, but {told} was told")

    def _note_finish(self, call: Call[Any], token: str, noted: Any) -> None:
        self.finished.add(token)
        record, ending = said.record(call), call.args[2]
        if not record:
            return
        if ending in ("done", "failed"):
            until = self.redis.us // 1000 + int(call.args[5])
            self.written[record] = Written(ending, call.args[3], call.args[4], until)
            self._attempts.pop(record, None)
        elif ending == "forget" and noted and noted.get("token") == token:
            if token in self.crashed:
                raise Violation(f"S6r: {token} crashed, and {record} was forgotten")
            if record in self._attempts:
                self._attempts[record] = 0

    def note_answer(self, call: Call[Any], reply: Any) -> None:
        """This very reply is read by who sent the call."""
        if call.script.name == "claim" and reply[1] in ("held", "busy", "queued"):
            self.shelf.note_answer(call, reply)
        if call.script.name == "claim" and reply[1] == "queued":
            self.queued.add(call.args[0])
        if call.script.name == "claim" and reply[1] in ("busy", "duplicate", "elder"):
            self.blocked_by[call.args[0]] = unquote(
                reply[3].partition(";pub=")[2].partition(";")[0]
            )

    def note_sent(self, call: Call[Any]) -> None:
        """Somebody sends this call."""
        self.line.note_sent(call)
        if call.script.name == "renew" and call.args[0] in self.closed:
            raise Violation(f"the heartbeat of {call.args[0]} goes on after its body")

    # ------------------------------------------------------------------ ends of keys

    def _check_life(self, call: Call[Any], value: str) -> None:
        """A lease just granted or renewed lives for its TTL at most, and never past max_hold."""
        left = self.redis.ends.get(call.keys[0], 0) - self.redis.us // 1000
        if left > int(call.args[1]):
            raise Violation(f"S10: {call.keys[0]} lives longer than its TTL")
        acquired = int(value.partition(";acquired=")[2].partition(";")[0])
        max_hold = int(value.partition(";max_hold=")[2].partition(";")[0])
        if self.redis.us // 1000 + left > acquired + max_hold:
            raise Violation(f"S10: {call.keys[0]} is held for longer than max_hold")

    def _check_ends(self, call: Call[Any]) -> None:
        redis = self.redis
        if len(redis.ends) != len(redis.values):
            endless = sorted(
                key for key in redis.values.keys() - redis.ends.keys()
                if not key.endswith(LISTED) and not key.startswith("{giliran}:")
            )  # fmt: skip
            if not endless:
                return
            raise Violation(f"S10: {call.script.name} left keys without an end: {endless}")
        for key in call.keys[1:]:
            life = redis.ends.get(key, 0) - redis.us // 1000 + min(0, self.server.jumped_us // 1000)
            if life > FENCE_LIFE + RECORD_LIFE:
                raise Violation(f"S14: {key} lives for {life} ms")
