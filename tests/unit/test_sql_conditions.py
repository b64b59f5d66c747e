"""Conditions of commands, in SQL."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import field

import penstock as ps
from penstock.processors.sql import JsonCondition, compile_condition
from penstock.processors.sql.errors import SqlRefused


class Account(ps.Record, frozen=True):
    """A state."""

    owner: str
    balance: float
    limit: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    place: tuple[str, int] | None = None


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
    """NULL counts as false, also under NOT."""
    assert compile_condition("--when", text, Account, "state")(Account("ann", 12.5)) is expected


@pytest.mark.parametrize(("kind", "value"), [(int, 120), (float, 120.5)])
def test_a_plain_state_has_a_name(kind: type, value: Any) -> None:
    """It is the only column."""
    holds = compile_condition("--when", "state > 100", kind, "state")
    assert (holds(value), holds(kind(3))) == (True, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tags ->> 'colour' = 'red'", True),
        ("tags -> 'size' is null", True),
        ("cast(place ->> 1 as bigint) > 3", True),
        ("jsonb_array_length(place) > 2", False),
    ],
)
def test_a_field_without_an_sql_type_is_json(text: str, expected: object) -> None:
    """It is a dict, a tuple, a list or another record."""
    account = Account("ann", 12.5, tags={"colour": "red"}, place=("a", 4))
    assert compile_condition("--when", text, Account, "state")(account) is expected


def test_a_plain_state_without_an_sql_type_is_json() -> None:
    """It has the name of a plain state."""
    holds = compile_condition("--when", "jsonb_array_length(state) > 2", tuple[int, ...], "state")
    assert (holds((1, 2, 3)), holds(())) == (True, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("saldo > 3", "There is no column 'saldo'"),
        ("tags.a = 'x'", "Write tags ->> 'a' for a field of tags"),
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


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("amount > 100", [1, 3]),
        ("amount > 100 OR \"user\" = 'bob'", [1, 2, 3]),
        ("place.city = 'Kiel'", [2]),
        ("amount IS NULL", [4, 5]),
        ("lower(\"user\") LIKE 'a%'", [1]),
        ("NOT paid", [2]),
        ("coalesce(amount, 0) = 0", [4, 5]),
        ('length("user") = 3', [1, 2]),
    ],
)
def test_a_condition_on_messages_follows_the_types_of_each(text: str, numbers: list[int]) -> None:
    """A missing field is NULL. A message of other types does not match, and is counted."""
    messages: list[Any] = [
        {"n": 1, "amount": 120, "user": "Ann", "paid": True},
        {"n": 2, "amount": 90.5, "user": "bob", "place": {"city": "Kiel"}, "paid": False},
        {"n": 3, "amount": 200.0, "place": "Kiel"},
        {"n": 4, "amount": None},
        {"n": 5},
        {"n": 6, "amount": "many"},
        {"n": 7, "amount": [1]},
    ]
    condition = JsonCondition("--where", text)
    assert [one["n"] for one in messages if condition(one)] == numbers
    assert condition.mismatched == (2 if "amount" in text and "NULL" not in text else condition.mismatched)


def test_a_message_that_is_no_object_has_one_field() -> None:
    """Its name is value."""
    condition = JsonCondition("--where", "value LIKE '%ERROR%'")
    assert [condition(line) for line in ("an ERROR", "fine", None, 3)] == [True, False, False, False]
    assert condition.mismatched == 1


def test_fields_that_no_message_has_are_known() -> None:
    """They are probably misspelled."""
    condition = JsonCondition("--where", "amuont > 1 OR place.city = 'Rome' OR user = 'ann'")
    holds = [
        condition(message) for message in ({"user": "ann"}, {"amount": 5, "user": None, "place": {"city": "Bern"}})
    ]

    assert holds == [True, False]
    assert condition.unseen == {"amuont"}


@pytest.mark.parametrize("text", ["", "amount >", "amount > (select 1)", "frob(amount) > 1", "amount > 1; 2 > 1"])
def test_a_condition_that_fits_no_message_is_refused_at_once(text: str) -> None:
    """It is refused before any message is read."""
    with pytest.raises(SqlRefused):
        JsonCondition("--where", text)
