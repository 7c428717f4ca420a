"""Run the benchmarks: `python -m bench [NAME ...]`."""

from __future__ import annotations

import sys

from bench import contention, gil, heartbeat, wait

BENCHMARKS = {
    "contention": contention.main,
    "wait": wait.main,
    "heartbeat": heartbeat.main,
    "gil": gil.main,
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; the exit code counts those that missed their target."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    return sum(not BENCHMARKS[name]() for name in names or BENCHMARKS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
