"""How a mutant breaks a script."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from giliran import line, store
from giliran.steps import Script

if TYPE_CHECKING:
    import pytest

Break: TypeAlias = "Callable[[pytest.MonkeyPatch], None]"


def script(name: str, old: str, new: str) -> Break:
    """Replace a piece of a script's text."""

    def broken(patch: pytest.MonkeyPatch) -> None:
        module = store if hasattr(store, name) else line
        whole: Script = getattr(module, name)
        assert whole.text.count(old) == 1, f"{name} does not have {old!r} once any more"
        text = whole.text.replace(old, new)
        sha = hashlib.sha1(text.encode()).hexdigest()
        patch.setattr(module, name, Script(whole.name, text, sha))

    return broken


def prelude(old: str, new: str) -> Break:
    """Replace a piece of what stands in front of all scripts that move the line."""

    names = ("CLAIM", "FINISH", "PARK", "LEAVE", "OFFER", "SWEEP", "RECLAIM")
    return both(*(script(name, old, new) for name in names))


def both(*breaks: Break) -> Break:
    """Break several things at once."""

    def broken(patch: pytest.MonkeyPatch) -> None:
        for each in breaks:
            each(patch)

    return broken
