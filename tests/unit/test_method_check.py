"""Methods of processors that the engine cannot call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import DeclarationError
from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of


class Order(ps.Record, frozen=True):
    """An order."""

    shop: str
    at: ps.EventTime


orders = ps.Category("orders", Order, key="shop", event_time="at")
BASES: dict[type[ps.Processor], dict[str, Any]] = {
    ps.Stateless: {},
    ps.Stateful: {"state": int},
    ps.Aggregator: {"monoid": ps.monoids.Count()},
    ps.LookupJoin: {"source": ps.lookups.MemoryTable({}), "key_of": lambda self, event: event.shop},
}


def declared(base: type[ps.Processor], **methods: Any) -> type[ps.Processor]:
    return type("Totals", (base,), {"reads": orders, **BASES[base], **methods})


async def coroutine(self: Any, event: Order) -> list[Order]:
    return [event]


async def async_generator(self: Any, event: Order) -> Any:
    yield event


def generator(self: Any, event: Order, state: int | None, context: ps.Context) -> Any:
    yield event


def forgotten(self: Any, event: Order, *others: Any) -> None:
    if event.shop:
        [event]  # noqa: B018 - the mistake


def raising(self: Any, event: Order, *others: Any) -> Any:
    raise ValueError(event)


def sometimes(self: Any, event: Order) -> Any:
    if event.shop:
        return [event]
    return None


@pytest.mark.parametrize(
    ("base", "name", "method", "message"),
    [
        (ps.Aggregator, "observe", coroutine, r"Totals\.observe is `async def`.* Write `def observe\(self, event\):`"),
        (ps.Aggregator, "observe", async_generator, "is `async def`"),
        (
            ps.Stateful,
            "process",
            lambda self, event, state: (state, []),
            r"process\(self, event, state\) does not accept the arguments event, state, context.* `def process\(self, event, state, context\):`",
        ),
        (ps.Stateless, "process", lambda self: [], r"Write `def process\(self, event\):`"),
        (ps.Stateless, "process", lambda self, event, *, strict: [], "missing a required argument: 'strict'"),
        (ps.Stateful, "process", generator, r"contains `yield`.* write `return state, \[…\]`"),
        (ps.Stateful, "process", forgotten, r"process never returns a value.* Write `return state, \[…\]`\."),
        (ps.Stateless, "process", forgotten, r"never returns a value.* Write `return \[…\]`, or yield the outputs"),
        (ps.Aggregator, "observe", forgotten, r"observe never returns a value.* Write `return event`"),
        (ps.Aggregator, "result", lambda self, key, value: None, r"`def result\(self, key, window, value\):`"),
        (ps.LookupJoin, "join", lambda self, event: [], r"`def join\(self, event, row\):`"),
    ],
)
def test_a_method_that_cannot_work_is_refused_before_the_first_event(
    base: type[ps.Processor], name: str, method: Callable[..., Any], message: str
) -> None:
    """The error contains the correct first line or return statement."""
    with pytest.raises(DeclarationError, match=message) as caught:
        plan_of(declared(base, **{name: method})).check()
    assert "Nothing was read." in str(caught.value)


@functools.wraps(sometimes)
def wrapped(*arguments: Any, **named: Any) -> Any:
    return sometimes(*arguments, **named)


@pytest.mark.parametrize(
    "method",
    [
        raising,
        sometimes,
        wrapped,
        staticmethod(lambda event: [event]),
        classmethod(lambda cls, event: [event]),
        lambda self, event, scale=1: [event],
        lambda self, *arguments: arguments,
        lambda self, order: [order],
        lambda self, event: [event] if event.shop else None,
        lambda self, event: event.shop or None,
    ],
)
def test_other_methods_are_accepted(method: Any) -> None:
    """They have other names of parameters, defaults or wrappers, or always raise."""
    plan_of(declared(ps.Stateless, process=method)).check()


def test_a_misspelled_method_is_named(tmp_path: Path) -> None:
    """Without the check, the class would be abstract, and the file would seem to declare no processor."""
    path = tmp_path / "app.py"
    path.write_text(
        "import penstock as ps\n"
        "class E(ps.Record, frozen=True):\n    key: str\n    at: ps.EventTime\n"
        "class Base(ps.Stateless):\n    reads = ps.Category('c', E, key='key', event_time='at')\n    def preprocess(self, event): return event\n"
        "class Keep(Base):\n    def proces(self, event): return ()\n"
    )

    with pytest.raises(
        DeclarationError, match=r"Keep does not define `process`.* It defines `proces`; did you mean `process`\?"
    ):
        AppName(path).load()


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("name", "value"), [("limit_outputs", {}), ("max_batch", None), ("close", True), ("open", {})])
def test_a_name_of_the_engines_own_methods_is_refused_at_the_class(
    base: type[ps.Processor], name: str, value: object
) -> None:
    """A table or a helper of this name ended in "'dict' object is not callable"."""
    with pytest.raises(
        DeclarationError, match=f"Totals.{name} hides a method that Penstock calls itself.*`own_{name}`"
    ):
        declared(base, **{name: value})


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (ps.Stateless, "for_batch"),
        (ps.Stateless, "blocking"),
        (ps.Stateful, "max_batch"),
        (ps.Aggregator, "group_keys"),
        (ps.Aggregator, "windows_of"),
        (ps.Aggregator, "record_of"),
        (ps.LookupJoin, "metrics"),
        (ps.LookupJoin, "process"),
        (ps.Join, "process"),
        (ps.Windowed, "on_timer"),
    ],
)
def test_a_helper_with_the_name_of_a_method_of_the_engine_is_refused(base: type[ps.Processor], name: str) -> None:
    """It would replace the engine's decision without a word, such as the groups of an aggregator."""
    with pytest.raises(DeclarationError, match=f"Totals.{name} hides a method that Penstock calls itself"):
        type("Totals", (base,), {name: lambda self, *arguments: arguments})


@pytest.mark.parametrize("base", BASES)
def test_names_of_a_plan_are_the_users(base: type[ps.Processor]) -> None:
    """What the engine reads of a declaration does not depend on a helper or a table that has one of its names."""
    plan = plan_of(declared(base))

    own = declared(
        base, **{name: {} for name in ("inputs", "outputs", "sinks", "is_repeatable", "state_shape", "check")}
    )

    plan_of(own).check()
    assert (plan_of(own).sources, plan_of(own).outputs) == (plan.sources, plan.outputs)
