"""The scripts for several resources against a model: who gets all of them, and who none.

Some jobs need several of three resources, some processes wait in the line of one; time passes, and
requests come twice.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.properties.untraced import UNTRACED
from tests.sim.fake_redis import FakeRedis, SortedSet

from giliran import line, store
from giliran.holder import Claimant
from giliran.store import Ask, Busy, Held, Memory
from giliran.timeouts import Timeouts

NAMES: tuple[str, ...] = ("K", "L", "M")
TIMES = Timeouts(4.0, 20.0, 3_600.0)
ALIVE = 6.0
subsets = st.sets(st.sampled_from(NAMES), min_size=1).map(lambda names: tuple(sorted(names)))


class Several(RuleBasedStateMachine):
    """Redis, and what the model knows: the keys, fences and last moment of each holder."""

    def __init__(self) -> None:
        super().__init__()
        self.redis = FakeRedis()
        self.tokens = 0
        self.holders: dict[str, tuple[tuple[str, ...], int, int]] = {}  # token: keys, until, hold
        self.fences = dict.fromkeys(NAMES, 0)
        self.waiting: dict[str, tuple[str, int]] = {}  # ticket: key, rank

    def run(self, call: Any) -> Any:
        return call.decode(self.redis.run(call.script.text, call.keys, call.args))

    def token(self) -> str:
        self.tokens += 1
        return f"{self.tokens:032x}"

    @property
    def now_ms(self) -> int:
        return self.redis.us // 1000

    def lock(self, key: str) -> str:
        return str(self.redis.peek(key) or "")

    def stands(self, key: str) -> bool:
        """Whether anybody stands in line."""
        return isinstance(self.redis.peek(f"{{{key}}}:line"), SortedSet)

    def held(self, token: str, keys: tuple[str, ...], answer: Held) -> None:
        for key, fence in zip(keys, (answer.fence, *answer.further), strict=True):
            assert fence > self.fences[key], "fences rise, for each resource"
            self.fences[key] = fence
        self.holders[token] = keys, self.now_ms + 4_000, self.now_ms + 20_000

    @rule(keys=subsets, twice=st.booleans())
    def a_job_comes(self, keys: tuple[str, ...], twice: bool) -> None:
        token = self.token()
        ask = Ask(keys[0], token, TIMES, Claimant(token), Memory(), further=keys[1:])
        hindered = [key for key in keys if self.lock(key) or self.stands(key)]
        reserved = [key for key in hindered if self.lock(key).startswith("reserved")]
        answer = self.run(store.claim(ask))
        if hindered:
            assert isinstance(answer, Busy)
            assert answer.key == hindered[0], "the first that is not to be had is told"
            assert (answer.by == "line") == (not self.lock(answer.key))
            assert answer.key not in reserved or answer.holder.startswith("next in line")
            assert not any(self.lock(key).startswith(token) for key in keys), "none"
            return
        assert isinstance(answer, Held)
        self.held(token, keys, answer)
        if twice:
            assert self.run(store.claim(ask)) == answer

    @rule(key=st.sampled_from(NAMES), which=st.integers(0, 2))
    def a_process_waits(self, key: str, which: int) -> None:
        ticket = f"{key}{which}"
        rank = self.waiting.get(ticket, (key, 0))[1]
        ask = Ask(key, self.token(), TIMES, Claimant(), Memory(), ticket=ticket, rank=rank)
        answer = self.run(store.claim(ask, ALIVE))
        if isinstance(answer, Held):
            self.held(ask.token, (key,), answer)
            self.waiting.pop(ticket, None)
        else:
            assert answer.key == key
            self.waiting[ticket] = key, answer.rank

    @rule(key=st.sampled_from(NAMES))
    def a_sweep_comes_by(self, key: str) -> None:
        self.run(line.sweep(key, self.token(), ()))

    @rule(which=st.integers(0, 99))
    def a_lease_is_renewed(self, which: int) -> None:
        if not self.holders:
            return
        token = sorted(self.holders)[which % len(self.holders)]
        keys, _, hold = self.holders[token]
        assert self.run(store.renew(keys[0], token, 4.0, keys[1:])) > 0
        self.holders[token] = keys, min(self.now_ms + 4_000, hold), hold

    @rule(which=st.integers(0, 99), twice=st.booleans())
    def a_job_ends(self, which: int, twice: bool) -> None:
        if not self.holders:
            return
        token = sorted(self.holders)[which % len(self.holders)]
        keys, _, _ = self.holders.pop(token)
        ends = store.finish(keys[0], token, "release", Memory(), "", 4.0, resend=False,
                            further=keys[1:])  # fmt: skip
        before = [self.stands(key) for key in keys]
        finished = self.run(ends)
        assert finished.answer == "done"
        called = (finished.called, *finished.further)
        for key, stood, turn in zip(keys, before, called, strict=True):
            assert turn is None or stood
            assert (turn is not None) == self.lock(key).startswith("reserved"), "who is next"
        if twice:
            again = store.finish(keys[0], token, "release", Memory(), "", 4.0, resend=True,
                                 further=keys[1:])  # fmt: skip
            told = self.run(again)
            assert (told.answer, (told.called, *told.further)) == ("released", called)

    @rule(which=st.integers(0, 99), lost=st.integers(0, 2))
    def an_operator_breaks_one(self, which: int, lost: int) -> None:
        """Its holder is told by whatever it does next, and gives back the others."""
        if not self.holders:
            return
        token = sorted(self.holders)[which % len(self.holders)]
        keys, _, _ = self.holders.pop(token)
        broken = keys[lost % len(keys)]
        del self.redis.values[broken], self.redis.ends[broken]
        assert self.run(store.renew(keys[0], token, 4.0, keys[1:])) == 0
        values = [self.lock(key) for key in keys]
        told = self.run(store.finish(
            keys[0], token, "release", Memory(), "", 4.0, resend=False, further=keys[1:]
        ))  # fmt: skip
        assert told.answer == "lost"
        assert values == [self.lock(key) for key in keys], "a lost one changes nothing"
        for key in keys:
            self.run(store.finish(key, token, "release", Memory(), "", 4.0, resend=True))

    @rule(ms=st.sampled_from([1, 300, 1_001, 2_000, 4_001, 7_000]))
    def time_passes(self, ms: int) -> None:
        self.redis.us += ms * 1000
        self.holders = {
            token: held for token, held in self.holders.items() if held[1] >= self.now_ms
        }

    @invariant()
    def holders_have_all_and_nobody_else_has_any(self) -> None:
        wanted = {key: token for token, (keys, _, _) in self.holders.items() for key in keys}
        there = {key: self.lock(key)[:32] for key in NAMES if self.lock(key)}
        assert {key: at for key, at in there.items() if not at.startswith("reserved")} == wanted
        assert sum(len(keys) for keys, _, _ in self.holders.values()) == len(wanted)

    @invariant()
    def everything_has_an_end(self) -> None:
        assert self.redis.values.keys() == self.redis.ends.keys()


Several.TestCase.settings = UNTRACED
TestSeveral = Several.TestCase
