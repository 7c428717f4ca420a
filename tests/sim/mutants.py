"""Programs and scripts broken on purpose, one idea each: the world must notice every one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from giliran import store
from giliran.lease import Lease
from giliran.steps import Script

if TYPE_CHECKING:
    import pytest

Break: TypeAlias = "Callable[[pytest.MonkeyPatch], None]"


def script(name: str, old: str, new: str) -> Break:
    """Replace a piece of a script's text."""

    def broken(patch: pytest.MonkeyPatch) -> None:
        whole: Script = getattr(store, name)
        assert whole.text.count(old) == 1, f"{name} does not have {old!r} once any more"
        text = whole.text.replace(old, new)
        sha = hashlib.sha1(text.encode()).hexdigest()
        patch.setattr(store, name, Script(whole.name, text, sha))

    return broken


def trust_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    honest = Lease.trust_from
    patch.setattr(Lease, "trust_from", lambda lease, _: honest(lease, lease._clock()))


def trust_without_end(patch: pytest.MonkeyPatch) -> None:
    """Believe only what Redis says."""
    patch.setattr(Lease, "lost", property(lambda lease: lease._lost))


LUA_OURS = "local ours = type(value) == 'string' and string.sub(value, 1, 33) == token .. ';'"

MUTANTS: dict[str, Break] = {
    "release without a token check": script(
        "FINISH", LUA_OURS, "local ours = type(value) == 'string'"
    ),
    "renew without a token check": script(
        "RENEW", "type(value) == 'table' or string.sub(value, 1, 33) ~= token .. ';'", "false"
    ),
    "claim without a TTL": script(
        "CLAIM", "  'PX', math.min(ttl, max_hold))\nreturn", "  'KEEPTTL')\nreturn"
    ),
    "claim is not idempotent": script(
        "CLAIM", "if ours and string.sub(value, 1, 32) == token then", "if false then"
    ),
    "a second send of a claim does not refresh the TTL": script(
        "CLAIM",
        "redis.call('SET', lock, renewed, 'PX', math.min(ttl, max_hold))",
        "local _ = renewed",
    ),
    "a second send of a claim keeps the first max_hold": script(
        "CLAIM",
        "redis.call('SET', lock, renewed, 'PX', math.min(ttl, max_hold))",
        "local acquired = tonumber(string.match(value, ';acquired=(%d+)')) redis.call("
        "'PEXPIRE', lock, math.max(1, math.min(ttl, acquired + max_hold - now)))",
    ),
    "finish ignores that it was sent before": script("FINISH", "ARGV[2] == '1'", "false"),
    "finish does not look for its own record": script(
        "FINISH", "if recorded and noted[1] == token", "if false"
    ),
    "finish writes no record": script("FINISH", "if recorded then", "if false then"),
    "the fence is a mere counter": script("CLAIM", "math.max(last + 1, now_us)", "last + 1"),
    "the fence is the time alone": script("CLAIM", "math.max(last + 1, now_us)", "now"),
    "trust is counted from the reply": trust_from_the_reply,
    "trust has no end of its own": trust_without_end,
}
