"""One attempt with a job, a policy and all that is needed to make it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.programs.play import (
    RECORD,
    TIMES,
    Play,
    ask,
)  # fmt: skip

from giliran.attempt import Attempt
from giliran.interrupt import Flag, Interrupter
from giliran.jobs import Carried
from giliran.line import Shelved
from giliran.policies import Policy, fail
from giliran.results import Codec
from giliran.store import Memory
from giliran.timeouts import Timeouts
from giliran.verdicts import Ended, PutBack, Raise, Raised, Returned, Rules, Run


class Control(Exception):
    """The framework's own control flow."""


class LimitError(Exception):
    """The framework's time limit."""


class Declined(Exception):
    """A failure that is remembered."""


@dataclass
class Delivered:
    """A job as an adapter shows it."""

    carried: Carried = field(default_factory=Carried)
    visibility: float | None = None
    publication: str = "p1"
    elder: str = ""
    job_id: str = "j1"
    job_type: str = "t"
    route: str = "q"
    time_limit: float | None = None
    control: tuple[type[BaseException], ...] = (Control,)
    limits: tuple[type[BaseException], ...] = (LimitError,)

    def put_back(self, delay: float, carried: Carried) -> BaseException:
        raise AssertionError("an attempt puts nothing back by itself")

    shelved: Shelved | None = None

    def shelve(self, carried: Carried) -> Shelved | None:
        return self.shelved

    def parked(self) -> BaseException:
        raise AssertionError("nor does it end a delivery")

    def stranded(self, error: Exception) -> BaseException:
        raise AssertionError("nor does it strand")

    def interrupter(self) -> Interrupter:
        return Flag()


@dataclass
class Stage(Play):
    """One attempt and what is needed to make it."""

    policy: Policy = field(default_factory=fail)
    job: Delivered | None = field(default_factory=Delivered)
    luck: float = 1.0
    memory: Memory = RECORD
    times: Timeouts = TIMES
    recoveries: int = 5
    proven: bool = False

    def attempt(self) -> Attempt:
        rules = Rules(self.policy, self.recoveries, Codec(lambda: int), (Declined,))
        return Attempt(
            ask(self.times, self.memory), rules, self.job, "K", self.now, lambda: self.luck,
            proven=self.proven,
        )  # fmt: skip

    def open(self, *answers: Any) -> Run | Ended:
        return self.run(self.attempt().open(5.0), answers)

    def close(self, outcome: Returned | Raised, *answers: Any, late: float = 0) -> Ended:
        lease = self.lease(self.times)
        self.clock += late
        return self.run(self.attempt().close(lease, outcome), answers)


def put_back(ended: object) -> PutBack:
    assert isinstance(ended, PutBack), ended
    return ended


def raised(ended: object) -> BaseException:
    assert isinstance(ended, Raise), ended
    return ended.error
