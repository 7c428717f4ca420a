"""With `reclaim="proven"` the lease of a killed process is free at once, and only then."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import redis

from giliran import Contended, Giliran

HOLD = (
    "import sys; from giliran import Giliran\n"
    "with Giliran(sys.argv[1]).hold('lock:1', ttl=30) as lease:\n"
    "    print(lease.fence, flush=True); sys.stdin.read()"
)


@pytest.fixture
def holder(redis_url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, redis_url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process
        process.kill()


@pytest.fixture
def turns(redis_url: str) -> Iterator[Giliran]:
    made = Giliran(redis_url, reclaim="proven")
    yield made
    made.close()


def fence(holder: subprocess.Popen[str]) -> int:
    assert holder.stdout is not None
    return int(holder.stdout.readline())


def test_a_killed_holders_lease_is_free_within_a_second(
    holder: subprocess.Popen[str], turns: Giliran
) -> None:
    before = fence(holder)
    holder.kill()
    holder.wait()
    killed = time.monotonic()
    with turns.hold("lock:1", ttl=30, wait=20) as lease:
        assert time.monotonic() - killed < 1
        assert lease.fence > before
    assert turns.counts["lock.reclaimed"] == 1


def test_who_waits_already_sees_it_die(holder: subprocess.Popen[str], turns: Giliran) -> None:
    fence(holder)
    with pytest.raises(Contended), turns.hold("lock:1", ttl=30, wait=0.3):
        pass
    holder.kill()
    with turns.hold("lock:1", ttl=30, wait=5):
        pass


def test_a_frozen_holder_keeps_its_lease(holder: subprocess.Popen[str], turns: Giliran) -> None:
    fence(holder)
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(Contended), turns.hold("lock:1", ttl=30, wait=1.2):
        pass
    holder.send_signal(signal.SIGCONT)
    assert turns.counts["lock.reclaimed"] == 0


def test_unasked_a_killed_holder_keeps_its_lease(
    holder: subprocess.Popen[str], redis_url: str, client: redis.Redis
) -> None:
    fence(holder)
    holder.kill()
    holder.wait()
    turns = Giliran(redis_url)
    with pytest.raises(Contended), turns.hold("lock:1", ttl=30, wait=1.2):
        pass
    assert client.exists("lock:1")
    turns.close()
