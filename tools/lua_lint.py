"""Run luacheck over the scripts: skipped with a word on a laptop without it, demanded in CI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

scripts = sorted(str(path) for path in Path("src").rglob("*.lua"))
hint = "luacheck not found (apt-get install lua-check)"
if not shutil.which("luacheck"):
    if os.environ.get("CI") == "true":
        sys.exit(hint)
    print(f"skipped: {hint}")
elif scripts:
    sys.exit(subprocess.run(["luacheck", "--quiet", "--codes", *scripts], check=False).returncode)
