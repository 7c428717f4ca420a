"""A server that is a Redis Cluster in one respect: a script reaches the keys of one slot only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.server import Server

from giliran.errors import StoreMisconfigured

if TYPE_CHECKING:
    from giliran.steps import Call


def refusal(call: Call[Any]) -> StoreMisconfigured | None:
    """What is raised for a call whose keys lie in several slots: as many as they have tags."""
    tags = {key.partition("{")[2].partition("}")[0] or key for key in call.keys}
    if len(tags) == 1:
        return None
    return StoreMisconfigured("CROSSSLOT", "keys don't hash to the same slot", ambiguous=False)


class Cluster(Server):
    """Refuses what a Cluster refuses."""

    def run(self, call: Call[Any]) -> Any:
        if not self.phase and (refused := refusal(call)):
            raise refused
        return super().run(call)
