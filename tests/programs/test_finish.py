from __future__ import annotations

from typing import Any

import pytest
from tests.programs.play import (
    DONE,
    EVENT,
    RECORD,
    RELEASED,
    START,
    Late,
    Play,
    always,
    ask,
    lost,
    misconfigured,
    refused,
    unreachable,
)  # fmt: skip

from giliran.errors import LeaseLost, StoreUnavailable
from giliran.lease import Lease
from giliran.programs import abandon, finish
from giliran.steps import Program
from giliran.store import Ending, Finished, Memory
from giliran.timeouts import Timeouts


def done(lease: Lease) -> Program[Finished]:
    return finish(lease, "done", RECORD, "5", EVENT)


def release(lease: Lease) -> Program[Finished]:
    return finish(lease, "release", Memory(), "", EVENT)


def sent(play: Play) -> list[tuple[str, str]]:
    """Of each call: ending and resend."""
    return [(args[2], args[1]) for _, _, args in play.calls]


def test_a_record_is_written_and_the_lease_ended_in_one_call() -> None:
    play = Play()
    assert play.run(done(play.lease()), [DONE]) == Finished("done", "")
    assert sent(play) == [("done", "0")]


def test_a_lost_reply_is_sent_again_as_such() -> None:
    play = Play()
    assert play.run(done(play.lease()), [unreachable(), DONE]).answer == "done"
    assert sent(play) == [("done", "0"), ("done", "1")]


def test_a_refused_one_is_sent_again_as_new() -> None:
    play = Play()
    assert play.run(done(play.lease()), [refused("LOADING"), DONE]).answer == "done"
    assert sent(play) == [("done", "0"), ("done", "0")]


def test_a_release_whose_reply_was_lost_is_released() -> None:
    play = Play()
    assert play.run(release(play.lease()), [unreachable(), RELEASED]).answer == "released"


@pytest.mark.parametrize("reason", ["expired", "taken"])
def test_a_definite_no_loses_the_lease(reason: str) -> None:
    play = Play()
    lease = play.lease()
    with pytest.raises(LeaseLost) as caught:
        play.run(done(lease), [lost(reason)])
    assert (caught.value.reason, lease.lost, play.names) == (reason, reason, ["lock.lost"])


@pytest.mark.parametrize("program", [done, release])
def test_a_lease_that_was_lost_before_asks_nothing(program: Any) -> None:
    play = Play()
    lease = play.lease()
    play.clock += 30
    with pytest.raises(LeaseLost, match="expired"):
        play.run(program(lease))
    assert (play.calls, play.names) == ([], ["lock.lost"])


def test_out_of_memory_releases_and_tells() -> None:
    play = Play()
    assert play.run(done(play.lease()), [refused("OOM"), DONE]).answer == "done"
    assert sent(play) == [("done", "0"), ("release", "0")]
    assert [(e.name, e.reason) for e in play.told] == [("record.unrecorded", "OOM")]


@pytest.mark.parametrize("error", [refused("MISCONF"), misconfigured()])
def test_where_nothing_can_be_written_the_lock_is_left_to_expire(error: StoreUnavailable) -> None:
    play = Play()
    assert play.run(done(play.lease()), [error]) == Finished("released", error.code)
    assert play.names == ["record.unrecorded"]


def test_a_record_is_tried_until_trust_ends() -> None:
    play = Play()
    lease = play.lease()
    with pytest.raises(LeaseLost) as caught:
        play.run(done(lease), always(unreachable))
    assert caught.value.reason == lease.lost == "unreachable"
    assert START + 29.7 <= play.clock <= START + 29.8


@pytest.mark.parametrize("error", [unreachable, lambda: refused("LOADING")])
@pytest.mark.parametrize("ttl", [1, 30])
def test_a_release_that_gets_no_answer_is_no_error_and_bounded(ttl: float, error: Any) -> None:
    play = Play()
    lease = play.lease(Timeouts(ttl, 600, 3600))
    assert play.run(release(lease), always(error)).answer == "released"
    assert play.clock <= START + 4.1


def test_a_refused_release_is_left_to_expire() -> None:
    play = Play()
    assert play.run(release(play.lease()), [misconfigured()]) == Finished("released", "NOPERM")
    assert play.run(release(play.lease()), [refused("MISCONF")]) == Finished("released", "MISCONF")


def test_a_late_yes_is_a_yes() -> None:
    play = Play()
    assert play.run(done(play.lease()), [Late(100.0, DONE)]).answer == "done"


@pytest.mark.parametrize("ending", ["forget", "release"])
def test_abandon_asks_until_it_is_answered(ending: Ending) -> None:
    play = Play()
    play.run(abandon(ask(), ending), [unreachable(), refused("LOADING"), RELEASED])
    assert sent(play) == [(ending, "1")] * 3


def test_abandon_ends_when_the_lease_has_expired() -> None:
    play = Play()
    play.run(abandon(ask(), "forget"), always(unreachable))
    assert START + 30 <= play.clock <= START + 33
