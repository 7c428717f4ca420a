"""Each message of a job of several resources is lost or doubled once: nothing else comes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis
from tests.support.wait import wait_for

from giliran import Giliran, Lease, StoreUnavailable
from giliran.scripts import ALL, CLAIM, FINISH, RENEW
from giliran.testing import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.conftest import Connect

    from giliran.embedded import EmbeddedServer
    from giliran.steps import Script

FIRST, SECOND = "lock:order:1", "lock:wallet:7"
EFFECTS = ["drop_reply", "drop_request", "duplicate"]


class Message(NamedTuple):
    """A request by its script and keys."""

    script: Script
    keys: int
    key: str

    @property
    def bytes(self) -> bytes:
        """How it begins on the wire."""
        words = (self.script.sha, str(self.keys), self.key)
        return b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)


TOGETHER = [Message(CLAIM, 8, FIRST), Message(RENEW, 2, FIRST), Message(FINISH, 6, FIRST)]
APART = [
    Message(CLAIM, 8, FIRST),  # Refused: its keys lie in two slots.
    Message(CLAIM, 4, FIRST),
    Message(CLAIM, 4, SECOND),
    Message(RENEW, 1, FIRST),
    Message(RENEW, 1, SECOND),
    Message(FINISH, 3, SECOND),
    Message(FINISH, 3, FIRST),
]


def named(message: Message) -> str:
    return f"{message.script.name}-{message.keys}-{message.key}"


def each_of(*scripts: Script) -> pytest.MarkDecorator:
    """Where one script reaches both, and where it does not: every message of these."""
    found = [("server", each) for each in TOGETHER] + [("cluster", each) for each in APART]
    rows = [
        pytest.param(*at, id=f"{at[0]}-{named(at[1])}") for at in found if at[1].script in scripts
    ]
    return pytest.mark.parametrize(("place", "message"), rows, indirect=["place"])


@pytest.fixture
def client(empty_place: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(empty_place.url, decode_responses=True) as connected:
        for script in ALL:
            connected.script_load(script.text)
        yield connected


@pytest.fixture
def proxy(empty_place: EmbeddedServer, client: redis.Redis) -> Iterator[FaultProxy]:
    """Faults on the way to a server that knows all scripts."""
    with FaultProxy(empty_place.port) as proxy:
        yield proxy


def held(client: redis.Redis) -> int:
    """How many of the two are held; one by one, as a cluster wants it."""
    return sum(bool(client.exists(key)) for key in (FIRST, SECOND))


def with_hold(turns: Giliran, body: Callable[[Lease], object]) -> None:
    with turns.hold([SECOND, FIRST], ttl=1) as lease:
        body(lease)


def with_ahold(turns: Giliran, body: Callable[[Lease], object]) -> None:
    async def main() -> None:
        try:
            async with turns.hold([SECOND, FIRST], ttl=1) as lease:
                await asyncio.to_thread(body, lease)
        finally:
            await turns.aclose()

    asyncio.run(main())


@each_of(CLAIM, FINISH)
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("hold", [with_hold, with_ahold], ids=["sync", "async"])
def test_a_block_runs_once_with_both(
    connect: Connect,
    proxy: FaultProxy,
    client: redis.Redis,
    hold: Callable[..., None],
    effect: str,
    message: Message,
) -> None:
    turns = connect(proxy.url)
    ran: list[int] = []
    rule: Any = getattr(proxy, effect)(message.bytes)
    hold(turns, lambda _: ran.append(held(client)))
    assert rule.hits == 1
    assert ran == [2]
    assert held(client) == 0
    assert turns.counts["lock.lost"] == 0
    assert turns.counts["lock.acquired"] == turns.counts["lock.released"] == 1


@each_of(RENEW)
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_body_longer_than_its_ttl_keeps_both(
    connect: Connect, proxy: FaultProxy, client: redis.Redis, effect: str, message: Message
) -> None:
    turns = connect(proxy.url)
    rule: Any = getattr(proxy, effect)(message.bytes)

    def body(lease: Lease) -> None:
        ends = lease.trusted_until + 0.5
        wait_for(lambda: rule.hits and lease.trusted_until > ends)
        lease.check()
        assert held(client) == 2

    with_hold(turns, body)
    assert turns.counts["lock.lost"] == 0


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
@pytest.mark.parametrize("effect", EFFECTS)
def test_what_was_taken_before_a_busy_one_goes_back_whatever_is_lost(
    connect: Connect, proxy: FaultProxy, client: redis.Redis, effect: str
) -> None:
    turns = connect(proxy.url)
    client.set(SECOND, "somebody else's", px=20_000)
    rule: Any = getattr(proxy, effect)(Message(FINISH, 3, FIRST).bytes)
    told = "is held by" if effect == "duplicate" else "did not answer"
    with pytest.raises(Exception, match=told) as caught, turns.hold([FIRST, SECOND], ttl=30):
        pytest.fail("must not run")
    assert isinstance(caught.value, StoreUnavailable) == (effect != "duplicate")
    assert rule.hits == 1
    wait_for(lambda: not client.exists(FIRST), 3)
    assert client.exists(SECOND)


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
def test_a_claim_cancelled_half_way_frees_what_it_has(
    connect: Connect, proxy: FaultProxy, client: redis.Redis
) -> None:
    turns = connect(proxy.url)
    proxy.delay_reply(Message(CLAIM, 4, SECOND).bytes, 1.0)

    async def main() -> None:
        async def work() -> None:
            async with turns.hold([FIRST, SECOND], ttl=30):
                pytest.fail("must not run")

        task = asyncio.create_task(work())
        await asyncio.to_thread(wait_for, lambda: held(client) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_for, lambda: held(client) == 0)
        await turns.aclose()

    asyncio.run(main())
