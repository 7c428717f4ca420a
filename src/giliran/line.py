"""The line of a resource: one typed call per script that moves it, and who was called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from giliran import holder, keys
from giliran.scripts import LEAVE, LINES, OFFER, PARK, RECLAIM, SWEEP, text
from giliran.steps import Call
from giliran.timeouts import milliseconds


@dataclass(frozen=True, slots=True)
class Turn:
    """Who was called, and has the resource reserved for a few seconds.

    Attributes:
        kind: "job" a parked job, to be published again; "wait" a waiting process, woken already;
            "dead" a parked job that could not be published, set aside just now; "elsewhere" only
            another process can publish it; "more" the sweep is not through.
        ticket: its place in the line.
        rank: where it stands in the order of first arrival; 0 if it left the line.
        verdict: how a job is to end: "gave_up" or "superseded"; "" to run.
        route: who can publish it.
        payload: what to publish it with.
    """

    kind: Literal["job", "wait", "dead", "elsewhere", "more"]
    ticket: str = ""
    rank: int = 0
    verdict: str = ""
    route: str = ""
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Shelved:
    """What is needed to publish a job again.

    Attributes:
        route: names who can: the queue of the process that parked it, and others like it.
        payload: what it is published with; only that queue understands it.
    """

    route: str
    payload: str


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a job is parked.

    Attributes:
        ends_ms: server time at which it is to end if it was not called by then.
        most: how many may be parked.
        group: of each group one job waits, the newest; "" for none.
        durable: refuse where Redis does not write every job down.
        retain: how long a copy of a superseded job is known as such, in seconds.
    """

    ends_ms: int
    most: int
    retain: float
    group: str = ""
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the line; position 0 is next. `superseded` is the job whose place it took."""

    server_ms: int
    position: int
    rank: int
    superseded: Turn | None


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found.

    Attributes:
        server_ms: when.
        left: how many entries there are still.
        told: the lock's value without its token; "" if nobody of ours holds it.
        called: who was called.
        ended: jobs to publish with a verdict, and those set aside.
    """

    server_ms: int
    left: int
    told: str
    called: Turn | None
    ended: tuple[Turn, ...]


def routes_text(routes: tuple[str, ...]) -> str:
    """Write the routes that this process can publish on."""
    return f"|{'|'.join(routes)}|" if routes else ""


def turn(reply: Any) -> Turn | None:
    """Read who was called; None if nobody."""
    told = [text(item) for item in reply]
    match told:
        case []:
            return None
        case ["more"]:
            return Turn("more")
        case ["elsewhere", route]:
            return Turn("elsewhere", route=route)
        case [("job" | "wait" | "dead") as kind, ticket, rank, verdict, route, payload]:
            return Turn(kind, ticket, int(float(rank)), verdict, route, payload)
        case _:
            raise AssertionError(f"impossible turn: {reply!r}")


def park(
    lock_key: str, ticket: str, token: str, shelved: Shelved, terms: Terms, rank: int = 0
) -> Call[Place | Literal["free", "full"]]:
    """Park a job until it is called, or until its time is over; see `park.lua`.

    `token` is the caller's, if it publishes the job that is superseded.
    """
    args = (
        ticket, shelved.route, shelved.payload, str(rank or ""), str(terms.ends_ms),
        str(terms.most), holder.field(terms.group), "1" if terms.durable else "0", token,
        milliseconds(terms.retain),
    )  # fmt: skip
    return Call(PARK, (lock_key, *keys.line(lock_key), keys.due(lock_key)), args, _parked)


def _parked(reply: Any) -> Place | Literal["free", "full"]:
    answer = text(reply[1])
    match answer:
        case "free" | "full":
            return answer
        case "parked":
            older = [text(item) for item in reply[4:]]
            superseded = None
            if older:
                superseded = Turn("job", older[0], 0, "superseded", older[1], older[2])
            return Place(int(reply[0]), int(reply[2]), int(text(reply[3])), superseded)
        case _:
            raise AssertionError(f"impossible answer of park: {reply!r}")


def leave(lock_key: str, ticket: str, token: str, routes: tuple[str, ...]) -> Call[Turn | None]:
    """Give up a place; answers who was called instead; see `leave.lua`."""
    args = (ticket, token, routes_text(routes))
    return Call(LEAVE, (lock_key, *keys.line(lock_key)), args, lambda reply: turn(reply[1:]))


def offer(
    lock_key: str, ticket: str, token: str, became: Literal["taken", "refused", "unreachable"]
) -> Call[Literal["noted", "dead", "not ours"]]:
    """Answer for a called job: "dead" if that was one refusal too many; see `offer.lua`."""
    return Call(
        OFFER,
        (*keys.line(lock_key), keys.due(lock_key), keys.dead(lock_key)),
        (ticket, token, became),
        _offered,
    )


def _offered(reply: Any) -> Literal["noted", "dead", "not ours"]:
    answer = text(reply[1])
    match answer:
        case "noted" | "dead" | "not ours":
            return answer
        case _:
            raise AssertionError(f"impossible answer of offer: {reply!r}")


def sweep(lock_key: str, token: str, routes: tuple[str, ...]) -> Call[Swept]:
    """Look after one line; see `sweep.lua`."""
    names = (lock_key, *keys.line(lock_key), keys.due(lock_key), keys.dead(lock_key))
    return Call(SWEEP, names, (token, routes_text(routes)), _swept)


def _swept(reply: Any) -> Swept:
    ended = [turn(each) for each in reply[4:]]
    return Swept(
        int(reply[0]),
        int(reply[1]),
        text(reply[2]),
        turn(reply[3]),
        tuple(each for each in ended if each is not None),
    )


def reclaim(
    lock_key: str, token: str, told: str, routes: tuple[str, ...]
) -> Call[tuple[bool, Turn | None]]:
    """End the lease of a dead holder; answers whether, and who was called; see `reclaim.lua`."""
    return Call(
        RECLAIM,
        (lock_key, keys.fence(lock_key), *keys.line(lock_key)),
        (token, told, routes_text(routes)),
        lambda reply: (text(reply[1]) == "reclaimed", turn(reply[2])),
    )


def lines(
    route: str,
    what: Literal["mark", "hurry", "look", "clear"],
    lock_key: str = "",
    found_ms: int | None = None,
) -> Call[list[str]]:
    """Keep the index of lines; `look` answers the lock keys to look at; see `lines.lua`.

    `clear` says when the line was found empty, in ms of the server's time.
    """
    found = "" if found_ms is None else str(found_ms)
    return Call(
        LINES, keys.index(route), (what, lock_key, found),
        lambda reply: [text(one) for one in reply[1:]],
    )  # fmt: skip
