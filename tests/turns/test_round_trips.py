"""A guarded job costs two round trips, no more, whether it needs one resource or several."""

import contextlib
from collections.abc import Iterator

import pytest
import redis
from tests.support.monitored import commands_until

from giliran import Giliran

JOBS = 200


@pytest.fixture
def turns(redis_url: str) -> Iterator[Giliran]:
    turns = Giliran(redis_url)
    yield turns
    turns.close()


@pytest.mark.parametrize(
    "key", ["lock:order:{order}", ["lock:order:{order}", "lock:wallet:{order}", "lock:all:{order}"]]
)
def test_200_warm_guarded_jobs_are_400_commands(
    turns: Giliran, redis_url: str, key: str | list[str]
) -> None:
    @turns.exclusive(key, idempotency_key="refund:{refund}")
    def refund(order: int, refund: int) -> int:
        return refund

    refund(0, -1)  # Warm: connected, and the server knows the scripts.
    with redis.Redis.from_url(redis_url) as watcher, watcher.monitor() as monitor:
        for number in range(JOBS):
            assert refund(number % 7, number) == number
        with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
            client.echo("over")
        seen = commands_until(monitor, "ECHO over")
    assert [command.split()[0] for command in seen if "over" not in command] == ["EVALSHA"] * 400
