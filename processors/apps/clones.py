"""Clones of apps: the same processors under names of their own, which write to categories of their own.

    shop/app.py             Totals, called totals             reads orders, writes totals
    shop/app.py@staging     Totals, called staging.totals     reads orders, writes staging.totals

A category that no processor of the app writes is read by both. Rows for sinks of a clone are not written. Names follow from the name of the clone alone, so nothing stores them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast, final

from ..declare import AnyCategory, Category, Processor, Semantics, Sink, SinkBatch, plan_of
from ..lookups import CategoryTable


@final
class UnwrittenSink(Sink):
    """A sink of a clone, which drops its rows: the original app writes them.

    Args:
        sink: the sink of the original app.
    """

    def __init__(self, sink: Sink) -> None:
        self.record = sink.record
        self._sink = sink

    @property
    def name(self) -> str:
        """The name of the original sink, which code names in `To`."""
        return self._sink.name

    @property
    def semantics(self) -> frozenset[Semantics]:
        """The semantics of the original sink."""
        return self._sink.semantics

    def expect_tombstone(self, key: object) -> None:
        """Raise TypeError where the original sink does."""
        self._sink.expect_tombstone(key)

    def open(self) -> UnwrittenRows:
        """Return a writer without a connection."""
        return UnwrittenRows()


class UnwrittenRows:
    """Drops rows."""

    def claim(self, processor: str, bucket: int) -> str:  # noqa: ARG002 - as the protocol requires
        """Return no position."""
        return ""

    def write(self, batch: SinkBatch) -> None:
        """Drop a batch."""

    def close(self) -> None:
        """Do nothing."""


def cloned(processors: Iterable[type[Processor]], clone: str) -> list[type[Processor]]:
    """Return the processors of a clone. Their outputs on other clusters are on the main one.

    Args:
        processors: all processors of an app.
        clone: the name of the clone.
    """
    given = list(processors)
    own = {
        category.name: replace(category, name=own_name(clone, category.name), cluster=None)
        for processor in given
        for category in plan_of(processor).outputs
    }
    clones = [_cloned(processor, clone, own) for processor in given]
    for processor in clones:
        plan_of(processor).set_app(clones)
    return clones


def own_name(clone: str, name: str) -> str:
    """Return a clone's name of a processor or of a category."""
    return f"{clone}.{name}"


def renamed_categories(processor: type[Processor]) -> dict[str, str]:
    """Return a clone's names of its own categories by the original names; empty for a processor that is no clone."""
    plan = plan_of(processor)
    original = processor.cloned_from
    if original is None:
        return {}
    theirs = (*plan_of(original).inputs, *plan_of(original).side_inputs, *plan_of(original).outputs)
    ours = (*plan.inputs, *plan.side_inputs, *plan.outputs)
    return {old.name: new.name for old, new in zip(theirs, ours, strict=True) if old.name != new.name}


def _cloned(processor: type[Processor], clone: str, own: Mapping[str, AnyCategory]) -> type[Processor]:
    """Return a subclass with other categories in the place of those in `own`."""
    changed = {}
    for attribute in {name for base in processor.__mro__ for name in vars(base)}:
        value = inspect.getattr_static(processor, attribute)
        renamed = _renamed(value, own)
        if renamed is not value:
            changed[attribute] = renamed
    attributes = {
        **changed,
        "name": own_name(clone, processor.name),
        "cloned_from": processor,
        "__module__": processor.__module__,
        "__qualname__": processor.__qualname__,
        "__doc__": processor.__doc__,
    }
    return cast("type[Processor]", type(processor.__name__, (processor,), attributes))


def _renamed(value: Any, own: Mapping[str, AnyCategory]) -> Any:
    if isinstance(value, Category):
        return own.get(value.name, value)
    if isinstance(value, Sink):
        return UnwrittenSink(value)
    if isinstance(value, CategoryTable):
        return replace(value, category=own[value.category.name]) if value.category.name in own else value
    if type(value) is dict:
        keys = {_renamed(key, own): key for key in value}
        return value if keys.keys() == value.keys() else {key: value[old] for key, old in keys.items()}
    if type(value) is tuple:
        renamed = tuple(_renamed(member, own) for member in value)
        return renamed if any(one is not other for one, other in zip(renamed, value, strict=True)) else value
    return value
