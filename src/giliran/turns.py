"""The one object a program makes: it gives jobs their turn."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Literal, ParamSpec, TypeVar, cast

from giliran import handoff, logs, worker
from giliran.arguments import KeySource, validate_key
from giliran.attempt import Attempt
from giliran.connect import address
from giliran.drive import Driver
from giliran.errors import NotPublished
from giliran.events import Event, Listener
from giliran.guard import MAX_HOLD, MOST_KEYS, Guard, OnLost, Options, lock_keys
from giliran.heart import Heart
from giliran.hold import Hold
from giliran.holder import Claimant
from giliran.housekeeping import Housekeeping
from giliran.jobs import Job, Queue
from giliran.policies import Coalesce, HandOff, Policy, fail, requeue
from giliran.policies import wait as wait_for
from giliran.results import Codec
from giliran.steps import Publish
from giliran.store import AfterCrash, Ask, Memory
from giliran.term import Keeper, Term
from giliran.timeouts import Seconds, Timeouts, seconds
from giliran.transport import RedisTransport, Transport
from giliran.verdicts import Rules

P = ParamSpec("P")
R = TypeVar("R")

Scope = str | Callable[[], str] | None


class Giliran:
    """Gives jobs their turn: one at a time per resource, one effect per request.

    One object serves threads, asyncio and forked workers alike; make it once, at import.
    Connecting happens with the first claim.

    Args:
        where: a URL (`redis://`, `rediss://`, `unix://`, `valkey://`), or a redis-py or valkey-py
            client, sync or async, whose address and credentials are used.
        queues: the queues that jobs come from, such as `CeleryQueue(app)`; the first that knows
            the running job is asked. Without one every call is a plain call.
        scope: what all keys begin with, such as a tenant; a function is asked at every call.
        listeners: called with every `Event` beside the log; they can never break a job.
        reclaim: "expired" leaves a dead holder's lease to its TTL. "proven" ends it at once if its
            process is proven dead on this very machine: no such process, another start time, or a
            zombie. For effects that end with their process; not for work it left to others.

    Raises:
        TypeError: if `where` is neither, or a Cluster or Sentinel client.
        ValueError: for a URL that cannot be read.
    """

    def __init__(
        self,
        where: object,
        *,
        queues: Sequence[Queue] = (),
        scope: Scope = None,
        listeners: Sequence[Listener] = (),
        reclaim: Literal["expired", "proven"] = "expired",
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._queues = tuple(queues)
        if reclaim not in ("expired", "proven"):
            raise ValueError(f'reclaim must be "expired" or "proven", not {reclaim!r}')
        self._proven = reclaim == "proven"
        self._scope = scope
        self._listeners = (logs.log, *listeners)
        place = address(where)
        self._transport = RedisTransport(place)
        self._driver = Driver(self._transport, self._tell, publish=self._publish)
        self._heart = Heart(place, self._driver)
        self._keeper: Keeper = self._heart
        self._housekeeping = Housekeeping(self._driver)
        _alive.add(self)

    # ------------------------------------------------------------------ what users write

    def exclusive(
        self,
        key: KeySource | Sequence[KeySource],
        *,
        ttl: Seconds = 30,
        max_hold: Seconds | None = None,
        on_contention: Policy | None = None,
        idempotency_key: KeySource | None = None,
        fingerprint: Sequence[str] | None = None,
        retain: Seconds = 86_400,
        after_crash: AfterCrash = "retry",
        remember: Sequence[type[Exception]] = (),
        recoveries: int = 5,
        on_lost: OnLost = "interrupt",
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Let no two calls run at once for one resource; optionally take effect once per request.

        Works on plain and async functions, below a queue's own decorator. On a plain call, without
        a queue, contention raises `Contended` (`Skipped` under `skip()`).

        Args:
            key: what must not run in parallel: a template over the arguments such as
                `"lock:order:{order_id}"`, a function of some of them, or `whole_function(key)`.
                Or a list of them, for a call that needs several resources: it gets all or none,
                in one step where they share a cluster slot, else one after the other in sorted
                order. While any of them is held, or others stand in its line, the call is
                contended; it stands in no line itself, so `hand_off` and `coalesce` are refused,
                and `wait` looks again and again. `lease.fences` has the fence of each lock key.
                Its record belongs to the first in sorted order: one added in front of that begins
                new records.
            ttl: how long the lock outlives a dead holder, 1 s to 24 h; renewed every third of it.
            max_hold: execution timeout; no call holds longer. Default: a little less than the
                queue's hard time limit, so that the body is told before it is killed, else an hour.
            on_contention: `requeue(...)` (the default), `hand_off(...)`, `coalesce(...)`,
                `wait(...)`, `skip(...)` or `fail()`.
            idempotency_key: what must not take effect twice; a template like `key`. A finished
                call is recorded, and a repeat is answered with its result without running.
            fingerprint: the arguments that a repeat must agree on; default: all of them.
            retain: how long a finished call's record is kept.
            after_crash: "retry" runs a call again whose earlier attempt crashed half-way; "hold"
                raises `InDoubt` until an operator says what happened.
            remember: exception types whose failure is final: recorded, and raised again on repeat.
            recoveries: how often a job may start again after a crash or a lost lease.
            on_lost: "interrupt" raises `LeaseInterrupt` in the body (a coroutine is cancelled) the
                moment its lease is lost; "flag" leaves it to `lease.check()` and `lease.lost`.

        Raises:
            TypeError: at decoration, for a return annotation that cannot be replayed.
            ValueError: at decoration, for a wrong template, durations that do not fit, or a
                policy that parks with several keys.
        """
        options = Options(
            ttl=seconds(ttl, "ttl"),
            max_hold=None if max_hold is None else seconds(max_hold, "max_hold"),
            retain=seconds(retain, "retain"),
            policy=on_contention or requeue(),
            after_crash=after_crash,
            remember=tuple(remember),
            recoveries=recoveries,
            on_lost=on_lost,
            fingerprint=None if fingerprint is None else tuple(fingerprint),
        )

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            return Guard(self, function, key, idempotency_key, options).wrapper

        return decorate

    def once(
        self,
        idempotency_key: KeySource,
        *,
        ttl: Seconds = 30,
        max_hold: Seconds | None = None,
        on_contention: Policy | None = None,
        fingerprint: Sequence[str] | None = None,
        retain: Seconds = 86_400,
        after_crash: AfterCrash = "retry",
        remember: Sequence[type[Exception]] = (),
        recoveries: int = 5,
        on_lost: OnLost = "interrupt",
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Let a call take effect once per request: the idempotency key is its own resource.

        Same as `exclusive` with both keys alike; see there for the arguments.
        """
        return self.exclusive(
            idempotency_key,
            ttl=ttl,
            max_hold=max_hold,
            on_contention=on_contention,
            idempotency_key=idempotency_key,
            fingerprint=fingerprint,
            retain=retain,
            after_crash=after_crash,
            remember=remember,
            recoveries=recoveries,
            on_lost=on_lost,
        )

    def hold(
        self,
        key: str | Sequence[str],
        *,
        ttl: Seconds = 30,
        max_hold: Seconds | None = None,
        wait: Seconds = 0,
        on_lost: OnLost = "interrupt",
    ) -> Hold:
        """Hold a resource for a block: `with turns.hold("lock:order:42") as lease:`; async too.

        Args:
            key: the lock key, literally; or several, held all or none as for `exclusive`.
            ttl: how long the lock outlives a dead holder; renewed every third of it.
            max_hold: execution timeout of the block; default: an hour, or the TTL if longer.
            wait: acquire timeout; 0 asks once.
            on_lost: as for `exclusive`.

        Raises:
            ValueError: for a key or durations that cannot be used.
            Contended: on entering, if another holds it and goes on doing so for `wait` seconds.
            StoreUnavailable: on entering, if Redis does not answer.
            AlreadyHeld: on entering, if this very thread or task holds it.
            LeaseLost: on leaving, if the lease was lost and the block raised nothing of its own.
        """
        names = cast("tuple[str, ...]", tuple(key) if isinstance(key, list | tuple) else (key,))
        if not 1 <= len(names) <= MOST_KEYS:
            raise ValueError(f"hold takes 1 to {MOST_KEYS} keys, not {len(names)}")
        for name in names:
            validate_key(name)
        budget = seconds(wait, "wait")
        life = seconds(ttl, "ttl")
        longest = max(life, MAX_HOLD) if max_hold is None else seconds(max_hold, "max_hold")
        timeouts = Timeouts(life, longest, retain=life)  # Nothing is recorded.
        policy = wait_for(budget) if budget else fail()
        rules = Rules(policy, 0, Codec(lambda: object), ())

        def attempt() -> Attempt:
            lock_key, *further = lock_keys(names, self.scope())
            claimant = Claimant(job_type="hold", worker=self.worker())
            token = self.token()
            ticket = "" if further else token
            ask = Ask(
                lock_key, token, timeouts, claimant, Memory(), ticket=ticket, further=tuple(further)
            )
            return self.attempt(ask, rules, None, " ".join(names))

        return Hold(attempt, self.term, on_lost)

    def close(self) -> None:
        """Close connections and threads; leases that are still held are left to expire."""
        self._heart.close()
        self._housekeeping.close(timeout=5)
        self._transport.close()

    async def aclose(self) -> None:
        """Close this event loop's connections; for the rest see `close`."""
        await self._transport.aclose()

    # ------------------------------------------------------------------ what guards ask

    def scope(self) -> str | None:
        """Answer the scope of this very call."""
        return self._scope() if callable(self._scope) else self._scope

    def job(self, function: Callable[..., object]) -> Job | None:
        """Answer the job that is running `function`, if there is one."""
        for queue in self._queues:
            job = queue.current(function)
            if job is not None:
                return job
        return None

    def is_context(self, value: object) -> bool:
        """Tell whether a value is some framework's own object."""
        return any(queue.is_context(value) for queue in self._queues)

    def token(self) -> str:
        """Draw a new owner token: 128 bits from the system, new for every attempt to start."""
        return secrets.token_hex(16)

    def worker(self) -> str:
        """Name this process."""
        return worker.stamp()

    def attempt(self, ask: Ask, rules: Rules, job: Job | None, resource_id: str) -> Attempt:
        """Make an attempt with this process' clock and luck."""
        if isinstance(rules.policy, HandOff | Coalesce):
            self.look_after_lines()
        return Attempt(
            ask, rules, job, resource_id, self._driver.clock, random.random,
            self._routes, self._proven,
        )  # fmt: skip

    def appends(self) -> bool | None:
        """Tell whether Redis keeps an append-only file; None if it does not say."""
        return self._transport.appends()

    def look_after_lines(self) -> None:
        """From now on let this process call parked jobs whose caller died or whose time is over.

        Begins by itself with the first job that may be parked, and with a Celery worker that serves
        such jobs; call it in other processes that can publish them.
        """
        if self._routes:
            self._housekeeping.repeat(
                lambda: handoff.sweep(self._routes, self.token(), proven=self._proven)
            )

    @property
    def _routes(self) -> tuple[str, ...]:
        return tuple(queue.route for queue in self._queues)  # Settings may change after import.

    def _publish(self, step: Publish) -> None:
        for queue in self._queues:
            if queue.route == step.route:
                try:
                    queue.publish(step.payload, step.rank, step.verdict)
                except Exception as error:
                    outage = isinstance(error, OSError)
                    raise NotPublished(type(error).__name__, outage=outage) from error
                return
        raise NotPublished(f"no queue here is called {step.route!r}")

    def term(self, attempt: Attempt) -> Term:
        """Make the term of an attempt."""
        return Term(attempt, self._driver, self._keeper, self._housekeeping)

    @property
    def heartbeat(self) -> Heart:
        """The thread that keeps all leases of this process."""
        return self._heart

    @property
    def clock(self) -> Callable[[], float]:
        """The local clock that leases are trusted by; a test may set another."""
        return self._driver.clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self._driver.clock = clock

    @contextlib.contextmanager
    def played_by(self, transport: Transport, keeper: Keeper) -> Generator[None, None, None]:
        """Let something else play Redis and the heartbeat in a block, for tests."""
        real = self._driver.transport, self._keeper
        self._driver.transport, self._keeper = transport, keeper
        try:
            yield
        finally:
            self._driver.transport, self._keeper = real

    def _tell(self, event: Event) -> None:
        self.counts[event.name] += 1
        if event.name == "job.parked":  # Where others wait in line, `requeue` parks as well.
            self.look_after_lines()
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # A listener can never break a job.
                self.counts["listener.failed"] += 1

    def after_fork(self) -> None:
        """Start clean in a child: no threads, no leases, no random state in common."""
        self._heart.after_fork()
        self._housekeeping.after_fork()


_alive: weakref.WeakSet[Giliran] = weakref.WeakSet()


def _after_fork() -> None:
    random.seed()
    for turns in list(_alive):
        turns.after_fork()


os.register_at_fork(after_in_child=_after_fork)
