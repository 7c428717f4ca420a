"""Records against a model: what claims and finishes answer, in any order, with crashes between."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.sim.fake_redis import FakeRedis

from giliran import store
from giliran.holder import Claimant
from giliran.steps import Call
from giliran.store import Ask, Busy, Done, Doubt, Ending, Held, Memory, Mismatch, Spent
from giliran.timeouts import Timeouts

TIMES = Timeouts(ttl=30, max_hold=60, retain=3600)
ATTEMPTS = 3


class Records(RuleBasedStateMachine):
    """One resource, one idempotency key, and the 20 lines that say what must be known of it."""

    @initialize(after_crash=st.sampled_from(["retry", "hold"]))
    def begin(self, after_crash: Any) -> None:
        self.redis = FakeRedis()
        self.after_crash = after_crash
        self.tokens = 0
        self.holder: Ask | None = None  # whose lease it is
        self.state = ""  # "", running, done, failed
        self.agreed = ""  # the fingerprint that the record stands for
        self.result = ""
        self.attempt = 0
        self.fences: list[int] = []

    def call(self, request: Call[Any]) -> Any:
        return request.decode(self.redis.run(request.script.text, request.keys, request.args))

    @rule(fingerprint=st.sampled_from("fffg"))
    def claim(self, fingerprint: str) -> None:
        self.tokens += 1
        memory = Memory("record", "i", fingerprint, self.after_crash, ATTEMPTS)
        ask = Ask("K", f"{self.tokens:032x}", TIMES, Claimant("p"), memory)
        answer = self.call(store.claim(ask))
        if self.state and fingerprint != self.agreed:
            assert isinstance(answer, Mismatch)
        elif self.state in ("done", "failed"):
            assert isinstance(answer, Done)
            assert (answer.state, answer.result) == (self.state, self.result)
        elif self.holder is not None:
            assert isinstance(answer, Busy)
        elif self.state and self.after_crash == "hold":
            assert isinstance(answer, Doubt)
        elif self.attempt >= ATTEMPTS:
            assert isinstance(answer, Spent)
        else:
            assert isinstance(answer, Held)
            self.state, self.agreed, self.attempt = "running", fingerprint, self.attempt + 1
            assert answer.attempt == self.attempt
            self.fences.append(answer.fence)
            self.holder = ask

    @rule(ending=st.sampled_from(["done", "failed", "forget", "release"]), twice=st.booleans())
    def finish(self, ending: Ending, twice: bool) -> None:
        if self.holder is None:
            return
        ask, self.holder = self.holder, None
        result = f'"{len(self.fences)}"'
        for resend in (False, True)[: 1 + twice]:
            request = store.finish(
                "K", ask.token, ending, ask.memory, result, TIMES.retain, resend=resend
            )
            assert self.call(request).answer in ("done", "released")
        if ending in ("done", "failed"):
            self.state, self.result = ending, result
        elif ending == "forget":
            self.state, self.attempt = "", 0

    @rule()
    def crash(self) -> None:
        """The holder dies; its lease runs out, its record stays."""
        if self.holder is not None:
            ask, self.holder = self.holder, None
            self.redis.us += int((TIMES.ttl + 1) * 1e6)
            late = store.finish("K", ask.token, "done", ask.memory, "", TIMES.retain, resend=False)
            assert self.call(late).answer == "lost"

    @rule()
    def time_passes(self) -> None:
        """A finished record goes with its retention, and is as if it had never been."""
        if self.holder is None and self.state in ("done", "failed"):
            self.redis.us += int((TIMES.retain + 1) * 1e6)
            self.state, self.attempt = "", 0

    @invariant()
    def fences_rise(self) -> None:
        fences = getattr(self, "fences", [])
        assert fences == sorted(set(fences))


Records.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRecords = Records.TestCase
