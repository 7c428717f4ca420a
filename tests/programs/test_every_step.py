"""For every n: the n-th step fails, comes late or is the last one. Nothing impossible follows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.programs.play import EVENT, RECORD, TOKEN, ask
from tests.sim.fake_redis import EPOCH_US, FakeRedis

from giliran import programs
from giliran.errors import LeaseLost, StoreUnavailable
from giliran.lease import Lease
from giliran.programs import Claimed
from giliran.steps import Call, Now, Program, Sleep
from giliran.store import Held
from giliran.timeouts import Timeouts

TIMES = Timeouts(3, 10, 60)
FAR = 200
FAULTS = ["close", "refused", "lost request", "lost reply", "late", "frozen"]


class Closed(Exception):
    """The program was closed at its n-th step, as by a crash."""


class Rig:
    """A fake Redis and a clock; one fault strikes one step of all that run here."""

    def __init__(self, strike: int, fault: str) -> None:
        self.redis = FakeRedis()
        self.clock = 0.0
        self.step = 0
        self._strike, self._fault = strike, fault

    def now(self) -> float:
        return self.clock

    def holds(self) -> bool:
        """Whether Redis says that the lock is ours."""
        self.redis.us = EPOCH_US + int(self.clock * 1e6)
        return str(self.redis.peek("K")).startswith(TOKEN)

    def run(self, program: Program[Any]) -> Any:
        answer: Any = None
        try:
            while True:
                if isinstance(answer, StoreUnavailable):
                    step = program.throw(answer)
                else:
                    step = program.send(answer)
                answer = self._do(step)
        except StopIteration as stop:
            return stop.value
        except Closed:
            program.close()
            raise

    def _do(self, step: Any) -> Any:
        self.step += 1
        assert self.step < 5000, "the program does not end"
        fault = self._fault if self.step == self._strike else ""
        if fault == "close":
            raise Closed
        if fault == "frozen":
            self.clock += 4.0
        if isinstance(step, Now):
            return self.clock
        if isinstance(step, Sleep):
            self.clock = max(self.clock, step.until)
        if isinstance(step, Call):
            return self._call(step, fault)
        return None

    def _call(self, call: Call[Any], fault: str) -> Any:
        assert call.timeout > 0
        if fault == "refused":
            return StoreUnavailable("LOADING", "", ambiguous=False)
        answer: Any = None
        if fault != "lost request":
            self.clock += 0.001
            self.redis.us = EPOCH_US + int(self.clock * 1e6)
            answer = call.decode(self.redis.run(call.script.text, call.keys, call.args))
        if fault == "late":
            self.clock += 3.5
        elif fault in ("lost request", "lost reply"):
            self.clock += call.timeout
            return StoreUnavailable("unreachable", "", ambiguous=True)
        return answer


def each(fault: str, scenario: Callable[[Rig], None]) -> None:
    """Play the scenario until the fault strikes after its last step."""
    for n in itertools.count(1):
        assert n < FAR
        rig = Rig(n, fault)
        try:
            scenario(rig)
        except Closed:
            rig.clock += TIMES.ttl + 0.002
            assert not rig.holds(), "a crash holds longer than the TTL"
        assert rig.redis.values.keys() == rig.redis.ends.keys()
        if rig.step < n:
            return


def claimed(rig: Rig) -> Lease:
    """Claim; the answer can only be that the free lock is ours."""
    found: Claimed = rig.run(programs.claim(ask(TIMES), 5.0))
    assert isinstance(found.answer, Held)
    assert found.answer.attempt == 1
    lease = Lease("K", TOKEN, found.answer.fence, 1, TIMES, found.asked, rig.now)
    assert lease.lost or rig.holds()
    return lease


@pytest.mark.parametrize("fault", FAULTS)
def test_claim(fault: str) -> None:
    each(fault, claimed)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", FAULTS)
def test_keep(fault: str) -> None:
    def scenario(rig: Rig) -> None:
        lease = claimed(rig)
        rig.run(programs.keep(lease, EVENT))
        assert lease.lost in ("max_hold", "expired")
        assert lease.lost == "max_hold" or fault in ("frozen", "late")
        rig.clock += TIMES.hold_margin + 0.01
        assert lease.lost == "expired" or not rig.holds()

    each(fault, scenario)


@pytest.mark.parametrize("ending", ["done", "failed", "forget", "release"])
@pytest.mark.parametrize("fault", FAULTS)
def test_finish(fault: str, ending: Any) -> None:
    def scenario(rig: Rig) -> None:
        lease = claimed(rig)
        try:
            finished = rig.run(programs.finish(lease, ending, RECORD, "5", EVENT))
        except LeaseLost:
            assert fault in ("frozen", "late", "lost request", "lost reply")
            assert lease.lost
            return
        assert finished.answer in ("done", "released")
        if finished.reason:  # It gave up: the lock expires by itself, and housekeeping may help.
            assert ending in ("forget", "release")
            return
        record = rig.redis.peek("{K}:rec:i")
        if ending in ("done", "failed"):
            assert isinstance(record, dict)
            assert (record["state"], record["result"]) == (ending, "5")
        elif ending == "forget":
            assert record is None
        else:
            assert isinstance(record, dict)
            assert record["state"] == "running"
        assert not rig.holds()

    each(fault, scenario)
