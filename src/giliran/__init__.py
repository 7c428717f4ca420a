"""Gives worker-queue jobs their turn: one at a time per resource, one effect per request."""

from giliran.arguments import whole_function
from giliran.errors import (
    AlreadyHeld,
    Contended,
    GaveUp,
    GiliranError,
    InDoubt,
    KeyReused,
    LeaseInterrupt,
    LeaseLost,
    ResultNotKept,
    Skipped,
    StoreMisconfigured,
    StoreUnavailable,
)
from giliran.events import Event
from giliran.lease import INJECTED, Lease
from giliran.policies import coalesce, fail, hand_off, requeue, skip, wait
from giliran.term import current_lease
from giliran.turns import Giliran

__all__ = [
    "INJECTED",
    "AlreadyHeld",
    "Contended",
    "Event",
    "GaveUp",
    "Giliran",
    "GiliranError",
    "InDoubt",
    "KeyReused",
    "Lease",
    "LeaseInterrupt",
    "LeaseLost",
    "ResultNotKept",
    "Skipped",
    "StoreMisconfigured",
    "StoreUnavailable",
    "coalesce",
    "current_lease",
    "fail",
    "hand_off",
    "requeue",
    "skip",
    "wait",
    "whole_function",
]
