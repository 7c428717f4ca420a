"""The Celery application: the same jobs as on our own queue. Set up by its environment."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery, signals

from chaos.history import Recorder
from chaos.jobs import Bodies, Diary, make_jobs
from chaos.sinks import Ledger
from giliran import Giliran
from giliran.adapters.celery import CeleryQueue
from giliran.adapters.celery.headers import PUBLICATION

QUEUE, UNACKED = "celery", "unacked"
VISIBILITY = 5.0
_PR_SET_PDEATHSIG = 1


def make_app(broker: str) -> Any:
    """Make an application that acks late and gets unacked messages back soon."""
    made: Any = Celery("chaos", broker=broker)
    made.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        },
    )
    return made


def die_with_parent(**_: object) -> None:
    """Leave nothing behind even if the chaos run itself is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _attach(made: Any, store: str, folder: Path, name: str) -> None:
    """Give the application its jobs, and a history that does not rely on the library."""
    recorder = Recorder(folder, name)
    diary = Diary(recorder)
    diary.watch_log()
    turns = Giliran(store, queues=[CeleryQueue(made)], listeners=[diary])
    bodies = Bodies(diary, lambda: Ledger(folder / "ledger.sqlite"))
    for job, function in make_jobs(turns, bodies).items():
        made.task(name=f"chaos.{job}")(function)

    def delivered(task_id: str, task: Any, **_: object) -> None:
        info: Any = task.request.delivery_info
        again = bool(info and info.get("redelivered"))
        headers: Any = task.request.headers or {}
        recorder.log(
            "delivered", job=task_id, pub=headers.get(PUBLICATION, ""), task=task.name, again=again
        )

    def succeeded(sender: Any, result: object, **_: object) -> None:
        recorder.log("outcome", job=sender.request.id, how="returned", value=result)

    def failed(task_id: str, exception: BaseException, **_: object) -> None:
        recorder.log(
            "outcome",
            job=task_id,
            how="raised",
            error=type(exception).__name__,
            text=str(exception)[:300],
        )

    def ready(**_: object) -> None:
        turns.look_after_lines()

    for happened, act in (
        (signals.task_prerun, delivered),
        (signals.task_success, succeeded),
        (signals.task_failure, failed),
        (signals.worker_process_init, die_with_parent),
        (signals.worker_process_init, ready),
    ):
        happened.connect(act, weak=False)


if "CHAOS_BROKER" in os.environ:  # Loaded by `celery -A chaos.celery_app worker`.
    app = make_app(os.environ["CHAOS_BROKER"])
    _attach(
        app, os.environ["CHAOS_STORE"], Path(os.environ["CHAOS_FOLDER"]), os.environ["CHAOS_NAME"]
    )
    die_with_parent()
