"""How a task is told that its lease is lost, by the pool that runs it.

| pool | a lost lease | a body that waits in one long call |
|---|---|---|
| prefork, solo | a signal to the main thread, where the body runs | is interrupted at once |
| threads | an exception left with the body's thread | is interrupted when the call ends |
| gevent | an exception thrown into the body's greenlet | is interrupted at once |

In no pool is a body interrupted that computes in C code without a break, nor under gevent one that
computes without ever switching: it is told by `lease.check()`, and its lease is kept meanwhile.
Threads, greenlets and processes that a body started are not interrupted with it.
"""

from __future__ import annotations

from giliran.interrupt import Interrupter, for_this_worker


def for_this_pool() -> Interrupter:
    """Choose the interrupter for the pool in which this is called.

    No pool's own signals are used: prefork's soft time limit and the stack dump of a worker's main
    process, both SIGUSR1, go on as if we were not there. Nor is Celery's own code interrupted:
    outside of bodies nothing is sent.
    """
    return for_this_worker()
