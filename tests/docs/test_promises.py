"""Every test that the docs name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:\w+/)+test_\w+)(?:::(test_\w+))?`")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_tests_named_in_the_docs_exist(page: Path) -> None:
    for file, name in NAMED.findall(page.read_text("utf-8")):
        source = (ROOT / "tests" / f"{file}.py").read_text("utf-8")
        assert not name or f"def {name}(" in source, f"{page.name} names {file}::{name}"


def test_the_promises_name_their_tests() -> None:
    named = NAMED.findall((ROOT / "docs/concepts/promises.md").read_text("utf-8"))
    assert len(named) > 20
