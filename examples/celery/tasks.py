"""Two kinds of jobs that must not touch one order at the same time."""

import time

from examples.celery import books
from examples.celery.app import app, turns

from giliran import INJECTED, Lease, requeue

soon = requeue(base=0.5, cap=2, give_up_after=120)


@app.task
@turns.exclusive("lock:order:{order_id}", ttl=10, max_hold=60, on_contention=soon)
def ship(order_id: str, *, lease: Lease = INJECTED) -> dict[str, int]:
    """Ship an order; while it does so, nobody may refund it."""
    books.note(order_id, "ship", "begins")
    time.sleep(0.5)  # The carrier's interface is slow.
    with books.turn(order_id, lease.fence) as db:
        db.execute("UPDATE orders SET state = 'shipped' WHERE id = ?", (order_id,))
    books.note(order_id, "ship", "ends")
    return {"fence": lease.fence}


@app.task
@turns.exclusive(
    "lock:order:{order_id}",  # The same resource as ship: one of them at a time.
    ttl=10,
    max_hold=60,
    on_contention=soon,
    idempotency_key="refund:{refund_id}",  # One refund takes effect once, however often it comes.
)
def refund(
    order_id: str, refund_id: str, amount: int, *, lease: Lease = INJECTED
) -> dict[str, int]:
    """Pay back a part of an order."""
    books.note(order_id, "refund", "begins")
    time.sleep(0.5)  # So is the bank's.
    lease.check()  # Do not write when the turn is over.
    with books.turn(order_id, lease.fence) as db:
        new = db.execute(
            "INSERT INTO refunds VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (refund_id, order_id, amount),
        )
        if new.rowcount:
            db.execute("UPDATE orders SET balance = balance - ? WHERE id = ?", (amount, order_id))
    books.note(order_id, "refund", "ends")
    return {"refunded": amount, "fence": lease.fence}
