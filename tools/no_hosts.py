"""Refuse requirements that name a registry: every machine has its own."""

import sys
from pathlib import Path

bad = [
    f"{path}:{number}: names a host: {line.strip()}"
    for path in sorted(Path("requirements").glob("*.txt"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if "http" in line or line.startswith(("--index", "--extra-index", "--find-links", "-i ", "-f "))
]
sys.exit("\n".join(bad) or None)
