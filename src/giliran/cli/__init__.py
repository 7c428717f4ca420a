"""The command `giliran`. Needs the extra `cli`; nothing else of the library does."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; exit with 2 if what it needs is not installed."""
    try:
        from giliran.cli.app import giliran  # noqa: PLC0415  without the extra, one clear line
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in ("click", "rich"):
            raise
        print(f"giliran needs {name}: pip install 'giliran[cli]'", file=sys.stderr)
        sys.exit(2)
    giliran()
