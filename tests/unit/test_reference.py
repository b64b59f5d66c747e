"""The public API reference: its names, docstrings and examples."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import DeclarationError
from penstock.processors import did_you_mean

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    "penstock." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "processors").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_documented_examples_run(name: str) -> None:
    """The examples in docstrings produce the documented results."""
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)

    assert results.attempted > 0
    assert results.failed == 0


def test_the_package_lists_only_its_public_names() -> None:
    """`dir(penstock)` contains no internal package, and every class has a docstring."""
    assert dir(ps) == sorted(ps.__all__)
    assert [name for name in ps.__all__ if not inspect.getdoc(getattr(ps, name))] == []


def test_the_error_of_a_misspelled_field_suggests_the_similar_name() -> None:
    """Without a similar name, the error suggests nothing."""

    class Click(ps.Record, frozen=True):
        """A click."""

        user: str
        at: int

    with pytest.raises(DeclarationError, match="Did you mean `user`"):
        ps.Category("clicks", Click, key="usr", event_time="at")

    assert did_you_mean("zzz", ["user", "at"]) == ""
