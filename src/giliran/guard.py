"""What a decorator decides once: how calls of one function become attempts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from giliran import failures, holder, results
from giliran.arguments import Arguments, KeySource, KeyTemplate, scoped, validate_key
from giliran.attempt import Attempt
from giliran.fingerprints import fingerprint
from giliran.holder import Claimant
from giliran.jobs import Job
from giliran.lease import INJECTED, Lease
from giliran.policies import Coalesce, HandOff, Policy, Wait
from giliran.results import Codec
from giliran.store import AfterCrash, Ask, Memory
from giliran.term import Term, acarry_out, carry_out
from giliran.timeouts import MAX_HOLD_MAX, Timeouts
from giliran.verdicts import Rules

P = ParamSpec("P")
R = TypeVar("R")
OnLost: TypeAlias = Literal["interrupt", "flag"]

DELIVERY_RETAIN = 3600.0
MAX_HOLD = 3600.0
MOST_KEYS = 64


class Runtime(Protocol):
    """What a guard needs of the `Giliran` object it belongs to."""

    def scope(self) -> str | None:
        """Answer the scope of this very call."""
        ...

    def job(self, function: Callable[..., object]) -> Job | None:
        """Answer the job that is running `function`, if there is one."""
        ...

    def is_context(self, value: object) -> bool:
        """Tell whether a value is some framework's own object."""
        ...

    def token(self) -> str:
        """Draw a new owner token."""
        ...

    def term(self, attempt: Attempt) -> Term:
        """Make the term of an attempt."""
        ...

    def attempt(self, ask: Ask, rules: Rules, job: Job | None, resource_id: str) -> Attempt:
        """Make an attempt with this process' clock and luck."""
        ...

    def worker(self) -> str:
        """Name this process."""
        ...

    def appends(self) -> bool | None:
        """Tell whether Redis keeps an append-only file; None if it does not say."""
        ...

    def look_after_lines(self) -> None:
        """From now on call parked jobs whose caller died or whose time is over."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """What the user said on the decorator, in seconds.

    `max_hold` None means the queue's hard limit, else an hour.
    """

    ttl: float
    max_hold: float | None
    retain: float
    policy: Policy
    after_crash: AfterCrash
    remember: tuple[type[Exception], ...]
    recoveries: int
    on_lost: OnLost
    fingerprint: tuple[str, ...] | None

    def __post_init__(self) -> None:
        if self.after_crash not in ("retry", "hold"):
            raise ValueError(f'after_crash must be "retry" or "hold", not {self.after_crash!r}')
        if self.on_lost not in ("interrupt", "flag"):
            raise ValueError(f'on_lost must be "interrupt" or "flag", not {self.on_lost!r}')
        if self.recoveries < 0:
            raise ValueError(f"recoveries must be at least 0, not {self.recoveries}")
        failures.check_failures(self.remember)
        self.timeouts(None, self.retain)

    def timeouts(self, limit: float | None, retain: float) -> Timeouts:
        """Fit the durations to a job with this hard time limit."""
        if self.max_hold is not None:
            return Timeouts(self.ttl, self.max_hold, retain)
        longest = MAX_HOLD if limit is None else limit - min(5.0, limit / 10)  # Told before killed.
        return Timeouts(self.ttl, min(max(self.ttl, longest), MAX_HOLD_MAX), retain)


class Guard:
    """One decorated function."""

    def __init__(
        self,
        runtime: Runtime,
        function: Callable[..., Any],
        key: KeySource | Sequence[KeySource],
        idempotency_key: KeySource | None,
        options: Options,
    ) -> None:
        _check_function(function)
        self.runtime = runtime
        self.function = function
        self.options = options
        self.arguments = Arguments(function, INJECTED)
        sources = cast("list[KeySource]", key if isinstance(key, list | tuple) else [key])
        _check_several(sources, options.policy)
        self.keys = tuple(KeyTemplate.compile(source, self.arguments) for source in sources)
        self.own_resource = idempotency_key is key  # once(): the record belongs to its own key
        self.idempotency_key = (
            None
            if idempotency_key is None
            else KeyTemplate.compile(idempotency_key, self.arguments)
        )
        if options.fingerprint is not None:
            self.arguments.check_names(options.fingerprint, where="fingerprint")
        codec = _lenient(function) if idempotency_key is None else results.codec_for(function)
        self.rules = Rules(options.policy, options.recoveries, codec, options.remember)
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.wrapper: Callable[..., Any] = self._wrap()

    def _wrap(self) -> Callable[..., Any]:
        wrapper: Any
        if inspect.iscoroutinefunction(self.function):

            async def awaited(*args: object, **kwargs: object) -> object:
                term = self.runtime.term(self.attempt(args, kwargs))
                body = cast("Callable[[Lease], Awaitable[object]]", self._body(args, kwargs))
                return await acarry_out(term, body, self.options.on_lost)

            wrapper = awaited
        else:

            def called(*args: object, **kwargs: object) -> object:
                term = self.runtime.term(self.attempt(args, kwargs))
                body = self._body(args, kwargs)

                def checked(lease: Lease) -> object:
                    return _no_coroutine(body(lease), self.name)

                return carry_out(term, checked, self.options.on_lost)

            wrapper = called
        functools.update_wrapper(wrapper, self.function)
        wrapper.__signature__ = self.arguments.signature_without_lease
        wrapper.__giliran__ = self
        return cast("Callable[..., Any]", wrapper)

    def _body(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Callable[[Lease], object]:
        name = self.arguments.lease_parameter
        if name is None:
            return lambda _: self.function(*args, **kwargs)
        return lambda lease: self.function(*args, **{**kwargs, name: lease})

    def attempt(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Attempt:
        """Prepare one call: its job, its key and its record."""
        runtime, options = self.runtime, self.options
        bound = self.arguments.bind(args, kwargs, is_context=runtime.is_context)
        job = runtime.job(self.wrapper)
        names = [key(bound) for key in self.keys]
        lock_key, *further = lock_keys(names, runtime.scope())
        memory = self._memory(bound, job)
        retain = options.retain
        if memory.kind == "delivery":
            visibility = job.visibility if job and job.visibility else 0.0
            retain = max(DELIVERY_RETAIN, options.ttl, 2 * visibility)
        claimant = Claimant(job_type=self.name, worker=runtime.worker())
        if job is not None:
            claimant = Claimant(
                job.publication, job.job_id, job.job_type, job.route, claimant.worker
            )
        timeouts = options.timeouts(job.time_limit if job else None, retain)
        ask = Ask(lock_key, runtime.token(), timeouts, claimant, memory)
        if job is not None:
            ask = replace(ask, elder=job.elder)
        if further:
            ask = replace(ask, further=tuple(further))
        elif job is None or isinstance(options.policy, Wait):
            ask = replace(ask, ticket=ask.token, rank=job.carried.rank if job else 0)
        else:
            ask = replace(ask, ticket=holder.field(job.publication), rank=job.carried.rank)
        return runtime.attempt(ask, self.rules, job, " ".join(dict.fromkeys(names)))

    def _memory(self, bound: dict[str, object], job: Job | None) -> Memory:
        options = self.options
        if self.idempotency_key is not None:
            return Memory(
                "record",
                "" if self.own_resource else self.idempotency_key(bound),
                fingerprint(bound, options.fingerprint),
                options.after_crash,
                options.recoveries + 1,
            )
        if job is not None:
            return Memory("delivery", holder.field(job.publication))
        return Memory()


def lock_keys(names: Sequence[str], scope: str | None) -> list[str]:
    """Answer the lock keys of resources, each once and in the order that everybody asks in."""
    return sorted({validate_key(scoped(name, scope)) for name in names})


def _check_several(sources: Sequence[KeySource], policy: Policy) -> None:
    """Refuse no resource, too many, one twice, and what cannot wait for several."""
    count = len(sources)
    if not 1 <= count <= MOST_KEYS:
        raise ValueError(f"a guard takes 1 to {MOST_KEYS} keys, not {count}")
    for number, source in enumerate(sources):
        if source in sources[:number]:
            raise ValueError(
                f"a guard has {source!r} twice: name another resource, or leave it out"
            )
    if count > 1 and isinstance(policy, HandOff | Coalesce):
        raise ValueError(
            f"{'hand_off' if isinstance(policy, HandOff) else 'coalesce'}() parks a job in the "
            f"line of one resource, and this guard has {count}: use requeue() or wait()"
        )


def _check_function(function: Callable[..., object]) -> None:
    """Refuse what would run outside of its guard."""
    if not inspect.isfunction(function):
        raise TypeError(
            f"a guard decorates a function, not {function!r}: write it below the queue's own "
            "decorator, next to the function"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__}() is a generator: its body would run after the guard is "
            "left; guard a function that consumes it, or use hold() inside"
        )


def _no_coroutine(value: object, name: str) -> object:
    """Refuse a coroutine from a plain function: it would run after the guard is left."""
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"{name}() returned a coroutine: declare it with `async def`")
    return value


def _lenient(function: Callable[..., object]) -> Codec:
    """Only a delivery record wants results here: what cannot be rebuilt is merely not kept."""
    try:
        return results.codec_for(function)
    except TypeError:
        return Codec(lambda: Any)
