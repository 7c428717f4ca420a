"""Tells histories by hand, for the judge."""

from __future__ import annotations

from typing import Any

from chaos.checker import judge
from chaos.history import Event

SECOND = 10**9


class Story:
    """Tells a history in seconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, at: float, process: str, kind: str, **fields: object) -> Story:
        self.events.append({"t": int(at * SECOND), "p": process, "kind": kind, **fields})
        return self

    def accept(self, job: str, effect: str, task: str = "plain") -> Story:
        told = {"job": job, "effect": effect, "task": task, "res": "lock:a"}
        return self.tell(0, "main", "accepted", **told)

    def deliver(self, at: float, process: str, job: str, *, again: bool = False) -> Story:
        return self.tell(at, process, "delivered", job=job, pub=f"{job}-pub", again=again)

    def lease(self, at: float, process: str, kind: str, fence: int, **fields: Any) -> Story:
        """A body's note. `trusted` is in seconds, by default until 0.95 s from `at`."""
        trusted = float(fields.pop("trusted", at + 0.95))
        told = {
            "res": "lock:a", "fence": fence, "token": f"{process}{fence}", "lost": "",
            "effect": "e", "asked": int(fields.pop("asked", at - 0.01) * SECOND),
            "trusted": int(trusted * SECOND), **fields,
        }  # fmt: skip
        return self.tell(at, process, kind, **told)

    def run(self, at: float, process: str, fence: int, effect: str = "e", job: str = "j") -> Story:
        """A whole delivery into the plain sink, of 0.3 s."""
        self.deliver(at, process, job)
        self.lease(at, process, "begin", fence, effect=effect)
        self.lease(at + 0.2, process, "effect", fence, effect=effect, sink="plain")
        self.lease(at + 0.3, process, "end", fence)
        return self.end(at + 0.3, process, job, effect)

    def end(self, at: float, process: str, job: str, value: str | None) -> Story:
        return self.tell(at, process, "outcome", job=job, how="returned", value=value)

    def park(self, at: float, process: str, job: str) -> Story:
        """A whole delivery that ends in line."""
        self.deliver(at, process, job)
        return self.tell(at, process, "told", name="job.parked", res="lock:a", job=job, pub="")

    def call(self, at: float, process: str, job: str, how: str = "published") -> Story:
        told = {"name": "job.called", "res": "lock:a", "job": "", "pub": f"{job}-pub", "how": how}
        return self.tell(at, process, "told", **told)

    def grant(self, at: float, process: str, fence: int, job: str) -> Story:
        return self.tell(at, process, "grant", res="lock:a", fence=fence, job=job)

    def row(self, seq: int, fence: int, effect: str = "e") -> Story:
        return self.tell(
            9, "main", "row", seq=seq, res="lock:a", fence=fence, effect=effect, token="t"
        )


def violated(story: Story) -> set[str]:
    """Name the checks that find something in a story."""
    return {name for name, found in judge(story.events).findings.items() if found}
