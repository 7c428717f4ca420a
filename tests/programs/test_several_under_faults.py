"""Several resources in any order of events, and with a fault at every step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.programs.play import EVENT, RECORD, TOKEN, ask
from tests.programs.test_every_step import FAULTS, TIMES, Rig, each
from tests.sim.cluster import refusal
from tests.sim.fake_redis import EPOCH_US, FakeRedis

from giliran import programs, store
from giliran.errors import LeaseLost, StoreUnavailable
from giliran.holder import Claimant
from giliran.lease import Lease
from giliran.programs import Claimed
from giliran.steps import Call, Now, Program, Sleep
from giliran.store import Ask, Busy, Done, Held, Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMES = ("K", "L", "M")


class Together(Rig):
    """Three resources that one script reaches."""

    def holds(self) -> bool:
        self.redis.us = EPOCH_US + int(self.clock * 1e6)
        return any(str(self.redis.peek(name)).startswith(TOKEN) for name in NAMES)

    def holds_all(self) -> bool:
        self.redis.us = EPOCH_US + int(self.clock * 1e6)
        return all(str(self.redis.peek(name)).startswith(TOKEN) for name in NAMES)


class Apart(Together):
    """Three resources of three cluster slots; `calls` are those that Redis could serve."""

    def __init__(self, strike: int = 0, fault: str = "") -> None:
        super().__init__(strike, fault)
        self.calls: list[Call[Any]] = []

    def _call(self, call: Call[Any], fault: str) -> Any:
        refused = refusal(call)
        if refused is None:
            self.calls.append(call)
        return refused or super()._call(call, fault)

    def serve(self, call: Call[Any]) -> Any:
        return call.decode(self.redis.run(call.script.text, call.keys, call.args))


both = pytest.mark.parametrize("kind", [Together, Apart])


def three(token: str = TOKEN) -> Ask:
    return replace(ask(TIMES), token=token, ticket="", further=NAMES[1:])


def claimed(rig: Together) -> Lease | None:
    """Claim three free resources; None if that took too long."""
    wish = three()
    try:
        found: Claimed = rig.run(programs.claim(wish, 5.0))
    except StoreUnavailable as error:
        if not error.ambiguous:
            raise  # Nobody would give it back.
        return None
    assert isinstance(found.answer, Held)
    assert found.answer.attempt == 1
    fences = dict(zip(wish.further, found.answer.further, strict=True))
    lease = Lease(
        "K", TOKEN, found.answer.fence, 1, TIMES, found.asked, rig.now, fences,
        together=found.together,
    )  # fmt: skip
    assert lease.lost or rig.holds_all()
    return lease


def each_of(
    kind: type[Together],
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Callable[[Any], None],
) -> None:
    monkeypatch.setattr("tests.programs.test_every_step.Rig", kind)
    each(fault, scenario)


@both
@pytest.mark.parametrize("fault", FAULTS)
def test_claim(kind: type[Together], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(rig: Together) -> None:
        lease = claimed(rig)
        assert lease is not None or fault in ("late", "frozen", "lost request", "lost reply")

    each_of(kind, fault, monkeypatch, scenario)


@both
@pytest.mark.parametrize("fault", FAULTS)
def test_keep(kind: type[Together], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(rig: Together) -> None:
        lease = claimed(rig)
        if lease is None:
            return
        # Redis counts each from its own claim: the last lives longer, by what all of them took.
        took = rig.clock - (lease.hold_until + TIMES.hold_margin - TIMES.max_hold)

        def watched(program: Program[None]) -> Program[None]:
            step = next(program)
            while True:
                assert lease.lost or rig.holds_all(), "trusted, but not held"
                try:
                    answer = yield step
                except StoreUnavailable as error:
                    step = program.throw(error)
                    continue
                try:
                    step = program.send(answer)
                except StopIteration:
                    return

        rig.run(watched(programs.keep(lease, EVENT)))
        assert lease.lost in ("max_hold", "expired", "unreachable")
        rig.clock += TIMES.hold_margin + took + 0.01
        assert lease.lost != "max_hold" or not rig.holds()

    each_of(kind, fault, monkeypatch, scenario)


@both
@pytest.mark.parametrize("ending", ["done", "forget", "release"])
@pytest.mark.parametrize("fault", FAULTS)
def test_finish(
    kind: type[Together], fault: str, ending: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scenario(rig: Together) -> None:
        lease = claimed(rig)
        if lease is None:
            return
        try:
            finished = rig.run(programs.finish(lease, ending, RECORD, "5", EVENT))
        except LeaseLost:
            assert lease.lost
            return
        record = rig.redis.peek("{K}:rec:i")
        if ending == "done":
            assert isinstance(record, dict)
            assert (record["state"], record["result"]) == ("done", "5")
        if not finished.reason:
            assert not rig.holds()
            assert ending != "forget" or record is None

    each_of(kind, fault, monkeypatch, scenario)


# ------------------------------------------------------------------ one after the other


def test_a_done_job_is_found_although_another_resource_is_busy() -> None:
    rig = Apart()
    lease = claimed(rig)
    assert lease is not None
    rig.run(programs.finish(lease, "done", RECORD, "5", EVENT))
    rig.serve(store.claim(replace(ask(TIMES), lock_key="M", token="b" * 32, memory=Memory())))
    found = rig.run(programs.claim(three("c" * 32), 5.0))
    assert isinstance(found.answer, Done)
    assert found.answer.result == "5"


def test_an_attempt_counts_when_all_are_held_and_not_before() -> None:
    rig = Apart()
    other = replace(ask(TIMES), lock_key="M", token="b" * 32, memory=Memory(), ticket="")
    rig.serve(store.claim(other))
    for who in range(9):  # More than may start.
        assert isinstance(rig.run(programs.claim(three(f"{who:032x}"), 5.0)).answer, Busy)
    assert set(rig.redis.values) == {"M", "{M}:fence", "{K}:fence", "{L}:fence"}
    rig.run(programs.abandon(other, "release"))
    found = rig.run(programs.claim(three(), 5.0))
    assert isinstance(found.answer, Held)
    assert found.answer.attempt == 1


def test_a_late_copy_of_a_release_does_not_end_what_the_next_try_took() -> None:
    """A try that met a busy resource gave the first ones back; the next has the same token."""
    rig = Apart()
    other = replace(ask(TIMES), lock_key="M", token="b" * 32, memory=Memory(), ticket="")
    rig.serve(store.claim(other))
    assert isinstance(rig.run(programs.claim(three(), 5.0)).answer, Busy)
    releases = [call for call in rig.calls if call.script.name == "finish"]
    assert [call.keys[0] for call in releases] == ["L", "K"]
    rig.run(programs.abandon(other, "release"))
    rig.clock += 0.1
    assert claimed(rig) is not None
    for call in releases:
        assert rig.serve(call).answer == "released"
    assert rig.holds_all()


# ------------------------------------------------------------------ many at once


class Crowd:
    """Workers that claim step by step, in an order that is drawn; their clock stands still."""

    def __init__(self, wishes: Sequence[tuple[str, ...]], *, apart: bool) -> None:
        self.redis = FakeRedis()
        self.apart = apart
        self.won: list[int] = []
        self.asks = [
            Ask(
                keys[0],
                f"{who + 1:032x}",
                TIMES,
                Claimant(f"pub-{who}"),
                Memory(),
                further=keys[1:],
            )
            for who, keys in enumerate(wishes)
        ]
        self.programs = {who: programs.claim(one, 5.0) for who, one in enumerate(self.asks)}
        self.steps: dict[int, Any] = {who: next(each) for who, each in self.programs.items()}

    def go_on(self, who: int) -> None:
        """Let one worker take one step."""
        step = self.steps[who]
        try:
            if isinstance(step, Call) and self.apart and (refused := refusal(step)):
                self.steps[who] = self.programs[who].throw(refused)
                return
            answer: Any = 0.0
            if isinstance(step, Call):
                answer = step.decode(self.redis.run(step.script.text, step.keys, step.args))
            self.steps[who] = self.programs[who].send(answer)
        except StopIteration as stop:
            del self.steps[who]
            if isinstance(stop.value.answer, Held):
                self.won.append(who)
        assert isinstance(step, Call | Now | Sleep)

    def check(self) -> None:
        """Winners hold all they want; who is through without winning holds nothing."""
        for who, one in enumerate(self.asks):
            held = [str(self.redis.peek(key))[:32] == one.token for key in one.keys]
            if who in self.won:
                assert all(held)
            elif who not in self.steps:
                assert not any(held)


wishes = st.lists(
    st.sets(st.sampled_from(NAMES), min_size=1).map(lambda names: tuple(sorted(names))),
    min_size=2,
    max_size=4,
)


@settings(max_examples=100, deadline=None)
@given(wishes=wishes, luck=st.randoms(use_true_random=False), apart=st.booleans())
def test_nobody_waits_for_ever_and_somebody_gets_on(
    wishes: list[tuple[str, ...]], luck: Any, apart: bool
) -> None:
    crowd = Crowd(wishes, apart=apart)
    for _ in range(500):
        if not crowd.steps:
            break
        crowd.go_on(luck.choice(sorted(crowd.steps)))
        crowd.check()
    assert not crowd.steps, "a claim does not end"
    assert crowd.won, "of those who want the same, one always gets it"
    taken = [key for who in crowd.won for key in crowd.asks[who].keys]
    assert len(taken) == len(set(taken)), "two hold one resource"
