"""Keep modules to one subject: warn above 300 lines, refuse above 400 without a reason here."""

import sys
from pathlib import Path

WARN, REFUSE = 300, 400

# path: why it may be longer
REASONS: dict[str, str] = {}

failed = False
for path in sorted(p for top in ("src", "tests", "tools") for p in Path(top).rglob("*.py")):
    lines = len(path.read_text().splitlines())
    if lines > REFUSE and str(path) not in REASONS:
        failed = True
        print(f"{path}: {lines} lines, more than {REFUSE}: which layer leaked into it?")
    elif lines > WARN and str(path) not in REASONS:
        print(f"{path}: {lines} lines, more than {WARN} (a warning)")
for name in REASONS:
    if not Path(name).exists() or len(Path(name).read_text().splitlines()) <= REFUSE:
        failed = True
        print(f"{name}: needs no exception any more: remove it from tools/file_sizes.py")
sys.exit(failed)
