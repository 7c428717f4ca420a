"""Make requirements/*.txt anew, for every Python and platform, with hashes and no addresses.

Run by `make lock`; `make lock UPGRADE=1` takes newer versions of everything.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
HEADER = "# Made by `make lock` (`make lock UPGRADE=1` for newer versions). Do not edit.\n"


def lock(name: str, *wanted: str) -> None:
    """Write one file, keeping the versions it has unless told to upgrade."""
    path = HERE / "requirements" / name
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"),
        *("--python-version", "3.11", "--generate-hashes", "--no-header", "--no-config"),
        *(*wanted, "pyproject.toml", "--output-file", f"requirements/{name}"),
        *(["--upgrade"] if os.environ.get("UPGRADE") else []),
    ]
    subprocess.run(command, cwd=HERE, check=True)
    text = HEADER + path.read_text().removeprefix(HEADER)
    path.write_text(text)
    print(f"  requirements/{name}: {text.count('==')} packages, {text.count('--hash=')} hashes")


if __name__ == "__main__":
    lock("dev.txt", "--group", "dev", "--all-extras")
    # The same versions, so that both may go into one environment.
    demo = ("--group", "build", "--extra", "demo", "--constraint", "requirements/dev.txt")
    lock("demo.txt", *demo)
