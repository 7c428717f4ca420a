"""How many leases one heartbeat thread keeps, and what that costs.

10,000 leases in one process at a TTL of 30 s, watched for 90 s. The main thread sleeps, so the
process' CPU time is the heartbeat's.
"""

from __future__ import annotations

import contextvars
import threading
import time

import redis

from giliran import Giliran, Lease
from giliran.embedded import EmbeddedServer

LEASES, TTL, WATCHED = 10_000, 30, 90
CPU_TARGET = 2.0


def main() -> bool:
    """Measure and print; True if nothing was lost and the CPU stayed within its target."""
    with EmbeddedServer() as server:
        turns = Giliran(server.url)
        print(f"heartbeat: taking {LEASES:,} leases at TTL {TTL} s …", flush=True)
        started = time.monotonic()
        leases = [take(turns, number) for number in range(LEASES)]
        took = time.monotonic() - started
        cpu, wall = time.process_time(), time.monotonic()
        while (left := wall + WATCHED - time.monotonic()) > 0:
            print(f"  watching, {left:3.0f} s left", flush=True)
            time.sleep(min(10.0, left))
        share = 100 * (time.process_time() - cpu) / (time.monotonic() - wall)
        lost = sum(bool(lease.lost) for lease in leases)
        alive = int(redis.Redis.from_url(server.url).eval(COUNT, 0))
        beating = sum(thread.name == "giliran-heartbeat" for thread in threading.enumerate())
        turns.close()
    print(
        f"heartbeat: {LEASES:,} leases for {WATCHED} s: {lost} lost, {alive:,} alive on the "
        f"server, {beating} heartbeat thread, {share:.2f} % of one core "
        f"(target < {CPU_TARGET:g} %); taking them took {took:.1f} s"
    )
    return lost == 0 and alive == LEASES and beating == 1 and share < CPU_TARGET


COUNT = "return #redis.call('KEYS', 'bench:*')"  # The server is ours alone.


def take(turns: Giliran, number: int) -> Lease:
    """Take one lease in a context of its own, so that none counts as nested in another."""
    hold = turns.hold(f"bench:{number}", ttl=TTL, on_lost="flag")
    return contextvars.Context().run(hold.__enter__)


if __name__ == "__main__":
    main()
