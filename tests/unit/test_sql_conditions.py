"""Conditions of commands, in SQL."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import field

import penstock as ps
from penstock.processors.sql.conditions import compile_condition
from penstock.processors.sql.errors import SqlRefused


class Account(ps.Record, frozen=True):
    """A state."""

    owner: str
    balance: float
    limit: int | None = None
    tags: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("balance > 10", True),
        ("balance > 10 AND owner = 'bob'", False),
        ("owner LIKE 'a%' or \"limit\" is null", True),
        ('"limit" > 3', False),
        ('NOT ("limit" > 3)', False),
        ("balance BETWEEN 10 AND 20", True),
        ("abs(balance - 12.5) < 0.1", True),
    ],
)
def test_a_condition_on_a_record_is_that_of_sql(text: str, expected: object) -> None:
    """NULL counts as false, with NOT too."""
    assert compile_condition("--when", text, Account, "state")(Account("ann", 12.5)) is expected


@pytest.mark.parametrize(("kind", "value"), [(int, 120), (float, 120.5)])
def test_a_plain_state_has_a_name(kind: type, value: Any) -> None:
    """It is the only column."""
    holds = compile_condition("--when", "state > 100", kind, "state")
    assert (holds(value), holds(kind(3))) == (True, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("saldo > 3", "There is no column 'saldo'"),
        ("tags = 'x'", "There is no column 'tags'"),
        ("balance + 1", "boolean"),
        ("balance >", "--when, line 1"),
        ("", "no condition"),
        ("balance > 1; balance > 2", "no condition"),
        ("owner > 3", "--when, line 1"),
        ("(select 1) = 1", "not supported"),
    ],
)
def test_invalid_conditions_are_refused_at_their_place(text: str, problem: str) -> None:
    """The message names the option, and shows the text with a caret."""
    with pytest.raises(SqlRefused, match=problem):
        compile_condition("--when", text, Account, "state")
