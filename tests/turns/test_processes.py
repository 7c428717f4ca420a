"""Forks, exits, signals and gevent: what becomes of a lease when its process does odd things."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
import redis
from tests.support.wait import wait_for

from giliran import Giliran

PRELUDE = """
    import os, signal, sys, threading, time
    from giliran import Giliran, LeaseInterrupt, LeaseLost
    from giliran.testing import lose_lease
    url = sys.argv[1]
    turns = Giliran(url)
"""


def run(url: str, code: str, *, expected: int = 0, first: str = "") -> str:
    """Run code in a process of its own; answer what it printed."""
    code = textwrap.dedent(first) + textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            code,
            url,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == expected, (done.returncode, done.stderr)
    return done.stdout


def test_a_forked_child_neither_trusts_nor_releases_its_parents_lease(
    turns: Giliran, client: redis.Redis
) -> None:
    with turns.hold("lock:1", ttl=2) as lease:
        child = os.fork()
        if child == 0:
            os._exit(0 if child_of_a_holder(turns, lease.lost) else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        first = lease.trusted_until
        wait_for(lambda: lease.trusted_until > first)  # The parent's heartbeat goes on.
        assert client.exists("lock:1")


def child_of_a_holder(turns: Giliran, lost: str) -> bool:
    """In the child: the lease is inert, and a claim of its own works, heartbeat and all."""
    with turns.hold("lock:2", ttl=1) as own:
        first = own.trusted_until
        wait_for(lambda: own.trusted_until > first)
        return lost == "forked" and own.active


@pytest.mark.parametrize("keys", [["lock:1"], ["lock:1", "lock:2"]], ids=["one", "several"])
def test_leaving_the_block_in_a_child_releases_nothing(redis_url: str, keys: list[str]) -> None:
    told = run(
        redis_url,
        f"""
        child = 0
        try:
            with turns.hold({keys}, ttl=2):
                child = os.fork()
                if child:
                    os.waitpid(child, 0)
                    print("still held:", turns._driver.transport._sync.exists(*{keys}))
        except LeaseLost as lost:
            assert not child and lost.reason == "forked"
            turns.close()  # Whatever is left to be done is done.
            os._exit(0)
        """,
    )
    assert told == f"still held: {len(keys)}\n"


def test_exit_inside_a_block_gives_the_lock_back(redis_url: str, client: redis.Redis) -> None:
    run(redis_url, 'with turns.hold("lock:1"): sys.exit(3)', expected=3)
    assert not client.exists("lock:1")


def test_a_thread_that_holds_at_exit_leaves_the_lock_to_its_ttl(
    redis_url: str, client: redis.Redis
) -> None:
    run(
        redis_url,
        """
        held = threading.Event()
        def hold():
            with turns.hold("lock:1", ttl=20):
                held.set()
                time.sleep(60)
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        """,
    )
    assert 15_000 < client.pttl("lock:1") <= 20_000


@pytest.mark.parametrize(
    ("prepare", "expected", "left"),
    [
        ("", -signal.SIGTERM, 1),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))", 4, 0),
    ],
)
def test_sigterm_leaves_the_lock_to_its_ttl_or_to_the_handler(
    redis_url: str, client: redis.Redis, prepare: str, expected: int, left: int
) -> None:
    run(
        redis_url,
        f"""
        {prepare}
        with turns.hold("lock:1"):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        """,
        expected=expected,
    )
    assert client.exists("lock:1") == left


GEVENT = """
    from gevent import monkey
    monkey.patch_all()
"""


def run_gevent(url: str, code: str) -> str:
    return run(url, code, first=GEVENT)


def test_a_greenlet_that_computes_starves_no_heartbeat(redis_url: str) -> None:
    told = run_gevent(
        redis_url,
        """
        with turns.hold("lock:1", ttl=1) as lease:
            until = time.perf_counter() + 3
            while time.perf_counter() < until:
                pass
            lease.check()
            print("kept")
        """,
    )
    assert told == "kept\n"


def test_a_greenlet_is_told_of_its_loss(redis_url: str) -> None:
    told = run_gevent(
        redis_url,
        """
        def hold():
            try:
                with turns.hold("lock:1", ttl=1):
                    lose_lease(url, "lock:1")
                    try:
                        time.sleep(5)
                    except LeaseInterrupt:
                        print("inside")
                        raise
            except LeaseLost as lost:
                print(lost.reason)
        import gevent
        gevent.spawn(hold).join()
        """,
    )
    assert told == "inside\nexpired\n"
