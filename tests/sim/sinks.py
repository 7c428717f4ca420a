"""What bodies write to: three sinks, which protect themselves in three ways."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.sim.plan import BodyError
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

    from giliran.lease import Lease


class Sinks:
    """The data of a world.

    Attributes:
        rows: shares a transaction with its own record of the key: a key takes effect once.
    """

    def __init__(self, world: World) -> None:
        self.rows: dict[str, int] = {}
        self._world = world
        self._effects: dict[str, int] = defaultdict(int)
        self._newest: dict[str, tuple[int, str]] = defaultdict(lambda: (0, ""))
        self._last: dict[str, int] = defaultdict(int)

    def insert(self, name: str, lease: Lease) -> int:
        """Insert a row unless there is one; answers the row's value."""
        return self.rows.setdefault(name, lease.fence % 10**9)

    def write_fenced(self, name: str, lease: Lease) -> None:
        """Write where a fence is refused that is smaller than the newest seen."""
        happened, oracle = self._world.happened, self._world.oracle
        newest, by = self._newest[lease.key]
        if lease.fence < newest:
            happened["fenced write refused"] += 1
            raise BodyError("the sink has seen a newer fence")
        sure = newest > oracle.disordered.get(lease.key, 0)
        if lease.fence == newest and by != lease.token and sure:
            raise Violation(f"S4: two holders write with fence {newest}")
        self._newest[lease.key] = lease.fence, lease.token
        self._effects[name] += 1
        happened["effect again, after a crash or a loss"] += self._effects[name] > 1
        self._world.note("sink", f"effect of {name} with fence {lease.fence}")

    def write_checked(self, lease: Lease) -> None:
        """Write where nothing is checked, at the very instant at which the lease was."""
        lease.check()
        oracle, last = self._world.oracle, self._last[lease.key]
        sure = last > oracle.disordered.get(lease.key, 0) and not oracle.excused(lease.token)
        if lease.fence < last and sure:
            raise Violation(f"S2: {lease!r} wrote after a newer holder did")
        self._last[lease.key] = lease.fence
