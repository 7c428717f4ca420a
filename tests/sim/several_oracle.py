"""What must hold for jobs of several resources: all of them or none, at every step."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.sim import said
from tests.sim.oracle import Oracle
from tests.sim.shelf import look
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.server import Server

    from giliran.lease import Lease
    from giliran.steps import Call

FOREVER = float("inf")
GROUP = {"claim": 4, "finish": 3, "renew": 1}  # How many keys of a call belong to one resource.


class SeveralOracle(Oracle):
    """Watches every script run and every lease that a body runs under.

    Nothing is lost but what an operator breaks: that lease must not be trusted for longer than a
    renewal sent before could make it, unless a late copy of its claim got back what was broken.

    Attributes:
        broken: what was broken, by token.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.broken: dict[str, set[str]] = defaultdict(set)
        self._trusted_at_most: dict[str, float] = {}
        self._running: list[Lease] = []
        self._fence: dict[str, int] = defaultdict(int)
        self._wrote: dict[str, int] = defaultdict(int)

    # ------------------------------------------------------------------ holders

    def begin(self, lease: Lease) -> None:
        if self.broken[lease.token]:
            self._break(lease)
        self._running.append(lease)
        self.check_trust("")

    def end(self, lease: Lease) -> None:
        self._running.remove(lease)

    def note_broken(self, key: str, token: str) -> None:
        """An operator has just deleted a lock of this token."""
        self.broken[token].add(key)
        for lease in self._running:
            if lease.token == token:
                self._break(lease)

    def _break(self, lease: Lease) -> None:
        self._trusted_at_most[lease.token] = lease._clock() + lease.timeouts.ttl

    def check_trust(self, lock_key: str) -> None:
        """Who trusts its lease holds every one of its resources."""
        for lease in self._running:
            if lease.lost:
                continue
            ends = self._trusted_at_most.get(lease.token, FOREVER)
            if lease.trusted_until > ends and lease.token not in self.stray:
                raise Violation(f"S2: {lease!r} is renewed, although one of its locks was broken")
            missing = [key for key in lease.fences if not self._holds(key, lease.token)]
            if missing and not self.broken[lease.token]:
                raise Violation(f"S2: {lease!r} is trusted, but does not hold {missing}")

    def _holds(self, key: str, token: str) -> bool:
        return str(self.redis.peek(key)).startswith(f"{token};")

    def write(self, lease: Lease) -> None:
        """A body that has just checked its lease writes to the data of all its resources."""
        for key, fence in lease.fences.items():
            if fence < self._wrote[key] and not self.broken[lease.token]:
                raise Violation(f"S2: {lease!r} wrote to {key} after a newer holder did")
            self._wrote[key] = max(fence, self._wrote[key])

    def check_nothing(self, token: str, keys: tuple[str, ...], when: str) -> None:
        """A job holds nothing of what it wants, unless a copy of a request came late."""
        held = [key for key in keys if self._holds(key, token)]
        if held and token not in self.stray:
            raise Violation(f"all or none: {token} holds {held} {when}")

    # ------------------------------------------------------------------ the store

    def apply(self, call: Call[Any]) -> Any:
        """Run a script, and compare before and after."""
        name, redis = call.script.name, self.redis
        each = GROUP.get(name)
        locks = (
            call.keys[: len(call.keys) // each * each : each] if each else (said.resource(call),)
        )
        before = {key: str(redis.peek(key) or "") for key in locks}
        stood = {key: look(redis, key).standing(redis.us // 1000) for key in locks}
        reply = self.server.run(call)
        if name == "claim":
            self._check_grant(call, before, stood, reply)
        elif name == "finish" and len(call.args) > 8:
            self.seen["several: given back"] += reply[1] == "done"
        for key, value in before.items():
            ours = value.startswith((said.token(call), "reserved;"))
            if value and not ours and str(redis.peek(key)) != value and name != "reclaim":
                raise Violation(f"S5: {name} ended a lease of others: {value}")
        return reply

    def _check_grant(
        self, call: Call[Any], before: dict[str, str], stood: dict[str, list[str]], reply: Any
    ) -> None:
        token, answer, several = call.args[0], reply[1], len(before) > 1
        self.seen[f"several: {answer}"] += several
        if answer != "held":
            self.check_nothing(token, tuple(before), f"although it was told {answer}")
            return
        for (key, value), fence in zip(before.items(), [reply[2], *reply[4:]], strict=True):
            if not self._holds(key, token):
                raise Violation(f"all or none: {token} was granted {key}, and does not hold it")
            if not any(lease.token == token for lease in self._running):
                self.broken[token].discard(key)  # It is ours again before its body began.
            if value.startswith(token):
                self.seen["several: sent again, and held already"] += several
                continue
            if not said.ticket(call) and (value or stood[key]):
                raise Violation(f"barging: {token} took {key} before {stood[key]}, from {value!r}")
            if int(fence) <= self._fence[key]:
                raise Violation(f"S3: fence {fence} of {key} follows {self._fence[key]}")
            self._fence[key] = int(fence)

    def note_answer(self, call: Call[Any], reply: Any) -> None:
        """Nothing is watched here of who is told what."""

    def note_sent(self, call: Call[Any]) -> None:
        if call.script.name == "renew" and call.args[0] in self.closed:
            raise Violation(f"the heartbeat of {call.args[0]} goes on after its body")
