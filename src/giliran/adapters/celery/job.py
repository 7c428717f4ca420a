"""One delivery of one Celery task, and how it is put back.

A contended or interrupted task is published again with the same id, retry count, links and chord,
and this delivery ends by `Ignore`: nothing is stored, no retry is spent, and with late ack the
message is acked only after the broker has its copy.
"""

from __future__ import annotations

import hashlib
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import EncodeError

from giliran.adapters.celery.ending import Ended
from giliran.adapters.celery.headers import AGAIN, CARRIED, ELDER, PUBLICATION, carried
from giliran.adapters.celery.interrupt import for_this_pool
from giliran.adapters.celery.message import Message, publish, queue_of, written
from giliran.adapters.celery.publish import Publisher
from giliran.adapters.celery.shelf import pack, route
from giliran.interrupt import Interrupter
from giliran.jobs import Carried
from giliran.line import Shelved


class Stranded(Reject, Ignore):
    """Gives the message back to the broker.

    An `Ignore` too, which autoretry lets through: it would publish, fail as we did, and then drop
    the message.
    """


class CeleryJob:
    """One delivery of one Celery task."""

    control: tuple[type[BaseException], ...] = (Ignore, Reject, Retry)
    limits: tuple[type[BaseException], ...] = (SoftTimeLimitExceeded,)

    def __init__(
        self, task: Any, request: Any, visibility: float | None, publisher: Publisher
    ) -> None:
        self._task, self._request, self._publisher = task, request, publisher
        headers = request.headers or {}
        self.visibility = visibility
        self.job_id = str(request.id)
        self.job_type = str(task.name)
        delivery = request.delivery_info or {}
        self.route = queue_of(task.app, delivery) or str(delivery.get("routing_key") or "")
        self.publication = str(headers.get(PUBLICATION) or self._unstamped())
        self.elder = str(headers.get(ELDER) or "")
        self.carried = carried(headers)
        hard = (request.timelimit or (None, None))[0] or task.time_limit
        hard = hard or task.app.conf.task_time_limit
        self.time_limit = None if hard is None else float(hard)

    def _unstamped(self) -> str:
        request = self._request
        arguments = repr((request.args, request.kwargs)).encode("utf-8", "replace")
        digest = hashlib.sha256(arguments).hexdigest()[:16]
        main = self._task.app.main or ""
        return f"celery:{main}:{self.route}:{request.id}:{request.retries}:{digest}"

    def put_back(self, delay: float, carried: Carried) -> BaseException:
        """Publish the task again; this delivery then ends by `Ignore`."""
        publish(self._task.app, self._publisher, self._written(carried), delay)
        return self.parked()

    def shelve(self, carried: Carried) -> Shelved | None:
        """Write the message down, as it was serialised when it came."""
        try:
            payload = pack(self._written(carried))
        except EncodeError:
            return None
        return Shelved(route(self._task.app), payload)

    def parked(self) -> BaseException:
        """End this delivery by `Ignore`: nothing is stored, and late ack acks it now."""
        return Ended()

    def _written(self, carried: Carried) -> Message:
        return written(self._task, self._request, {
            **(self._request.as_execution_options()["headers"] or {}),
            PUBLICATION: self.publication,
            ELDER: self.elder,
            AGAIN: True,
            **{key: getattr(carried, name) for name, key in CARRIED.items()},
        })  # fmt: skip

    def stranded(self, error: Exception) -> BaseException:
        """Leave the message with the broker if it is not acked yet, else fail the task."""
        return Stranded(error, requeue=True) if self._task.acks_late else error

    def interrupter(self) -> Interrupter:
        """Make what fits the pool; called where the body runs."""
        return for_this_pool()
