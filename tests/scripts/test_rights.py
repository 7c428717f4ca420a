"""A user who lacks rights, or a stale replica, is told so: not that the lease is another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from tests.scripts.backends import OnServer, Row, at, check
from tests.scripts.words import A, claim, finish, lock
from tests.sim.fake_redis import ScriptError

from giliran.store import CLAIM, FINISH, RENEW

if TYPE_CHECKING:
    from tests.conftest import MakeServer

CALLS = {
    "claim": (CLAIM, Row("", claim(kind=""), "", keys=("K", "{K}:fence"))),
    "renew": (RENEW, Row("", (A, "30000"), "", keys=("K",))),
    "finish": (FINISH, Row("", finish(), "", keys=("K",))),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_forbidden_get_is_an_error(make_server: MakeServer, name: str) -> None:
    url = make_server().url
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.execute_command("ACL", "SETUSER", "half", "on", "nopass", "~*", "+@all", "-get")
        backend = OnServer(client)
        held = lock()
        backend.give("K", at(backend, held.value), held.px)
        with redis.Redis.from_url(
            url, username="half", password="x", decode_responses=True
        ) as half:
            backend.run = OnServer(half).run  # type: ignore[method-assign]
            check(backend, *CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_a_replica_without_its_primary_is_an_error(make_server: MakeServer, name: str) -> None:
    options = ("--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "no")
    with redis.Redis.from_url(make_server(*options).url, decode_responses=True) as client:
        script, row = CALLS[name]
        with pytest.raises(ScriptError, match="Link with MASTER is down"):
            OnServer(client).run(script, row.keys, row.args)
