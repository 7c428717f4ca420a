"""The scripts of the line against what must be true of it, in any order of events.

A job is a message at a broker that keeps it until it is acknowledged; workers may crash, brokers
refuse, and every note of a publication may get lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.properties.untraced import UNTRACED
from tests.scripts.backends import DEAD, DUE, FENCE, PARKED
from tests.scripts.resource import Resource

from giliran import line
from giliran.line import Place, Turn
from giliran.store import Answer, Busy, Done, Ending, Held

if TYPE_CHECKING:
    from giliran.steps import Call

ALIVE = 6.0
BUDGET_MS = 30_000
FATES = ["published", "published", "published", "noted late", "noted late", "refused", "crash"]


@dataclass(frozen=True)
class Message:
    """A copy of a job at the broker."""

    ticket: str
    rank: int = 0
    verdict: str = ""


class Lines(RuleBasedStateMachine):
    """Some jobs, some of a group of which one waits, and some processes that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.resource = Resource()
        self.queue: list[Message] = []
        self.notes: list[Call[Any]] = []
        self.jobs: list[str] = []
        self.ended: set[str] = set()
        self.ends: dict[str, int] = {}  # Counted from the first contention, as messages carry it.
        self.waiting: dict[str, int] = {}
        self.holder: tuple[str, str, Message | None] | None = None  # token, ticket, message
        self.held_until = 0
        self.parker = ""

    # ------------------------------------------------------------------ what processes do

    def claim(
        self, ticket: str, rank: int, message: Message | None, alive: float | None = None
    ) -> Answer:
        before, ranks = self.resource.in_line(), self.resource.ranks()
        lock = str(self.resource.redis.peek("K") or "")
        token, answer = self.resource.claim(ticket, rank, alive)
        if isinstance(answer, Held):
            assert self.holder is None, "two hold"
            if f";pub={ticket};" not in lock:
                mine = min(ranks.get(ticket, 1e18), rank or 1e18)
                first = [ranks[other] for other in before if other != ticket]
                first += [float(rank) for rank in re.findall(r"^reserved.*;rank=(\d+)", lock)]
                assert all(other >= mine for other in first), "barging"
            self.holder = token, ticket, message
            self.held_until = self.resource.now_ms + 4_000
        return answer

    def come(self, message: Message) -> None:
        """Let a worker have a message: it runs, is parked, or goes back to its queue."""
        if message.verdict:
            self.ended.add(message.ticket)
            return
        match self.claim(message.ticket, message.rank, message):
            case Held():
                pass
            case Busy(by="another" | "line"):
                place = self.park(message)
                if not isinstance(place, Place):
                    assert place == "free"
                    again = self.claim(message.ticket, message.rank, message)
                    assert isinstance(again, Held)
                elif place.superseded is not None:
                    self.supersede(message, place.superseded)
            case Busy():
                self.queue.append(message)
            case answer:
                assert isinstance(answer, Done)
                self.ended.add(message.ticket)

    def park(self, message: Message) -> Place | Literal["free", "full"]:
        group = "g" if message.ticket.startswith("g") else ""
        now_ms = self.resource.now_ms
        left_ms = self.ends.setdefault(message.ticket, now_ms + BUDGET_MS) - now_ms
        self.parker, answer = self.resource.park(message.ticket, message.rank, group, left_ms)
        return answer

    def supersede(self, message: Message, older: Turn) -> None:
        """Let the worker that parked a message publish the job that is superseded."""
        shelf: Any = self.resource.redis.peek(PARKED)
        if message.rank:
            assert int(shelf["/g"][1:]) > int(older.ticket[1:]), "the newest waits"
        self.publish(older, self.parker, "published")

    def publish(self, turn: Turn | None, token: str, fate: str) -> None:
        """Let a caller publish who was called, or not."""
        if turn is None or turn.kind != "job" or fate == "crash":
            return
        assert turn.payload == turn.ticket
        if fate != "refused":
            self.queue.append(Message(turn.ticket, turn.rank, turn.verdict))
        became: Literal["taken", "refused"] = "refused" if fate == "refused" else "taken"
        note = line.offer("K", turn.ticket, token, became)
        if fate == "noted late":
            self.notes.append(note)
        else:
            self.resource.run(note)

    def line_without(self, *gone: str) -> list[str]:
        return [ticket for ticket in self.resource.in_line() if ticket not in gone]

    def check_called(self, before: list[str], turn: Turn | None) -> None:
        if turn is not None and turn.kind != "more":
            assert turn.ticket == before[0], "called out of order"

    # ------------------------------------------------------------------ events

    @rule(grouped=st.booleans())
    def a_job_comes(self, grouped: bool) -> None:
        ticket = f"{'g' if grouped else 'j'}{len(self.jobs)}"
        self.jobs.append(ticket)
        self.come(Message(ticket))

    @rule(which=st.integers(0, 99))
    def a_message_comes(self, which: int) -> None:
        if self.queue:
            self.come(self.queue.pop(which % len(self.queue)))

    @rule(which=st.integers(0, 99))
    def a_message_comes_twice(self, which: int) -> None:
        if self.queue:
            self.come(self.queue[which % len(self.queue)])

    @rule(which=st.integers(0, 99))
    def a_late_note_arrives(self, which: int) -> None:
        if self.notes:
            self.resource.run(self.notes.pop(which % len(self.notes)))

    @rule(which=st.integers(0, 3))
    def a_process_waits(self, which: int) -> None:
        ticket = f"w{which}"
        if self.holder is None or self.holder[1] != ticket:
            answer = self.claim(ticket, self.waiting.get(ticket, 0), None, ALIVE)
            if isinstance(answer, Busy):
                self.waiting[ticket] = answer.rank
            else:
                self.waiting.pop(ticket, None)

    @rule(which=st.integers(0, 3), fate=st.sampled_from(FATES))
    def a_process_leaves(self, which: int, fate: str) -> None:
        ticket, token = f"w{which}", self.resource.token()
        before = self.line_without(ticket)
        turn = self.resource.run(line.leave("K", ticket, token, ("a",)))
        self.waiting.pop(ticket, None)
        self.check_called(before, turn)
        self.publish(turn, token, fate)

    @rule(fate=st.sampled_from(FATES), twice=st.booleans())
    def the_holder_finishes(self, fate: str, twice: bool) -> None:
        if self.holder is None:
            return
        token, ticket, message = self.holder
        before = self.line_without(ticket)
        ending: Ending = "done" if message else "release"
        finished = self.resource.finish(token, ticket, ending)
        assert finished.answer == "done"
        if twice and finished.called and finished.called.kind in ("job", "wait"):
            again = self.resource.finish(token, ticket, ending, resend=True)
            assert again.called == finished.called
        self.check_called(before, finished.called)
        self.holder = None
        if message:
            self.ended.add(ticket)
        self.publish(finished.called, token, fate)

    @rule(fate=st.sampled_from(FATES), routes=st.sampled_from([("a",), ("a",), ("b",), ()]))
    def a_sweep_comes_by(self, fate: str, routes: tuple[str, ...]) -> None:
        due: Any = self.resource.redis.peek(DUE) or {}
        before = self.line_without(*(t for t, at in due.items() if at <= self.resource.now_ms))
        token, swept = self.resource.sweep(routes)
        if swept.called is not None and swept.called.kind != "elsewhere":
            self.check_called(before, swept.called)
        if not swept.left:
            assert self.resource.redis.peek(DUE) is None
        for turn in (*swept.ended, swept.called):
            self.publish(turn, token, fate)

    @rule(ms=st.sampled_from([1, 300, 1_001, 2_000, 5_001, 12_000]))
    def time_passes(self, ms: int) -> None:
        self.resource.time_passes(ms)
        if self.holder is not None and self.resource.now_ms > self.held_until:
            message = self.holder[2]  # Its worker has crashed: the broker delivers it again.
            self.holder = None
            if message:
                self.queue.append(message)

    # ------------------------------------------------------------------ what must be true

    @invariant()
    def nobody_holds_but_the_holder(self) -> None:
        lock = str(self.resource.redis.peek("K") or "")
        holds = lock[:32] if lock and not lock.startswith("reserved") else None
        assert holds == (self.holder[0] if self.holder else None)

    @invariant()
    def no_job_is_lost(self) -> None:
        known = {message.ticket for message in self.queue} | self.resource.entries().keys()
        known |= self.ended | self.resource.dead()
        if self.holder is not None:
            known.add(self.holder[1])
        assert not set(self.jobs) - known

    @invariant()
    def of_a_group_one_waits(self) -> None:
        entries = self.resource.entries().values()
        waiting = [one for one in entries if one[5] == "g" and one[2] == one[4] == ""]
        assert len(waiting) <= 1

    def teardown(self) -> None:
        """Let everything come to its end: no job stays, and no key but the fence."""
        redis = self.resource.redis
        for _ in range(300):
            self.time_passes(1_100)
            self.the_holder_finishes("published", twice=False)
            for message in [self.queue.pop(0) for _ in self.queue[:]]:
                self.come(message)
                self.the_holder_finishes("published", twice=False)
            self.a_sweep_comes_by("published", ("a",))
            if not self.queue and redis.peek(PARKED) is redis.peek(DUE) is None:
                break
        assert set(self.jobs) <= self.ended | self.resource.dead()
        self.resource.time_passes(10_000)
        left = {key for key in list(redis.values) if redis.peek(key) is not None}
        records = {f"{{K}}:delivered:{ticket}" for ticket in self.jobs}
        assert left <= {FENCE, DEAD, *records}


Lines.TestCase.settings = UNTRACED
TestLines = Lines.TestCase
