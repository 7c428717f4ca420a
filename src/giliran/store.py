"""One typed call per script: its keys, its arguments and how its reply is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from giliran import holder, keys, line
from giliran.errors import StoreMisconfigured
from giliran.holder import Claimant
from giliran.line import Turn
from giliran.scripts import CLAIM, FINISH, RENEW, text
from giliran.steps import Call
from giliran.timeouts import Timeouts, milliseconds

Kind: TypeAlias = Literal["", "record", "delivery"]
AfterCrash: TypeAlias = Literal["retry", "hold"]
Ending: TypeAlias = Literal["done", "failed", "forget", "release"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Which record belongs to a job.

    Attributes:
        kind: "record" for an idempotency key, "delivery" for a publication, "" for none.
        name: the idempotency key or publication id.
        fingerprint: what a repeat must agree on.
        after_crash: what a claim does when an earlier attempt crashed.
        attempts: how many attempts may start in all.
        look: a claim only reads it, and does not write that an attempt is running.
    """

    kind: Kind = ""
    name: str = ""
    fingerprint: str = ""
    after_crash: AfterCrash = "retry"
    attempts: int = 1
    look: bool = False

    def key(self, lock_key: str) -> tuple[str, ...]:
        """Name the Redis key, if there is one."""
        if self.kind == "record":
            return (keys.record(lock_key, self.name),)
        return (keys.delivery(lock_key, self.name),) if self.kind == "delivery" else ()


@dataclass(frozen=True, slots=True)
class Ask:
    """One job's wish for a resource; `token` is new for every attempt to start.

    `further` are the resources it wants beside `lock_key`, in sorted order: all of them or none.
    `elder` is the publication that this one is a framework's retry of, `ticket` what it has in
    line, if it is there, and `rank` its rank there, if it had one before.
    """

    lock_key: str
    token: str
    timeouts: Timeouts
    claimant: Claimant
    memory: Memory
    elder: str = ""
    ticket: str = ""
    rank: int = 0
    further: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The lock keys of all resources."""
        return (self.lock_key, *self.further)

    @property
    def name(self) -> str:
        """The lock keys as one text: with a space between, which no key contains."""
        return " ".join(self.keys)


@dataclass(frozen=True, slots=True)
class Held:
    """The lease is ours; `further` are the fences of further resources."""

    server_ms: int
    fence: int
    attempt: int
    further: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Busy:
    """The resource is held; of several, `key` is the first that is.

    `by` says by whom: "another" job, this very "publication", the "elder" it is a retry of, or
    nobody: a "line" was there first. `told` is the lock's value without its token, "" for a foreign
    one. `waiting` is how many stand in line, `position` where we do
    (0 is first, -1 not at all) and `rank` what keeps that place.
    """

    server_ms: int
    remaining: float | None
    holder: str
    by: Literal["another", "publication", "elder", "line"]
    waiting: int = 0
    position: int = -1
    rank: int = 0
    told: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """Finished before, or superseded by a newer job; `result` is None if it was not kept."""

    server_ms: int
    state: Literal["done", "failed", "superseded"]
    result: str | None
    attempt: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The idempotency key came with another fingerprint."""

    server_ms: int


@dataclass(frozen=True, slots=True)
class Doubt:
    """An earlier attempt crashed and its effect is unknown."""

    server_ms: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Spent:
    """As many attempts as allowed have started."""

    server_ms: int
    attempt: int


Answer: TypeAlias = Held | Busy | Done | Mismatch | Doubt | Spent


@dataclass(frozen=True, slots=True)
class Finished:
    """How a finish went; `reason` says why a lost one was lost, `called` who is next.

    `further` says who is next for further resources, in their order.
    """

    answer: Literal["done", "released", "lost"]
    reason: str
    called: Turn | None = None
    further: tuple[Turn | None, ...] = ()


def claim(ask: Ask, alive: float | None = None) -> Call[Answer]:
    """Ask for the lease, and wait in line for `alive` seconds if it is busy; see `claim.lua`."""
    ttl, max_hold = milliseconds(ask.timeouts.ttl), milliseconds(ask.timeouts.max_hold)
    memory = ask.memory
    return Call(
        CLAIM,
        (
            *(name for key in ask.keys for name in (key, keys.fence(key), *keys.line(key))),
            *memory.key(ask.lock_key),
        ),
        (
            ask.token, ttl, max_hold, ask.claimant.text(ttl, max_hold),
            holder.field(ask.claimant.publication),
            "delivery" if memory.look else memory.kind, memory.fingerprint,
            milliseconds(ask.timeouts.max_hold + ask.timeouts.retain), memory.after_crash,
            str(memory.attempts),
            holder.field(ask.elder), ask.ticket, str(ask.rank or ""),
            "" if alive is None else milliseconds(alive),
        ),
        lambda reply: _answer(ask.keys, reply),
    )  # fmt: skip


_HOLDERS: dict[str, Literal["another", "publication", "elder"]] = {
    "busy": "another",
    "duplicate": "publication",
    "elder": "elder",
}


def _answer(lock_keys: tuple[str, ...], reply: Any) -> Answer:
    server_ms, answer = int(reply[0]), text(reply[1])
    rest = [text(item) for item in reply[2:]]
    match answer, rest:
        case "held", [fence, attempt, *further]:
            return Held(server_ms, int(fence), int(attempt), tuple(map(int, further)))
        case (
            ("busy" | "duplicate" | "elder"),
            [remaining, told, waiting, position, rank, *number],
        ):
            left = int(remaining)
            return Busy(
                server_ms,
                None if left < 0 else left / 1000,
                holder.describe(told),
                _HOLDERS[answer],
                int(waiting),
                int(position),
                int(rank),
                told,
                _named(lock_keys, number),
            )
        case "queued", [waiting, position, rank, *number]:
            return Busy(
                server_ms, 0.0, "those before it in line", "line", int(waiting), int(position),
                int(rank), key=_named(lock_keys, number),
            )  # fmt: skip
        case "done", [("done" | "failed" | "superseded") as state, result, attempt]:
            return Done(server_ms, state, result or None, int(attempt))
        case "mismatch", []:
            return Mismatch(server_ms)
        case "in_doubt", [attempt]:
            return Doubt(server_ms, int(attempt))
        case "gave_up", [attempt]:
            return Spent(server_ms, int(attempt))
        case "wrongtype", [kind, *number]:
            raise StoreMisconfigured(
                "WRONGTYPE",
                f"lock key {_named(lock_keys, number)!r} holds a {kind}, not a lock: another "
                "program uses this name; choose another key, or find out who writes it",
                ambiguous=False,
            )
        case _:
            raise AssertionError(f"impossible answer of claim: {reply!r}")


def _named(lock_keys: tuple[str, ...], number: list[str]) -> str:
    """Name the resource that a reply is about: the first, unless it says which."""
    return lock_keys[int(number[0])] if number else lock_keys[0]


def renew(lock_key: str, token: str, ttl: float, further: tuple[str, ...] = ()) -> Call[int]:
    """Push the lease's end out; answers server ms, or 0 gone, -1 another's, -2 max_hold over."""
    return Call(RENEW, (lock_key, *further), (token, milliseconds(ttl)), int)


def finish(
    lock_key: str,
    token: str,
    ending: Ending,
    memory: Memory,
    result: str,
    retain: float,
    *,
    resend: bool,
    ticket: str = "",
    routes: tuple[str, ...] = (),
    further: tuple[str, ...] = (),
    fence: int | None = None,
) -> Call[Finished]:
    """End the lease, settle the record and call the next in line; see `finish.lua`.

    With `fence`, only the lease that has it: a late copy of this must not end a later one.
    """
    return Call(
        FINISH,
        (
            *(name for key in (lock_key, *further) for name in (key, *keys.line(key))),
            *memory.key(lock_key),
        ),
        (
            token, "1" if resend else "0", ending, memory.fingerprint, result,
            milliseconds(retain), ticket, line.routes_text(routes),
            *(() if fence is None else (str(fence),)),
        ),
        _finished,
    )  # fmt: skip


def _finished(reply: Any) -> Finished:
    answer, reason = text(reply[1]), text(reply[2])
    match answer:
        case "done" | "released" | "lost":
            called, *further = map(line.turn, reply[3:])
            return Finished(answer, reason, called, tuple(further))
        case _:
            raise AssertionError(f"impossible answer of finish: {reply!r}")
