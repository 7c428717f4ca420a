"""Mutants of the line: parking, calling, offering, leaving and sweeping, broken on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.sim.broken import Break, both, prelude, script

from giliran import handoff, line
from giliran.attempt import Attempt
from giliran.errors import StoreUnavailable
from giliran.handoff import Caller
from giliran.steps import Now

if TYPE_CHECKING:
    import pytest


def offered_whatever_the_broker_says(patch: pytest.MonkeyPatch) -> None:
    honest = line.offer

    def offer(lock_key: str, ticket: str, token: str, _: str) -> Any:
        return honest(lock_key, ticket, token, "taken")

    patch.setattr(line, "offer", offer)


def an_outage_is_a_refusal(patch: pytest.MonkeyPatch) -> None:
    honest = line.offer

    def offer(lock_key: str, ticket: str, token: str, became: str) -> Any:
        return honest(lock_key, ticket, token, "taken" if became == "taken" else "refused")

    patch.setattr(line, "offer", offer)


def parked_without_its_rank(patch: pytest.MonkeyPatch) -> None:
    honest = line.park
    patch.setattr(line, "park", lambda *args: honest(*args[:5]))


def nobody_is_told_of_the_dead(patch: pytest.MonkeyPatch) -> None:
    honest = Caller.tell

    def tell(caller: Caller, name: str, *rest: Any) -> Any:
        return honest(caller, "job.called" if name == "job.dead" else name, *rest)

    patch.setattr(Caller, "tell", tell)


def published_without(**lost: Any) -> Break:
    """A called job is published without something that it has."""
    honest = handoff.publish

    def broken(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(handoff, "publish", lambda who, turn: honest(who, replace(turn, **lost)))

    return broken


def parked_without_a_mark(patch: pytest.MonkeyPatch) -> None:
    honest = line.lines

    def lines(route: str, what: Any, key: str = "", found_ms: int | None = None) -> Any:
        return honest(route, "look" if what == "mark" else what, key, found_ms)

    patch.setattr(line, "lines", lines)


def marked_once(patch: pytest.MonkeyPatch) -> None:
    """Who stood still between mark and park does not mark again; seed 44 of its time."""
    patch.setattr(handoff, "MARKED", float("inf"))


def reclaimed_without_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handoff, "Examine", lambda _: Now())  # Answered with a number: true.


def an_unanswered_reclaim_fails_the_job(patch: pytest.MonkeyPatch) -> None:
    """Proof of death without an answer of Redis; seed 30 of its time."""
    honest = handoff.insist

    def insist(request: Any, patience: float) -> Any:
        try:
            return (yield from honest(request, patience))
        except StoreUnavailable as error:
            if request.script.name == "reclaim":
                raise ConnectionError from error
            raise

    patch.setattr(handoff, "insist", insist)


def every_try_is_a_first_contention(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempt, "since_ms", property(lambda _: 0, lambda *_: None))


LUA_HOPELESS = "entry.kind == 'job' and entry.called >= 100"

LINE_MUTANTS: dict[str, Break] = {
    "a free resource is for whoever asks": script(
        "CLAIM", "local in_front = not first[1]", "local in_front = true"
    ),
    "anybody takes a reservation": script(
        "CLAIM",
        "one.called = value and is_reserved_for(value, ticket)",
        "one.called = value and is_reserved(value)",
    ),
    "a claim takes a parked job off its shelf": script(
        "CLAIM", "(not one.entry or one.entry.kind == 'wait')", "true"
    ),
    "who comes back stands behind everybody": script(
        "PARK", "rank = ARGV[1], ARGV[2], ARGV[3], ARGV[4]", "rank = ARGV[1], ARGV[2], ARGV[3], ''"
    ),
    "who was called keeps nothing": prelude("'PX', life)", "'PX', 1)"),
    "a reservation has no end": prelude(
        "FOR_JOB, FOR_WAITER, AT_ONCE = 5000,", "FOR_JOB, FOR_WAITER, AT_ONCE = 3600000,"
    ),
    "the last in line is called": prelude(
        "redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')\n    local ticket",
        "redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')\n    local ticket",
    ),
    "a dead waiter keeps its place": prelude(
        "if not entry or (entry.kind == 'wait'", "if not entry or (false"
    ),
    "any process publishes any job": prelude(
        "elseif not string.find(routes, '|' .. entry.route .. '|', 1, true) then",
        "elseif false then",
    ),
    "a dead job is called for ever": prelude(LUA_HOPELESS, "false"),
    "a refusal counts like a call": script("OFFER", "+ 19", "+ 0"),
    "a call without an answer is a refusal": both(
        prelude(LUA_HOPELESS, "entry.kind == 'job' and entry.called >= 5"),
        script("OFFER", "+ 19", "+ 0"),
    ),
    "an outage of the broker counts as a call": script("OFFER", "entry.called - 1", "entry.called"),
    "an outage of the broker is a refusal": an_outage_is_a_refusal,
    "what is set aside is lost": prelude("entry.route, payload}, '|'))", "entry.route, ''}, '|'))"),
    "nobody is told of the dead": nobody_is_told_of_the_dead,
    "a called waiter hears no bell": prelude("redis.call('RPUSH', bell, '1')", "local _ = bell"),
    "a copy keeps its job from its old place": prelude(
        "return has and had and math.min(has, had) or has or had", "return has or had"
    ),
    "parked without its rank": parked_without_its_rank,
    "whoever has a rank goes first": script(
        "CLAIM", "(had and had <= tonumber(first[2]))", "(had and true)"
    ),
    "who is called is off the shelf": prelude(
        "      reserve(lock, token, ticket, rank, now, FOR_JOB)\n"
        "      return turn_of(line, parked, ticket, entry)",
        "      reserve(lock, token, ticket, rank, now, FOR_JOB)\n"
        "      local told = turn_of(line, parked, ticket, entry)\n"
        "      take_out(line, parked, ticket, entry)\n      return told",
    ),
    "who leaves ends any reservation": script(
        "LEAVE",
        "== 'string' and is_reserved_for(value, ticket)",
        "== 'string' and is_reserved(value)",
    ),
    "who is superseded is dropped": script(
        "PARK",
        "  write_entry(parked, superseded, loser)\n",
        "  take_out(line, parked, superseded, loser)\n",
    ),
    "the oldest of a group stays": script(
        "PARK", "local late = other and (", "local late = other and not ("
    ),
    "the last to park is the newest": script("PARK", "(ends < other.ends or (", "(false or ("),
    "a group has no end": script("PARK", "local rival = group ~= ''", "local rival = group == '-'"),
    "who is to end is parked again": script(
        "PARK", "if known and known.verdict ~= '' then", "if false then"
    ),
    "who is superseded may come back": script(
        "PARK", "if not redis.call('HGET', delivered, 'state') then", "if false then"
    ),
    "who is superseded may come back with a record": script(
        "CLAIM", "elseif kind == 'record' and publication ~= ''", "elseif false"
    ),
    "who claimed before it was superseded may park": script(
        "PARK", "if is_superseded(parked, ticket) then", "if false then"
    ),
    "an answer that is sent twice counts twice": script(
        "OFFER", "elseif #entry.by > 32 then", "elseif false then"
    ),
    "every try is a first contention": every_try_is_a_first_contention,
    "the newest stands behind everybody": script(
        "PARK", "math.min(score or math.huge, theirs or math.huge)", "score or math.huge"
    ),
    "a full line takes one more and forgets it": script(
        "PARK", "return {now, 'full'}", "return {now, 'parked', 0, '0'}"
    ),
    "jobs give up before their time": script(
        "SWEEP", "'-inf', string.format('%.0f', now)", "'-inf', string.format('%.0f', now + 60000)"
    ),
    "a sweep calls though somebody holds": script(
        "SWEEP",
        "reply[4] = value and called_before(value, token, line, parked)\n  or",
        "reply[4] =",
    ),
    "a sweep ends who has been called": script(
        "SWEEP", "elseif value and is_reserved_for(value, ticket) then", "elseif false then"
    ),
    "any lease is reclaimed": script("RECLAIM", "string.sub(value, 34) ~= told", "false"),
    "reclaimed without proof": reclaimed_without_proof,
    "a reclaim without an answer fails the job": an_unanswered_reclaim_fails_the_job,
    "offered whatever the broker says": offered_whatever_the_broker_says,
    "published without a rank": published_without(rank=0),
    "an empty line is forgotten at once": script(
        "LINES", "tonumber(last) < now - 60000", "tonumber(last)"
    ),
    "parked without a mark": parked_without_a_mark,
    "marked once, however long ago": marked_once,
}
