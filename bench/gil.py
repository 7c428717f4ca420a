"""What a body that holds the GIL does to its lease.

The heartbeat is a thread, so C code that keeps the GIL stops it too. `usleep` through `PyDLL`
keeps the GIL for exactly as long as it is told.
"""

from __future__ import annotations

import ctypes

from giliran import Giliran, LeaseLost
from giliran.embedded import EmbeddedServer

TTL = 1.0
SHARES = (0.3, 0.5, 0.8, 1.5, 3.0)


def main() -> bool:
    """Hold the GIL for shares of the TTL; True if only holding it for longer loses the lease."""
    right = True
    with EmbeddedServer() as server:
        turns = Giliran(server.url)
        for share in SHARES:
            reason = hold_gil(turns, share * TTL)
            print(f"gil: held for {share:.1f} x TTL: {reason or 'lease kept'}")
            right = right and bool(reason) == (share > 1)
        turns.close()
    return right


def hold_gil(turns: Giliran, seconds: float) -> str:
    """Keep the GIL from just before the first renewal on; return why the lease was lost, or ""."""
    try:
        with turns.hold("bench:gil", ttl=TTL):
            ctypes.PyDLL(None).usleep(int(seconds * 1e6))
            for _ in range(1000):  # Bytecodes at which an interrupt may arrive.
                pass
    except LeaseLost as lost:
        return lost.reason
    return ""


if __name__ == "__main__":
    main()
