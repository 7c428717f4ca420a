"""The shipped scripts against a small model of lock and record, in any order of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.properties.untraced import UNTRACED
from tests.sim.fake_redis import FakeRedis

from giliran import store
from giliran.holder import Claimant
from giliran.store import Ask, Busy, Done, Doubt, Ending, Held, Memory, Mismatch, Spent
from giliran.timeouts import Timeouts

TIMES = Timeouts(10.0, 40.0, 100.0)
ATTEMPTS = 3


@dataclass
class Model:
    """What one lock and one record of it must be: the specification in its shortest form."""

    now: float = 0.0
    owner: int = 0
    owned_until: float = -1.0
    hold_until: float = -1.0
    state: Literal["absent", "running", "done", "failed"] = "absent"
    kept_until: float = -1.0
    writer: int = 0
    fingerprint: str = ""
    attempt: int = 0
    result: str = ""

    def forget_what_ended(self) -> None:
        if self.now > self.owned_until:
            self.owner = 0
        if self.now > self.kept_until:
            self.state, self.writer, self.attempt = "absent", 0, 0

    def claim(self, who: int, fingerprint: str, after_crash: str) -> tuple[Any, ...]:
        if self.state != "absent" and self.fingerprint != fingerprint:
            return (Mismatch,)
        if self.state in ("done", "failed"):
            return (Done, self.state, self.result or None, self.attempt)
        if self.owner not in (0, who):
            return (Busy,)
        if self.owner == 0 and self.writer != who:
            if self.state == "running" and after_crash == "hold":
                return (Doubt, self.attempt)
            if self.attempt >= ATTEMPTS:
                return (Spent, self.attempt)
            self.attempt += 1
        if self.owner == 0:
            self.state, self.writer, self.fingerprint = "running", who, fingerprint
            self.kept_until = self.now + TIMES.max_hold + TIMES.retain
        self.owner, self.owned_until = who, self.now + TIMES.ttl
        self.hold_until = self.now + TIMES.max_hold
        return (Held, self.attempt)

    def renew(self, who: int) -> str:
        if self.owner != who:
            return "taken" if self.owner else "gone"
        if self.now >= self.hold_until:
            return "held out"
        self.owned_until = min(self.now + TIMES.ttl, self.hold_until)
        return "renewed"

    def finish(self, who: int, ending: Ending, result: str, *, resend: bool) -> str:
        recorded = ending in ("done", "failed")
        if self.owner != who:
            if recorded and (self.writer, self.state) == (who, ending):
                return "done"
            return "released" if resend and not recorded else "lost"
        self.owner = 0
        if recorded:
            self.state, self.writer, self.result = ending, who, result  # type: ignore[assignment]
            self.kept_until = self.now + TIMES.retain
        elif ending == "forget" and (self.writer, self.state) == (who, "running"):
            self.state, self.writer, self.attempt, self.kept_until = "absent", 0, 0, -1.0
        return "done"


tokens = st.integers(1, 4)
endings = st.sampled_from(["done", "failed", "forget", "release"])


class Records(RuleBasedStateMachine):
    """Four workers, of which each may crash by simply not going on."""

    def __init__(self) -> None:
        super().__init__()
        self.redis = FakeRedis()
        self.model = Model()
        self.fence = 0

    def run(self, call: Any) -> Any:
        return call.decode(self.redis.run(call.script.text, call.keys, call.args))

    @rule(seconds=st.sampled_from([0.1, 3.0, 10.0, 10.001, 40.0, 150.0]))
    def time_passes(self, seconds: float) -> None:
        self.redis.us += int(seconds * 1e6)
        self.model.now = round(self.model.now + seconds, 3)
        self.model.forget_what_ended()

    @rule(who=tokens, fingerprint=st.sampled_from("fffg"), after=st.sampled_from(["retry", "hold"]))
    def claim(self, who: int, fingerprint: str, after: Any) -> None:
        held_before = self.model.owner == who
        memory = Memory("record", "i", fingerprint, after, ATTEMPTS)
        answer = self.run(
            store.claim(Ask("K", f"{who:032x}", TIMES, Claimant(f"pub-{who}"), memory))
        )
        kind, *rest = self.model.claim(who, fingerprint, after)
        assert isinstance(answer, kind)
        match answer:
            case Held(fence=fence, attempt=attempt):
                assert [attempt] == rest
                assert fence == self.fence if held_before else fence > self.fence
                self.fence = fence
            case Done(state=state, result=result, attempt=attempt):
                assert [state, result, attempt] == rest
            case Doubt(attempt=attempt) | Spent(attempt=attempt):
                assert [attempt] == rest
            case _:
                assert rest == []

    @rule(who=tokens)
    def renew(self, who: int) -> None:
        answer = self.run(store.renew("K", f"{who:032x}", TIMES.ttl))
        told = {0: "gone", -1: "taken", -2: "held out"}.get(answer, "renewed")
        assert told == self.model.renew(who)

    @precondition(lambda self: self.model.owner)
    @rule(ending=endings, result=st.sampled_from(["", "1"]))
    def the_owner_finishes(self, ending: Any, result: str) -> None:
        self.finish(self.model.owner, ending, result, resend=False)

    @rule(who=tokens, ending=endings, result=st.just("2"), resend=st.booleans())
    def finish(self, who: int, ending: Any, result: str, resend: bool) -> None:
        memory = Memory("record", "i", self.model.fingerprint or "f")
        call = store.finish("K", f"{who:032x}", ending, memory, result, TIMES.retain, resend=resend)
        told = self.model.finish(who, ending, result, resend=resend)
        assert self.run(call).answer == told

    @invariant()
    def keys_are_as_the_model_says(self) -> None:
        lock, record = self.redis.peek("K"), self.redis.peek("{K}:rec:i")
        owner = int(str(lock)[:32], 16) if lock else 0
        assert owner == self.model.owner
        state = record["state"] if isinstance(record, dict) else "absent"
        assert state == self.model.state
        assert self.redis.values.keys() == self.redis.ends.keys()


Records.TestCase.settings = UNTRACED
TestRecords = Records.TestCase
