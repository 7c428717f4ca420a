"""Make .venv ready to work in, from hashed requirements: python3 tools/setup.py dev (or demo)."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
VENV = HERE / ".venv"
PYTHON = VENV / "bin" / "python"


def step(what: str, *command: object) -> None:
    """Say what is being done, do it, and stop with its output if it fails."""
    print(f"  {what} ...", end=" ", flush=True)
    start = time.monotonic()
    done = subprocess.run(
        [str(part) for part in command],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print("failed")
        sys.exit(done.stdout)
    print(f"{time.monotonic() - start:.1f} s")


def main(wanted: str) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (here the user's python3 may be any)
        sys.exit(
            "giliran needs Python 3.11 or newer; this is {}.{}. "
            "Name another one: make setup PYTHON=python3.12".format(*sys.version_info)
        )
    try:
        __import__("ensurepip")
    except ImportError:
        sys.exit("this Python cannot make virtual environments: apt-get install python3-venv")
    # An environment that does not answer (half made, or its Python is gone) is made anew.
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", "import pip"], check=False).returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        step("virtual environment", sys.executable, "-m", "venv", VENV)
    pip = (PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    step(
        f"requirements/{wanted}.txt, each by its hash",
        *pip,
        *("--require-hashes", "--only-binary", ":all:", "-r", f"requirements/{wanted}.txt"),
    )
    step("giliran itself, editable", *pip, "--no-deps", "--no-build-isolation", "--editable", ".")
    (VENV / ".demo").touch()
    if wanted == "dev":
        (VENV / ".ready").touch()


if __name__ == "__main__":
    main(sys.argv[1])
