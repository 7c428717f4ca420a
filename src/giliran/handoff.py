"""The line of a resource over time: waiting in it, being parked, called and published again.

Two kinds of ticket stand in one line. A *job* is parked: its payload lies in Redis and it costs
nothing until `finish` calls it; then whoever finished publishes it again. A process that *waits*
is woken by its bell. Both come in the order in which they first met the busy resource. Bells and
the index of lines are hints: what is lost of them costs time, never a job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from giliran import holder, keys, line, programs
from giliran.errors import NotPublished, StoreMisconfigured, StoreUnavailable
from giliran.events import Event
from giliran.line import Place, Shelved, Terms, Turn
from giliran.programs import ANSWER_TIMEOUT, RESEND_PAUSE, Claimed
from giliran.steps import Call, Emit, Examine, Listen, Program, Publish, Sleep, call, now
from giliran.store import Ask, Busy, Ending

T = TypeVar("T")

ALIVE = 15.0  # How long a waiting process is taken for alive; it says so every third of it.
BEHIND = 0.02  # Who stands further back looks later, so that they do not all come at once.
POLL_FIRST, POLL_LONGEST = 0.05, 1.0
LOOKS = 16
MARKED = 30.0  # An empty line stays marked for twice as long, see `lines.lua`.
AUTOPSY = 0.5  # How often a holder is examined where that is wanted.


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls the next: for which resource, by which token, and what it can publish.

    `event` is the template of what is told. With `proven`, the lease of a holder that is proven
    dead is not waited for.
    """

    lock_key: str
    token: str
    routes: tuple[str, ...]
    event: Event
    proven: bool = False

    def at(self, lock_key: str) -> Caller:
        """The same for one of a job's resources."""
        if lock_key == self.event.lock_key:
            return self
        return replace(self, lock_key=lock_key, event=replace(self.event, lock_key=lock_key))

    def tell(self, name: str, turn: Turn, result: str, reason: str = "") -> Emit:
        """Make the step that tells what became of a called job."""
        fields = {**self.event.fields, "publication": turn.ticket}
        return Emit(replace(self.event, name=name, result=result, reason=reason, fields=fields))


def insist(request: Call[T], patience: float) -> Program[T]:
    """Ask until Redis answers, for at most `patience` seconds.

    Raises:
        StoreUnavailable: without an answer; the request may have been applied all the same.
    """
    give_up_at = (yield from now()) + patience
    while True:
        try:
            return (yield from call(request, ANSWER_TIMEOUT))
        except StoreUnavailable as error:
            over = (yield from now()) + RESEND_PAUSE >= give_up_at
            if over or isinstance(error, StoreMisconfigured):
                raise
            yield Sleep((yield from now()) + RESEND_PAUSE)


def reclaim(caller: Caller, told: str) -> Program[bool]:
    """If a holder is proven dead, end its lease and let the next one come; True if it did."""
    if not caller.proven or not told.startswith("v=1;"):
        return False
    dead = yield Examine(told)
    if not dead:
        return False
    request = line.reclaim(caller.lock_key, caller.token, told, caller.routes)
    reclaimed = False
    try:
        reclaimed, called = yield from insist(request, ANSWER_TIMEOUT)
        if reclaimed:
            owner = holder.describe(told)
            yield Emit(
                replace(caller.event, name="lock.reclaimed", lock_owner=owner, result="free")
            )
        yield from pass_on(caller, called)
    except StoreUnavailable:
        pass  # The lease expires all the same, and a sweep calls again who was called.
    return reclaimed


# ---------------------------------------------------------------------- in this process


def acquire(
    ask: Ask, patience: float, budget: float, luck: Callable[[], float], caller: Caller
) -> Program[Claimed]:
    """Claim, and while the resource is busy wait in line for `budget` seconds.

    The last try is made at the end of the budget. Who does not get the lease must `leave`.
    A job of several resources stands in none of their lines and looks again and again.
    `luck` draws from 0 to 1.
    """
    alive = ALIVE if budget and not ask.further else None
    ends = (yield from now()) + budget
    pause = POLL_FIRST
    while True:
        claimed = yield from programs.claim(ask, patience, alive)
        busy = claimed.answer
        instant = yield from now()
        if not isinstance(busy, Busy) or busy.by not in ("another", "line") or instant >= ends:
            return claimed
        if (yield from reclaim(caller.at(busy.key), busy.told)):
            continue
        if busy.by == "line":
            yield from sweep_line(caller.at(busy.key))
        poll = pause * (0.5 + luck() / 2)
        if ask.further:
            yield Sleep(min(instant + poll, ends))
        else:
            ask = replace(ask, rank=busy.rank)
            nap = min(_nap(busy, poll), AUTOPSY) if caller.proven else _nap(busy, poll)
            yield Listen(keys.bell(ask.lock_key, ask.ticket), min(instant + nap, ends))
        pause = min(pause * 2, POLL_LONGEST)


def _nap(busy: Busy, poll: float) -> float:
    """How long to listen before looking again, should no bell ring.

    Holders of ours ring; a foreign one does not, so the first in line looks often. All look when
    the lock should have expired, one after the other.
    """
    longest = ALIVE / 3
    if busy.by == "line" or (not busy.holder and busy.position == 0):
        longest = poll
    if busy.remaining is None:
        return longest
    return min(longest, max(busy.remaining, 0.0) + 0.001 + BEHIND * busy.position)


def leave(caller: Caller, ticket: str) -> Program[None]:
    """Give up a place in line; whoever was waiting for it to come is called instead."""
    request = line.leave(caller.lock_key, ticket, caller.token, caller.routes)
    turn = yield from insist(request, ALIVE)
    yield from pass_on(caller, turn)


def give_back(caller: Caller, ask: Ask, ending: Ending) -> Program[None]:
    """Give back a lease that may be ours, and see to it that the next in line comes."""
    called: dict[str, Turn | None] = {}
    for key in ask.keys:
        one = replace(ask, lock_key=key, further=())  # Beside further ones there is no record.
        called[key] = yield from programs.abandon(one, ending, caller.routes)
    for key, turn in called.items():
        yield from pass_on(caller.at(key), turn)


# ---------------------------------------------------------------------- parked jobs


def park(
    ask: Ask, shelved: Shelved, terms: Terms, patience: float
) -> Program[Place | Literal["free", "full"]]:
    """Park a job. Its line is marked for sweeps first, so that it cannot be forgotten.

    Raises:
        StoreUnavailable: without an answer; the job may be parked all the same.
    """
    mark = line.lines(shelved.route, "mark", ask.lock_key)
    marked = yield from now()
    yield from insist(mark, patience)
    request = line.park(ask.lock_key, ask.ticket, ask.token, shelved, terms, ask.rank)
    place = yield from insist(request, patience)
    if (yield from now()) - marked > MARKED:
        yield from insist(mark, patience)  # This process stood still: it may have been cleared.
    return place


def pass_on(caller: Caller, turn: Turn | None) -> Program[None]:
    """See to it that whoever was called comes."""
    for _ in range(LOOKS):
        match turn:
            case None | Turn(kind="wait"):
                return
            case Turn(kind="job"):
                yield from publish(caller, turn)
                return
            case Turn(kind="elsewhere"):
                yield from insist(line.lines(turn.route, "hurry", caller.lock_key), ANSWER_TIMEOUT)
                return
            case Turn():
                pass  # Too many were gone: go on.
        request = line.sweep(caller.lock_key, caller.token, caller.routes)
        turn = (yield from insist(request, ANSWER_TIMEOUT)).called


def publish(caller: Caller, turn: Turn) -> Program[None]:
    """Publish a called job and note whether the broker has it; it stays parked if not."""
    if turn.kind == "dead":
        yield caller.tell("job.dead", turn, "dead", "unanswered")
        return
    became: Literal["taken", "refused", "unreachable"] = "taken"
    try:
        yield Publish(turn.route, turn.payload, turn.rank, turn.verdict)
    except NotPublished as error:
        became = "unreachable" if error.outage else "refused"
        yield caller.tell("job.called", turn, became, error.reason)
    else:
        yield caller.tell("job.called", turn, "published", turn.verdict)
    answer = yield from insist(
        line.offer(caller.lock_key, turn.ticket, caller.token, became), ANSWER_TIMEOUT
    )
    if answer == "dead":
        yield caller.tell("job.dead", turn, "dead", "refused")


# ---------------------------------------------------------------------- sweeps


def sweep_line(caller: Caller) -> Program[None]:
    """Look after one line: call the next if nobody holds the resource, end what is overdue."""
    request = line.sweep(caller.lock_key, caller.token, caller.routes)
    swept = yield from insist(request, ANSWER_TIMEOUT)
    for turn in sorted(swept.ended, key=lambda turn: turn.kind != "dead"):  # Told in any case.
        yield from publish(caller, turn)
    yield from pass_on(caller, swept.called)
    yield from reclaim(caller, swept.told)
    if not swept.left:
        for route in caller.routes:
            clear = line.lines(route, "clear", caller.lock_key, swept.server_ms)
            yield from call(clear, ANSWER_TIMEOUT)


def sweep(routes: tuple[str, ...], token: str, *, proven: bool) -> Program[None]:
    """Look after the lines whose look is due, at most 100 a route."""
    for route in routes:
        due = yield from call(line.lines(route, "look"), ANSWER_TIMEOUT)
        for lock_key in due:
            event = Event("job.called", lock_key)
            try:
                yield from sweep_line(Caller(lock_key, token, routes, event, proven))
            except StoreMisconfigured as error:  # One broken line must not keep the others waiting.
                yield Emit(
                    replace(event, name="lock.misused", result="unavailable", reason=error.code)
                )
