"""Type parameters of processors are compared with their declarations before the first event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import pytest

import penstock as ps
from penstock.processors import DeclarationError
from penstock.processors.declare import plan_of


class Order(ps.Record, frozen=True, tag_field="type", tag="order"):
    """An input."""

    key: str
    at: int


class Large(Order, frozen=True, tag="large"):
    """An input that is also an order."""


class Total(ps.Record, frozen=True, tag_field="type", tag="total"):
    """An output."""

    key: str
    at: int


class HasKey(Protocol):
    """Any of them."""

    key: str


orders = ps.Category("orders", Order, key="key", event_time="at")
larges = ps.Category("larges", Large, key="key", event_time="at")
totals = ps.Category("totals", Total, key="key", event_time="at")
either = ps.Category("either", Order | Total, key="key", event_time="at")
Own = TypeVar("Own", bound=ps.Record)


def stateful(
    parameters: Any, reads: Any = orders, state: Any = int, writes: Any = totals
) -> Callable[[], type[ps.Stateful]]:
    """Return a function that declares a processor with type parameters."""

    def declare() -> type[ps.Stateful]:
        class Sums(ps.Stateful.__class_getitem__(parameters)):  # type: ignore[misc]
            def process(self, event: Any, state: Any, context: ps.Context) -> tuple[Any, list[Any]]:
                return state, [event, context]

        Sums.reads, Sums.writes, Sums.state = reads, writes, state
        return Sums

    return declare


def of_own_base() -> type[ps.Stateful]:
    class Base(ps.Stateful[Own, int, Total], Generic[Own]):
        writes, state = totals, int

        def process(self, event: Own, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
            return state or 0, [Total(context.key, event.at)]  # type: ignore[attr-defined]

    class Concrete(Base[Total]):
        reads = orders

    return Concrete


def join_of(left: Any, right: Any) -> type[ps.Join]:
    class Pairs(ps.Join.__class_getitem__((left, right, Large))):  # type: ignore[misc]
        writes = larges

        def join(self, left: Any, right: Any, context: ps.Context) -> list[Any]:
            return [left, right, context]

    Pairs.left, Pairs.right = orders, totals
    Pairs.__init_subclass__()
    return Pairs


@pytest.mark.parametrize(
    ("declare", "parts"),
    [
        (stateful((Total, int, Total)), ["Stateful Sums", "contain Total", "the input orders is Order"]),
        (stateful((Large, int, Total)), ["contain Large", "the input orders is Order"]),
        (stateful((Order, int, Total), reads=either), ["contain Order", "the input either is Order | Total"]),
        (stateful((Order, str, Total)), ["contain str", "`state` is int"]),
        (stateful((Order, int, Total), state=float), ["contain int", "`state` is float"]),
        (stateful((Order, int, Total), state=tuple[int, int]), ["contain int", "`state` is tuple[int, int]"]),
        (stateful((Order, int, Order)), ["contain Order", "its outputs is Total"]),
        (stateful((Order, int, Order | Total)), ["contain Order", "its outputs is Total"]),
        (of_own_base, ["Stateful Concrete", "contain Total", "the input orders is Order"]),
        (lambda: join_of(Total, Order), ["Join Pairs", "contain Total", "the input orders is Order"]),
        (lambda: join_of(Order, Order | None), ["contain Order | None", "the input totals is Total"]),
    ],
)
def test_a_parameter_that_contradicts_the_declaration_is_refused(
    declare: Callable[[], type[ps.Processor]], parts: list[str]
) -> None:
    with pytest.raises(DeclarationError) as caught:
        plan_of(declare()).check()
    for part in [*parts, "Nothing was read", "Write the same type in both places"]:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "declare",
    [
        stateful((Order, int, Total)),
        stateful((Any, Any, Any)),
        stateful((object, object, ps.Record)),
        stateful((HasKey, int, Total)),
        stateful((Order, int, Total), reads=larges),
        stateful((Order | Total, int, Total)),
        stateful((Order | ps.Tombstone, int | None, Total | ps.Tombstone)),
        stateful((Order, float, Total)),
        stateful((Order, tuple[int, ...], Total), state=tuple[int, int]),
        stateful(("Order", "int", "Total")),
        stateful((Order, int, Order), writes=larges),
        stateful((Order, int, ps.To), writes=(totals, larges)),
        stateful((Order, int, Total), writes=()),
        lambda: join_of(Order, Total | None),
    ],
)
def test_parameters_that_accept_what_is_declared_are_accepted(declare: Callable[[], type[ps.Processor]]) -> None:
    processor = declare()
    plan_of(processor).check()
    assert processor.__orig_bases__  # type: ignore[attr-defined]
