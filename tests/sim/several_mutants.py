"""Mutants of jobs of several resources: taken, kept and given back only in part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.sim.broken import Break, script

from giliran import handoff, programs
from giliran.steps import now

if TYPE_CHECKING:
    import pytest

    from giliran.programs import Claimed
    from giliran.steps import Program


def nothing_goes_back_on_busy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(programs, "_give_back", lambda *_: now())


def only_the_first_is_renewed(patch: pytest.MonkeyPatch) -> None:
    honest = programs._renew
    patch.setattr(programs, "_renew", lambda lease, all_, at: honest(lease, all_[:1], at))


def only_the_first_is_given_back(patch: pytest.MonkeyPatch) -> None:
    """What a lost lease leaves, and a claim without an answer."""
    honest = handoff.give_back
    patch.setattr(
        handoff, "give_back", lambda who, ask, ending: honest(who, replace(ask, further=()), ending)
    )


def trust_begins_with_the_last(patch: pytest.MonkeyPatch) -> None:
    honest = programs._in_order

    def in_order(*args: Any) -> Program[Claimed]:
        claimed = yield from honest(*args)
        return replace(claimed, asked=(yield from now()))

    patch.setattr(programs, "_in_order", in_order)


SEVERAL_MUTANTS: dict[str, Break] = {
    "in order: nothing goes back on busy": nothing_goes_back_on_busy,
    "in order: only the first is renewed": only_the_first_is_renewed,
    "in order: trust begins with the last": trust_begins_with_the_last,
    "of several, only the first is given back": only_the_first_is_given_back,
    "of several, only the first is renewed": script(
        "RENEW", "redis.call('PEXPIRE', lock", "redis.call('PEXPIRE', KEYS[1]"
    ),
    "of several, only the first is ended": script(
        "FINISH",
        "  if ours then\n    redis.call('DEL'",
        "  if number == 1 then\n    redis.call('DEL'",
    ),
    "of several, only the first may be held": script(
        "CLAIM", "if not one.ours and not one.free", "if number == 1 and not one.free"
    ),
    "of several, only the first has a line": script(
        "CLAIM", "one.waits = redis.call", "one.waits = at == 1 and redis.call"
    ),
}
