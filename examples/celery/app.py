"""The shop's Celery application, and the object that gives its jobs their turn."""

import os
from typing import Any

from celery import Celery
from examples.celery import books

from giliran import Giliran
from giliran.adapters.celery import CeleryQueue

SERVER = os.environ.get("EXAMPLE_REDIS", "redis://127.0.0.1:6399")

app: Any = Celery("shop", broker=f"{SERVER}/0", backend=f"{SERVER}/1")
app.conf.update(
    imports=["examples.celery.tasks"],
    broker_connection_retry_on_startup=True,
    task_acks_late=True,  # A message leaves the broker when its job is over, not before,
    task_reject_on_worker_lost=True,  # and goes back when the process that ran it died.
    worker_prefetch_multiplier=1,
)
# The listener writes into the books what became of each job, so that send.py can print it.
turns = Giliran(f"{SERVER}/2", queues=[CeleryQueue(app)], listeners=[books.note_event])
