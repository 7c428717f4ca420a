"""A user who lacks rights, or a stale replica, is told so: not that the lease is another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from tests.scripts.backends import OnServer, give_all, values, without
from tests.scripts.words import (
    FOR_T1,
    WAITING,
    A,
    finish,
    leave,
    lock,
    park,
    plain,
    reclaim,
    sweep,
)  # fmt: skip
from tests.sim.fake_redis import ScriptError

from giliran.scripts import CLAIM, FINISH, LEAVE, PARK, RECLAIM, RENEW, SWEEP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import MakeServer
    from tests.scripts.backends import Key

    from giliran.steps import Script

OURS = {"K": lock()}
CALLS: dict[str, tuple[Script, tuple[str, ...], Mapping[str, Key]]] = {
    "claim": (CLAIM, plain(), OURS),
    "claim in line": (CLAIM, plain(ticket="t1"), FOR_T1),
    "renew": (RENEW, (A, "30000"), OURS),
    "finish": (FINISH, finish(), OURS),
    "park": (PARK, park(), FOR_T1),
    "leave": (LEAVE, leave("t1"), FOR_T1),
    "reclaim": (RECLAIM, reclaim(), FOR_T1),
    "sweep": (SWEEP, sweep(), FOR_T1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_forbidden_get_is_an_error_and_writes_nothing(make_server: MakeServer, name: str) -> None:
    script, args, given = CALLS[name]
    with without("get", make_server().url) as backend:
        give_all(backend, given)
        before = values(backend)
        with pytest.raises(ScriptError, match=r"NOPERM|can't run|permissions"):
            backend.run(script, args)
        assert values(backend) == before


@pytest.mark.parametrize("command", ["zrange", "hget", "rpush", "zrem"])
def test_without_rights_on_the_line_a_lease_ends_all_the_same(
    make_server: MakeServer, command: str
) -> None:
    with without(command, make_server().url) as backend:
        give_all(backend, {**OURS, **WAITING})
        assert backend.run(FINISH, finish(ticket="t9"))[1] == "done"
        assert not str(values(backend).get("K")).startswith(A)


@pytest.mark.parametrize("name", CALLS)
def test_a_replica_without_its_primary_is_an_error(make_server: MakeServer, name: str) -> None:
    options = ("--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "no")
    with redis.Redis.from_url(make_server(*options).url, decode_responses=True) as client:
        script, args, _ = CALLS[name]
        with pytest.raises(ScriptError, match="Link with MASTER is down"):
            OnServer(client).run(script, args)
