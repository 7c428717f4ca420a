"""Does harm to workers of our own queue and to the server, besides what is done to their lines."""

from __future__ import annotations

import signal

from chaos.crew import Crew
from chaos.faults import Faults
from chaos.history import Recorder
from chaos.plan import Clockwork
from chaos.queue import SHAS
from giliran.embedded import EmbeddedServer
from giliran.testing._proxy import FaultProxy


class Nemesis(Faults):
    """Carries out the schedule of a run on our own queue."""

    def __init__(
        self,
        crew: Crew,
        producer_line: FaultProxy,
        server: EmbeddedServer,
        recorder: Recorder,
        clockwork: Clockwork,
    ) -> None:
        super().__init__(server, recorder, clockwork)
        self._crew, self._server = crew, server
        self._producer_line = producer_line
        self.shas |= SHAS
        self.acts["kill"] = self._kill
        self.acts["freeze"] = self._freeze
        self.acts["server kill"] = self._kill_server

    def line(self) -> tuple[str, FaultProxy]:
        """Choose a worker's line to do harm to."""
        slot = self.luck.choice(self._crew.slots)
        return slot.name, slot.proxy

    def line_of(self, script: str) -> FaultProxy:
        """Choose a line on which a script may be called; workers enqueue what they put back."""
        if script == "enqueue" and self.luck.random() < 0.5:
            return self._producer_line
        return super().line_of(script)

    def _kill(self, elapsed: float) -> None:
        del elapsed
        slot = self.luck.choice(self._crew.slots)
        victim = slot.worker
        if victim and self._crew.signal(slot, signal.SIGKILL):
            self.count("kill", of=victim)

    def _freeze(self, elapsed: float) -> None:
        slots = [slot for slot in self._crew.slots if slot.worker and not slot.frozen]
        if len(slots) <= len(self._crew.slots) // 2:
            return  # Somebody must be left to take over what the frozen ones hold.
        slot = self.luck.choice(slots)
        victim = slot.worker
        if not self._crew.signal(slot, signal.SIGSTOP):
            return
        slot.frozen = True
        self.count("freeze", of=victim)

        def thaw() -> None:
            if slot.worker == victim:  # Else it was killed meanwhile.
                self._crew.signal(slot, signal.SIGCONT)
                slot.frozen = False
                self.log("thaw", of=victim)

        self.later(elapsed + self.luck.uniform(1.2, 2.5), thaw)

    def _kill_server(self, elapsed: float) -> None:
        del elapsed
        self._server.kill()
        self._server.restart()
        self.count("server kill")
