"""One typed call per script: its keys, its arguments and how its reply is read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, TypeAlias

from giliran import holder, keys
from giliran.errors import StoreMisconfigured
from giliran.holder import Claimant
from giliran.steps import Call, Script
from giliran.timeouts import Timeouts, milliseconds


def _script(name: str) -> Script:
    text = resources.files("giliran").joinpath("scripts", f"{name}.lua").read_text("utf-8")
    return Script(name, text, hashlib.sha1(text.encode()).hexdigest())  # noqa: S324  Redis' own id


CLAIM, RENEW, FINISH = _script("claim"), _script("renew"), _script("finish")
SCRIPTS = (CLAIM, RENEW, FINISH)

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
    """

    kind: Kind = ""
    name: str = ""
    fingerprint: str = ""
    after_crash: AfterCrash = "retry"
    attempts: int = 1

    def key(self, lock_key: str) -> tuple[str, ...]:
        """Name the Redis key, if there is one."""
        if self.kind == "record":
            return (keys.record(lock_key, self.name),)
        return (keys.delivery(lock_key, self.name),) if self.kind == "delivery" else ()


@dataclass(frozen=True, slots=True)
class Ask:
    """One job's wish for one resource; `token` is new for every attempt to start.

    `elder` is the publication that this one is a framework's retry of.
    """

    lock_key: str
    token: str
    timeouts: Timeouts
    claimant: Claimant
    memory: Memory
    elder: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """The lease is ours."""

    server_ms: int
    fence: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Busy:
    """The resource is held.

    `by` says by whom: "another" job, this very "publication", or the "elder" it is a retry of.
    """

    server_ms: int
    remaining: float | None
    holder: str
    by: Literal["another", "publication", "elder"]


@dataclass(frozen=True, slots=True)
class Done:
    """Finished before; `result` is None if it was not kept."""

    server_ms: int
    state: Literal["done", "failed"]
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
    """How a finish went; `reason` says why a lost one was lost."""

    answer: Literal["done", "released", "lost"]
    reason: str


def text(raw: Any) -> str:
    """Read a bulk string whatever the client made of it."""
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


def claim(ask: Ask) -> Call[Answer]:
    """Ask for the lease; see `claim.lua`."""
    ttl, max_hold = milliseconds(ask.timeouts.ttl), milliseconds(ask.timeouts.max_hold)
    memory = ask.memory
    return Call(
        CLAIM,
        (ask.lock_key, keys.fence(ask.lock_key), *memory.key(ask.lock_key)),
        (
            ask.token, ttl, max_hold, ask.claimant.text(ttl, max_hold),
            holder.field(ask.claimant.publication), memory.kind, memory.fingerprint,
            milliseconds(ask.timeouts.max_hold + ask.timeouts.retain), memory.after_crash,
            str(memory.attempts),
            holder.field(ask.elder),
        ),
        lambda reply: _answer(ask.lock_key, reply),
    )  # fmt: skip


_HOLDERS: dict[str, Literal["another", "publication", "elder"]] = {
    "busy": "another",
    "duplicate": "publication",
    "elder": "elder",
}


def _answer(lock_key: str, reply: Any) -> Answer:
    server_ms, answer = int(reply[0]), text(reply[1])
    rest = [text(item) for item in reply[2:]]
    match answer, rest:
        case "held", [fence, attempt]:
            return Held(server_ms, int(fence), int(attempt))
        case (("busy" | "duplicate" | "elder"), [remaining, told]):
            left = int(remaining)
            return Busy(
                server_ms,
                None if left < 0 else left / 1000,
                holder.describe(told),
                _HOLDERS[answer],
            )
        case "done", [("done" | "failed") as state, result, attempt]:
            return Done(server_ms, state, result or None, int(attempt))
        case "mismatch", []:
            return Mismatch(server_ms)
        case "in_doubt", [attempt]:
            return Doubt(server_ms, int(attempt))
        case "gave_up", [attempt]:
            return Spent(server_ms, int(attempt))
        case "wrongtype", [kind]:
            raise StoreMisconfigured(
                "WRONGTYPE",
                f"lock key {lock_key!r} holds a {kind}, not a lock: another program uses this "
                "name; choose another key, or find out who writes it",
                ambiguous=False,
            )
        case _:
            raise AssertionError(f"impossible answer of claim: {reply!r}")


def renew(lock_key: str, token: str, ttl: float) -> Call[int]:
    """Push the lease's end out; answers server ms, or 0 gone, -1 another's, -2 max_hold over."""
    return Call(RENEW, (lock_key,), (token, milliseconds(ttl)), int)


def finish(
    lock_key: str,
    token: str,
    ending: Ending,
    memory: Memory,
    result: str,
    retain: float,
    *,
    resend: bool,
) -> Call[Finished]:
    """End the lease and settle the record; see `finish.lua`."""
    return Call(
        FINISH,
        (lock_key, *memory.key(lock_key)),
        (token, "1" if resend else "0", ending, memory.fingerprint, result, milliseconds(retain)),
        _finished,
    )


def _finished(reply: Any) -> Finished:
    answer, reason = text(reply[1]), text(reply[2])
    match answer:
        case "done" | "released" | "lost":
            return Finished(answer, reason)
        case _:
            raise AssertionError(f"impossible answer of finish: {reply!r}")
