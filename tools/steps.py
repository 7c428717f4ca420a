"""Run each command, say how long it took, and fail at the end if any failed.

python tools/steps.py [--first] "ruff check" "make test": `--first` stops at the first failure
and shows all output; otherwise only the output of what failed is shown.
"""

import shlex
import subprocess
import sys
import time


def main() -> int:
    commands = sys.argv[1:]
    stop_at_first = commands[:1] == ["--first"]
    taken: list[tuple[str, float, bool]] = []
    for command in commands[stop_at_first:]:
        if stop_at_first:
            print(f"\n== {command}", flush=True)
        start = time.monotonic()
        done = subprocess.run(
            shlex.split(command),
            stdout=None if stop_at_first else subprocess.PIPE,
            stderr=None if stop_at_first else subprocess.STDOUT,
            text=True,
            check=False,
        )
        taken.append((command, time.monotonic() - start, done.returncode == 0))
        if not stop_at_first:
            say(*taken[-1])
            if done.returncode or "skipped" in done.stdout or "warning)" in done.stdout:
                print(done.stdout, end="", flush=True)
        elif done.returncode:
            break
    if stop_at_first:
        print()
        for row in taken:
            say(*row)
    return 0 if all(fine for _, _, fine in taken) else 1


def say(command: str, seconds: float, fine: bool) -> None:  # noqa: FBT001
    name = command.removeprefix(".venv/bin/")
    print(f"  {'ok  ' if fine else 'FAIL'} {seconds:6.1f} s  {name[:80]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
