"""`python -m bench contention`: medians of three interleaved rounds, ratios beside peers."""

from __future__ import annotations

import os
import statistics
from typing import Any

import redis

from bench.contention import queue
from bench.contention.queue import Outcome, crowd, median
from giliran.embedded import EmbeddedServer

ROUNDS = 3
RATE = 100


def main() -> bool:
    """Measure and print; True if every target was met."""
    with EmbeddedServer() as server:
        os.environ["BENCH_URL"] = server.url
        from bench.contention import app  # noqa: PLC0415  it reads where the server is

        with queue.worker(server.url), redis.Redis.from_url(server.url) as client:
            crowd(client, app.unguarded, 40, 0.05)  # All children are up and have connections.
            crowd(client, app.giliran, 40, 0.01)
            met = [
                _hot(app, client, 50, 0.05, target=1.3),
                _hot(app, client, 200, 0.005, target=2.2),
                _mixed(app, client),
            ]
    return all(met)


def _hot(app: Any, client: redis.Redis, jobs: int, seconds: float, target: float) -> bool:
    ways: dict[str, Any] = app.WAYS
    ideal = jobs * seconds
    print(f"\n{jobs} jobs of {seconds * 1000:g} ms on one key, {queue.SLOTS} slots;", end=" ")
    print(f"ideal {ideal:.2f} s")
    rounds: dict[str, list[Outcome]] = {name: [] for name in ways}
    relays: list[float] = []
    for number in range(ROUNDS):
        relays.append(queue.relay(client, app.relay, jobs, seconds))
        for name, task in ways.items():
            print(f"  round {number + 1}: {name}", end="\r", flush=True)
            rounds[name].append(crowd(client, task, jobs, seconds))
    relay = statistics.median(relays)
    print(f"  {'':18}   s     x ideal   deliveries: mean  most   overlaps  overtakes")
    for name, outcomes in rounds.items():
        print(_row(name, outcomes, ideal))
    print(
        f"  {'(relay, no lock)':18} {relay:5.2f}   {relay / ideal:5.2f}   each job sends the next"
    )
    ours = rounds["giliran"]
    ratio = median(ours, lambda each: each.seconds) / ideal
    redelivered = median(rounds["Celery retry"], lambda each: each.seconds)
    mean = statistics.mean(count for each in ours for count in each.deliveries)
    most = max(max(each.deliveries) for each in ours)
    met = (
        ratio <= target
        and ratio * ideal < redelivered
        and mean <= 2.05
        and most <= 3
        and sum(each.overtakes + each.overlaps for each in ours) == 0
    )
    print(
        f"  target ≤ {target} x ideal, ≤ 2.05 deliveries (3 at most), 0 overtakes: {_said(met=met)}"
    )
    return met


def _row(name: str, outcomes: list[Outcome], ideal: float) -> str:
    took = median(outcomes, lambda each: each.seconds)
    mean = statistics.mean(count for each in outcomes for count in each.deliveries)
    most = max(max(each.deliveries) for each in outcomes)
    overlaps = sum(each.overlaps for each in outcomes)
    overtakes = sum(each.overtakes for each in outcomes)
    return (
        f"  {name:18} {took:5.2f}   {took / ideal:5.2f}              {mean:6.2f} {most:5}"
        f"      {overlaps:4}       {overtakes if name == 'giliran' else '-':>4}"
    )


def _mixed(app: Any, client: redis.Redis) -> bool:
    # All at once would measure how fast this machine empties a queue, with its cores alone.
    print(f"\n{RATE} jobs a second for 5 s, 20 ms each: 9 in 10 on one key, which is 1.8 times")
    print("what it can take, the others on keys of their own; their p95 from sending to the end")
    ways = {"unguarded": app.unguarded, **app.WAYS}
    rounds: dict[str, list[Outcome]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, task in ways.items():
            print(f"  round {number + 1}: {name}", end="\r", flush=True)
            rounds[name].append(crowd(client, task, 450, 0.02, cold=50, rate=RATE))
    floor = median(rounds["unguarded"], lambda each: each.cold_p95)
    for name, outcomes in rounds.items():
        p95 = median(outcomes, lambda each: each.cold_p95)
        took = median(outcomes, lambda each: each.seconds)
        print(
            f"  {name:18} {1000 * p95:6.0f} ms   {p95 / floor:5.2f} x unguarded   in {took:.1f} s"
        )
    met = median(rounds["giliran"], lambda each: each.cold_p95) <= 1.2 * floor
    print(f"  target ≤ 1.2 x unguarded: {_said(met=met)}")
    return met


def _said(*, met: bool) -> str:
    return "met" if met else "MISSED"
