"""Programs and scripts broken on purpose, one idea each: the world must notice every one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.sim.broken import Break, script
from tests.sim.line_mutants import LINE_MUTANTS
from tests.sim.work import Work

from giliran import attempt, programs
from giliran.attempt import Attempt
from giliran.errors import StoreUnavailable
from giliran.lease import Lease
from giliran.programs import Claimed
from giliran.steps import Program, now
from giliran.store import Ask, Busy, Held
from giliran.timeouts import Timeouts
from giliran.verdicts import PutBack

if TYPE_CHECKING:
    import pytest


def trust_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    honest = Lease.trust_from
    patch.setattr(Lease, "trust_from", lambda lease, _: honest(lease, lease._clock()))


def trust_without_end(patch: pytest.MonkeyPatch) -> None:
    """Believe only what Redis says."""
    patch.setattr(Lease, "lost", property(lambda lease: lease._lost))


def trust_revived(patch: pytest.MonkeyPatch) -> None:
    """An answer that came when trust had ended makes it begin anew."""

    def trust_from(lease: Lease, asked: float) -> None:
        lease.trusted_until = max(lease.trusted_until, lease._end(asked))

    patch.setattr(Lease, "trust_from", trust_from)


def no_margin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeouts, "margin", property(lambda _: 0.0))
    patch.setattr(Timeouts, "hold_margin", property(lambda _: 0.0))


def no_margin_of_max_hold(patch: pytest.MonkeyPatch) -> None:
    """The end of max_hold is as sharp as that of one TTL; seed 12 of its time."""
    patch.setattr(Timeouts, "hold_margin", Timeouts.margin)


def no_check_before_the_body(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "check", lambda _: None)


def heartbeat_not_stopped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Work, "_stop_keeper", lambda *_: None)


def refusal_means_free(patch: pytest.MonkeyPatch) -> None:
    """READONLY is taken for a grant."""
    honest = programs.claim

    def claim(ask: Ask, patience: float, alive: float | None = None) -> Program[Claimed]:
        try:
            return (yield from honest(ask, patience, alive))
        except StoreUnavailable as error:
            if error.code != "READONLY":
                raise
            asked = yield from now()
            return Claimed(Held(0, 1, 1), asked)

    patch.setattr(programs, "claim", claim)


def ambiguous_is_failed(patch: pytest.MonkeyPatch) -> None:
    """A claim without an answer counts as one that was not applied."""
    honest = programs.claim

    def claim(ask: Ask, patience: float, alive: float | None = None) -> Program[Claimed]:
        try:
            return (yield from honest(ask, patience, alive))
        except StoreUnavailable as error:
            error.ambiguous = False
            raise

    patch.setattr(programs, "claim", claim)


def nothing_is_given_back(patch: pytest.MonkeyPatch) -> None:
    def abandon(ask: Ask, ending: str, routes: tuple[str, ...]) -> Program[None]:
        yield from now()

    patch.setattr(programs, "abandon", abandon)


def only_known_losses_are_given_back(patch: pytest.MonkeyPatch) -> None:
    """A renewal answered too late leaves the lock to its TTL; seed 7 of its time."""
    patch.setattr(attempt, "_OUR_WORD", ("max_hold", "unreachable"))


def contention_counts_as_recovery(patch: pytest.MonkeyPatch) -> None:
    honest: Any = Attempt._later

    def later(self: Attempt, job: Any, policy: Any, busy: Busy, patience: float) -> Any:
        ended = yield from honest(self, job, policy, busy, patience)
        if isinstance(ended, PutBack):
            carried = replace(ended.carried, recoveries=ended.carried.recoveries + 1)
            return replace(ended, carried=carried)
        return ended

    patch.setattr(Attempt, "_later", later)


def duplicate_is_contention(patch: pytest.MonkeyPatch) -> None:
    honest: Any = Attempt._busy
    patch.setattr(
        Attempt, "_busy", lambda self, busy, *rest: honest(self, replace(busy, by="another"), *rest)
    )


def time_limit_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    """An attempt that a time limit ended is forgotten, as if it had no effect."""
    honest: Any = Attempt._ending

    def ending(self: Attempt, error: BaseException) -> tuple[str, str, str]:
        name, how, result = honest(self, error)
        return name, "forget" if name == "job.crashed" else how, result

    patch.setattr(Attempt, "_ending", ending)


LUA_OURS = "type(value) == 'string' and string.sub(value, 1, #grant) == grant"
LUA_FENCE = "one.fence = string.format('%.0f', math.max(last + 1, now_us))"
LUA_LIFE = "    'PX', math.min(ttl, max_hold))"
LUA_TAKE = (
    "  redis.call('SET', one.lock, token .. ';v=1;fence=' .. one.fence .. ';acquired=' .. now"
    f" .. holder,\n{LUA_LIFE}"
)
LUA_LOST = "  return {now, 'lost', reason, {}}"
LUA_ENDED = "elseif state == 'done' or state == 'failed' or state == 'superseded' then"

MUTANTS: dict[str, Break] = {
    "release without a token check": script(
        "FINISH", LUA_OURS, "type(value) == 'string'"
    ),
    "renew without a token check": script(
        "RENEW", "type(value) == 'table' or string.sub(value, 1, 33) ~= token .. ';'", "false"
    ),
    "claim without a TTL": script(
        "CLAIM", LUA_LIFE, "    'KEEPTTL')"
    ),
    "a record without a TTL": script(
        "FINISH",
        "redis.pcall('PEXPIRE', record, retain)",
        "1 redis.call('HSET', record, 'kept', 1)",
    ),
    "claim is not idempotent": script(
        "CLAIM", "one.ours = value and string.sub(value, 1, 37) == token", "one.ours = nil == token"
    ),
    "a second send of a claim does not refresh the TTL": script(
        "CLAIM", LUA_TAKE, f"  if not one.ours then\n{LUA_TAKE}\n  end"
    ),
    "a second send of a claim keeps the first max_hold": script(
        "CLAIM",
        LUA_TAKE,
        "  if one.ours then\n"
        "    local acquired = tonumber(string.match(one.value, ';acquired=(%d+)'))\n"
        "    redis.call('PEXPIRE', one.lock, math.max(1, math.min(ttl, acquired + max_hold - now)))"
        f"\n  else\n{LUA_TAKE}\n  end",
    ),
    "finish ignores that it was sent before": script("FINISH", "ARGV[2] == '1'", "false"),
    "finish does not look for its own record": script(
        "FINISH", "if reason and recorded and noted[1] == token", "if false"
    ),
    "finish writes no record": script("FINISH", "if recorded then", "if false then"),
    "a record is written although the lease is lost": script(
        "FINISH",
        LUA_LOST,
        "  if recorded then redis.call('HSET', record, 'state', ending, 'fingerprint', ARGV[4],"
        " 'result', ARGV[5]) redis.call('PEXPIRE', record, retain) end"
        "  return {now, 'lost', reason, {}}",
    ),
    "a record is taken over by age while the lock is held": script(
        "CLAIM",
        "\nlocal which, why, told\n",
        "\nlocal started = kind == 'record' and redis.call('HGET', record, 'started')"
        "\nif started and now - started > ttl then each[1].free = true end"
        "\nlocal which, why, told\n",
    ),
    "a finished record is not looked at": script(
        "CLAIM", LUA_ENDED, "elseif state == 'superseded' then"
    ),
    "a finished delivery is not looked at": script(
        "CLAIM",
        LUA_ENDED,
        "elseif kind == 'record' and (state == 'done' or state == 'failed') then",
    ),
    "a failure is replayed as a result": script(
        "CLAIM", "return {now, 'done', state, fields", "return {now, 'done', 'done', fields"
    ),
    "the fingerprint is ignored": script(
        "CLAIM", "if state and fields[2] ~= fingerprint then", "if false then"
    ),
    "attempts are not counted": script("CLAIM", "  attempt = attempt + 1\n", ""),
    "attempts have no end": script("CLAIM", "elseif attempt >= attempts then", "elseif false then"),
    "what is in doubt runs again": script(
        "CLAIM", "if state and ARGV[9] == 'hold' then", "if false then"
    ),
    "a failure leaves its record running": script(
        "FINISH", "'running' then\n  redis.call('DEL', record)", "'running' then"
    ),
    "the fence is a mere counter": script(
        "CLAIM", LUA_FENCE, "one.fence = string.format('%.0f', last + 1)"
    ),
    "the fence is the time alone": script(
        "CLAIM", LUA_FENCE, "one.fence = string.format('%.0f', now)"
    ),
    "max_hold is ignored by renew": script(
        "RENEW", "math.min(ttl, left[n])", "ttl"
    ),
    "an elder is contention": script(
        "CLAIM", "is_by(ARGV[11]) and 'elder' or 'busy'", "'busy'"
    ),
    "a duplicate is contention": duplicate_is_contention,
    "contention counts as a recovery": contention_counts_as_recovery,
    "a time limit is a failure like others": time_limit_is_a_failure,
    "trust is counted from the reply": trust_from_the_reply,
    "trust has no end of its own": trust_without_end,
    "trust is revived by a late answer": trust_revived,
    "no margin for clocks that drift": no_margin,
    "no margin for max_hold": no_margin_of_max_hold,
    "no check before body and effect": no_check_before_the_body,
    "the heartbeat is not stopped": heartbeat_not_stopped,
    "READONLY is taken for free": refusal_means_free,
    "no answer is taken for no": ambiguous_is_failed,
    "nothing is given back": nothing_is_given_back,
    "a late renewal is left to its TTL": only_known_losses_are_given_back,
    **LINE_MUTANTS,
}  # fmt: skip
