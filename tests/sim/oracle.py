"""What must hold at every step, seen from the store and from all holders at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.fake_redis import FakeRedis

    from giliran.lease import Lease
    from giliran.steps import Call


class Violation(AssertionError):
    """Something happened that must not."""


class Oracle:
    """Watches every script run and every lease that a body runs under.

    Attributes:
        overlaps: how often two trusted one resource after Redis had lost data.
        finished: tokens whose finish was applied.
    """

    def __init__(self, redis: FakeRedis) -> None:
        self.redis = redis
        self.overlaps = 0
        self.data_lost = False
        self.clock_moved = False
        self.finished: set[str] = set()
        self.fences: dict[str, int] = defaultdict(int)
        self.granted: dict[str, int] = {}
        self.effects: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()
        self._holding: dict[str, list[Lease]] = defaultdict(list)
        self._forgotten: set[str] = set()

    # ------------------------------------------------------------------ holders

    def begin(self, lease: Lease) -> None:
        """A body starts under this lease."""
        self._holding[lease.key].append(lease)

    def end(self, lease: Lease) -> None:
        """The body is over."""
        self._holding[lease.key].remove(lease)

    def check_trust(self, lock_key: str) -> None:
        """At most one holder trusts its lease, and Redis agrees with it."""
        holding = self._holding[lock_key]
        if not holding:
            return
        trusted = [lease for lease in holding if not lease.lost]
        if len(trusted) > 1:
            if not self.data_lost:
                raise Violation(f"S2: {len(trusted)} holders trust their lease of {lock_key}")
            self.overlaps += 1
        for lease in trusted:
            value = self.redis.peek(lock_key)
            agreed = isinstance(value, str) and value.startswith(lease.token)
            if not agreed and lease.token not in self._forgotten:
                raise Violation(f"S2: {lease!r} is trusted, but Redis has {value!r}")

    def lose_data(self, lock_key: str | None) -> None:
        """Redis forgets one lock, or everything."""
        self.data_lost = True
        for held in self._holding.values():
            self._forgotten.update(lease.token for lease in held)
        # Grants whose bodies have not started yet are forgotten just as well.
        self._forgotten.update(self.granted)
        if lock_key is None:
            self.redis.flush()
        elif self.redis.peek(lock_key) is not None:
            del self.redis.values[lock_key], self.redis.ends[lock_key]

    # ------------------------------------------------------------------ the store

    def apply(self, call: Call[Any]) -> Any:
        """Run a script, and compare before and after."""
        redis, key, token = self.redis, call.keys[0], call.args[0]
        before = redis.peek(key)
        end, others = redis.ends.get(key), [redis.peek(other) for other in call.keys[1:]]
        ours = isinstance(before, str) and before.startswith(token + ";")
        reply = redis.run(call.script.text, call.keys, call.args)
        if call.script.name == "claim":
            self._check_claim(call, reply, str(before) if ours else "", free=before is None)
        elif not ours:
            same = redis.values.get(key) is before and redis.ends.get(key) == end
            kept = all(redis.peek(k) is v for k, v in zip(call.keys[1:], others, strict=True))
            if not (same and kept):
                raise Violation(f"S5: {call.script.name} by {token} changed what is not its own")
        elif call.script.name == "finish":
            self.finished.add(token)
        self._check_ends(call)
        return reply

    def _check_claim(self, call: Call[Any], reply: Any, ours: str, *, free: bool) -> None:
        token, key, answer = call.args[0], call.keys[0], reply[1]
        if ours and answer not in ("held", "done", "mismatch"):
            raise Violation(f"R2: the holder {token} sent its claim again and was told {answer}")
        if answer != "held":
            return
        fence = int(reply[2])
        if ours:
            if f";fence={fence};" not in ours:
                raise Violation(f"R2: the second answer to {token} has another fence")
            return
        if not free:
            raise Violation(f"S1: {token} was granted {key}, which is held")
        if fence <= self.fences[key] and not (self.data_lost and self.clock_moved):
            raise Violation(f"S3: fence {fence} of {key} follows {self.fences[key]}")
        self.fences[key] = fence
        self.granted[token] = fence
        self._forgotten.discard(token)

    def _check_ends(self, call: Call[Any]) -> None:
        redis = self.redis
        if len(redis.ends) != len(redis.values):
            endless = sorted(redis.values.keys() - redis.ends.keys())
            raise Violation(f"S10: {call.script.name} left keys without an end: {endless}")
        if call.script.name == "finish":
            return
        value, end = str(redis.values.get(call.keys[0])), redis.ends.get(call.keys[0], 0)
        if value.startswith(call.args[0]) and end - redis.us // 1000 > int(call.args[1]):
            raise Violation(f"S10: {call.keys[0]} lives longer than its TTL")
