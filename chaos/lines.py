"""Who is in line for the resources, or has them, read on the server itself."""

from __future__ import annotations

from typing import Any

import redis

from chaos.producer import NAMES
from giliran import keys

_JOBS = """
local jobs = 0
for _, shelf in ipairs(KEYS) do
  for _, name in ipairs(redis.call('HKEYS', shelf)) do
    jobs = jobs + (string.sub(name, 1, 1) == '=' and 1 or 0)
  end
end
return jobs
"""


class Lines:
    """The lines of all resources that jobs are drawn for."""

    def __init__(self, port: int) -> None:
        self._client: Any = redis.Redis(port=port, socket_timeout=1.0)
        locks = [f"lock:{name}" for name in NAMES]
        self._shelves = [keys.line(lock)[1] for lock in locks]
        lines = [key for lock in locks for key in (*keys.line(lock), keys.due(lock))]
        self._all = [*locks, *lines]
        self.close = self._client.close

    def parked(self) -> int:
        """Count the jobs on all shelves."""
        return int(self._client.eval(_JOBS, len(self._shelves), *self._shelves))

    def empty(self) -> bool:
        """Tell whether nothing is left of any line, and no resource is held or kept for anybody.

        For a job that was set aside it may be kept for five seconds more.
        """
        return not self._client.exists(*self._all)
