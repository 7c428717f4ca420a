"""Send a shipment and one refund twice, all for one busy order, and print what happened."""

import time
import uuid
from contextlib import closing

from examples.celery import books
from examples.celery.app import turns
from examples.celery.tasks import refund, ship

order = f"o-{uuid.uuid4().hex[:6]}"
with closing(books.connect()) as db:
    db.execute("INSERT INTO orders VALUES (?, 1000, 'paid', 0)", (order,))

with turns.hold(f"lock:order:{order}", ttl=10, max_hold=60):
    books.note(order, "clerk", "has the order open")
    sent = [ship.delay(order), refund.delay(order, "r-" + order, 300)]
    while {job for _, job, what in books.journal(order) if "put back" in what} != {
        "ship",
        "refund",
    }:
        time.sleep(0.05)  # Both jobs meet the clerk, and go back into their queue.
    books.note(order, "clerk", "closes it")
shipped, paid = (result.get(timeout=120) for result in sent)
again = refund.delay(order, "r-" + order, 300).get(timeout=120)

first = books.journal(order)[0][0]
for at, job, what in books.journal(order):
    print(f"{at - first:6.2f} s  {job:7} {what}")
with closing(books.connect()) as db:
    balance, state = db.execute(
        "SELECT balance, state FROM orders WHERE id = ?", (order,)
    ).fetchone()
print(f"\norder {order}: {state}, balance {balance} of 1000")
print(f"fences: shipment {shipped['fence']}, refund {paid['fence']}")
print(f"the refund that came twice was answered alike: {paid == again}")
turns.close()
