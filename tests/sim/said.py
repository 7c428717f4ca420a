"""What a call says: which resource it is about, by whose token, for which ticket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from giliran.steps import Call

_TOKEN = {"park": 8, "leave": 1, "offer": 1}
_TICKET = {"claim": 11, "park": 0, "leave": 0, "offer": 0, "finish": 6}
_RANK = {"claim": 12, "park": 3}


def resource(call: Call[Any]) -> str:
    """Name the lock key; "" for a call about no single resource."""
    match call.script.name:
        case "lines":
            return ""
        case "offer":
            return call.keys[0].removeprefix("{").partition("}")[0]
        case _:
            return call.keys[0]


def token(call: Call[Any]) -> str:
    """Name the owner, or whoever calls; "" for the index of lines."""
    return "" if call.script.name == "lines" else call.args[_TOKEN.get(call.script.name, 0)]


def ticket(call: Call[Any]) -> str:
    """Name the place in line that it is about; "" for none."""
    place = _TICKET.get(call.script.name)
    return "" if place is None else call.args[place]


def rank(call: Call[Any]) -> str:
    """Answer the rank that it says it had; "" for none."""
    place = _RANK.get(call.script.name)
    return "" if place is None else call.args[place]


def set_aside(call: Call[Any], reply: Any) -> set[str]:
    """Name the parked jobs that an answer tells to be dead."""
    match call.script.name:
        case "offer" if reply[1] == "dead":
            return {ticket(call)}
        case "sweep":
            return {turn[1] for turn in reply[4:] if turn[0] == "dead"}
        case _:
            return set()


def record(call: Call[Any]) -> str:
    """Name the record that it is about; "" for none."""
    place = {"claim": 4, "finish": 3}.get(call.script.name)
    return call.keys[place] if place is not None and len(call.keys) > place else ""
