"""One resource on the fake, and what processes do with it through the typed calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tests.scripts.backends import DEAD, LINE, PARKED
from tests.sim.fake_redis import FakeRedis, SortedSet

from giliran import line, store
from giliran.holder import Claimant
from giliran.line import Place, Shelved, Swept, Terms
from giliran.store import Answer, Ask, Ending, Finished, Memory
from giliran.timeouts import Timeouts

if TYPE_CHECKING:
    from giliran.steps import Call

T = TypeVar("T")
TIMES = Timeouts(4.0, 20.0, 3_600.0)


class Resource:
    """The resource K, whose jobs are published on route a; each call takes `call_ms`."""

    def __init__(self, call_ms: int = 0) -> None:
        self.redis, self.call_ms, self.tokens = FakeRedis(), call_ms, 0

    # ------------------------------------------------------------------ what processes do

    def run(self, call: Call[T]) -> T:
        self.time_passes(self.call_ms)
        return call.decode(self.redis.run(call.script.text, call.keys, call.args))

    def token(self) -> str:
        self.tokens += 1
        return f"{self.tokens:032x}"

    def claim(self, ticket: str, rank: int = 0, alive: float | None = None) -> tuple[str, Answer]:
        token, memory = self.token(), Memory("delivery", ticket)
        ask = Ask("K", token, TIMES, Claimant(ticket), memory, ticket=ticket, rank=rank)
        return token, self.run(store.claim(ask, alive))

    def park(
        self,
        ticket: str,
        rank: int = 0,
        group: str = "",
        lasts_ms: int = 900_000,
        most: int = 1_000,
    ) -> tuple[str, Place | Literal["free", "full"]]:
        token, shelved = self.token(), Shelved("a", ticket)
        terms = Terms(self.now_ms + lasts_ms, most, TIMES.retain, group)
        return token, self.run(line.park("K", ticket, token, shelved, terms, rank))

    def finish(
        self, token: str, ticket: str, ending: Ending = "done", *, resend: bool = False
    ) -> Finished:
        request = store.finish(
            "K", token, ending, Memory("delivery", ticket), "1", TIMES.retain,
            resend=resend, ticket=ticket, routes=("a",),
        )  # fmt: skip
        return self.run(request)

    def sweep(self, routes: tuple[str, ...] = ("a",)) -> tuple[str, Swept]:
        token = self.token()
        return token, self.run(line.sweep("K", token, routes))

    def offer(self, ticket: str, token: str, became: Literal["taken", "refused"] = "taken") -> str:
        return self.run(line.offer("K", ticket, token, became))

    # ------------------------------------------------------------------ what there is

    @property
    def now_ms(self) -> int:
        return self.redis.us // 1000

    def time_passes(self, ms: int) -> None:
        self.redis.us += ms * 1000

    def dead(self) -> set[str]:
        listed: Any = self.redis.peek(DEAD) or []
        return {text.partition("|")[0] for text in listed}

    def entries(self) -> dict[str, list[str]]:
        shelf: Any = self.redis.peek(PARKED) or {}
        return {name[1:]: text.split("|") for name, text in shelf.items() if name[0] == "="}

    def ranks(self) -> SortedSet:
        ranks = self.redis.peek(LINE)
        return ranks if isinstance(ranks, SortedSet) else SortedSet()

    def in_line(self) -> list[str]:
        """Answer who stands in line and is not gone, by rank."""
        entries = self.entries()
        return [
            ticket
            for ticket in self.ranks().ranked()
            if ticket in entries
            and not (
                entries[ticket][0] == "wait"
                and (int(entries[ticket][3]) <= self.now_ms or entries[ticket][1] != "0")
            )
        ]
