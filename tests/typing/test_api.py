"""Users' code is checked as they write it: right calls pass, wrong ones are refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

API = Path(__file__).with_name("api.py")
ROOT = API.parents[2]
CHECKERS = {
    "mypy": ["mypy", "--strict", "--warn-unused-ignores"],
    "basedpyright": ["basedpyright", "--level", "error"],
}


def check(checker: str, file: Path) -> tuple[int, str]:
    """Run a checker as the project does; answer its exit code and what it said."""
    command = [sys.executable, "-m", *CHECKERS[checker], str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_calls_pass_and_wrong_ones_are_refused(checker: str) -> None:
    """Wrong calls have an ignore comment, and one that nothing needs is an error."""
    code, said = check(checker, API)
    assert code == 0, said


@pytest.mark.parametrize("checker", CHECKERS)
def test_without_ignore_comments_each_wrong_call_is_an_error(checker: str, tmp_path: Path) -> None:
    text = API.read_text()
    wrong = {n for n, line in enumerate(text.splitlines(), 1) if "# type: ignore" in line}
    bare = tmp_path / "bare.py"
    bare.write_text(re.sub(r"  # type: ignore.*", "", text))
    _, said = check(checker, bare)
    errors = re.findall(r"bare\.py:(\d+)(?::\d+)?(?::| -) error", said)
    assert {int(n) for n in errors} == wrong, said
