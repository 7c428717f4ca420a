"""Run luacheck over the scripts: skipped with a word on a laptop without it, demanded in CI.

Some scripts have `line.lua` in front of them, so what is checked is the whole that Redis gets.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from giliran import scripts

hint = "luacheck not found (apt-get install lua-check)"
if not shutil.which("luacheck"):
    if os.environ.get("CI") == "true":
        sys.exit(hint)
    print(f"skipped: {hint}")
else:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(".luacheckrc").absolute()
        for script in scripts.ALL:
            (Path(folder) / f"{script.name}.lua").write_text(script.text)
        # One script does not need all that `line.lua` offers.
        offered = re.findall(r"^local function (\w+)", scripts.CLAIM.text, re.MULTILINE)
        unused = [f"211/{name}" for name in (*offered, "CALLS", "FOR_.*", "AT_ONCE")]
        command = ["luacheck", "--quiet", "--codes", "--config", str(config), folder]
        done = subprocess.run([*command, "--ignore", *unused], check=False)
        sys.exit(done.returncode)
