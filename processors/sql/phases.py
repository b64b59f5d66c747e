"""Queries with aggregates in two phases: WITH (two_phase = true).

    source, in its own buckets --partials of each group--> <table>.partials, keyed by group --combined--> results

One phase writes a record for each event under the key of its group, so that all events of a group are in one bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from ..declare import Aggregator, Processor, Stateless, TwoPhase
from ..time import Session
from .aggregates import Aggregate
from .errors import SqlText
from .expression_compiler import Compiled, position_of
from .expressions import StatementProgram
from .queries import Query
from .relations import Relation
from .statements import CreateTable, Setting

if TYPE_CHECKING:
    from .grouping import QueryGroups

GROUP_KEY = "group_key"
"""The key of internal categories: the values of GROUP BY as JSON."""
TWO_PHASE = "two_phase"
"""The setting of WITH."""
_JSON = msgspec.json.Encoder(order="deterministic")


def encoder_of_keys(program: StatementProgram) -> str:
    """Return the code of the function from the values of GROUP BY to the key of a group."""
    return program.constant(lambda *values: _JSON.encode(values).decode())


def expect_one_phase(text: SqlText, statement: CreateTable) -> None:
    """Raise SqlRefused for a query without groups that declares two phases."""
    setting = statement.settings.get(TWO_PHASE)
    if setting is not None:
        raise text.refusal(
            setting.position,
            "two_phase applies to GROUP BY, and this query has no groups.",
            "Remove it. An inner query with groups can be a table of its own, with this setting.",
        )


def is_two_phase(query: Query) -> bool:
    """Return whether a query with groups declares two phases.

    Raises:
        SqlRefused: the setting is neither true nor false.
    """
    setting = query.statement.settings.get(TWO_PHASE)
    if setting is None:
        return False
    if not isinstance(setting.value, bool):
        raise query.text.refusal(
            setting.position, f"two_phase = {setting.value!r} is not supported.", "Write true or false."
        )
    return setting.value


def phases_of(
    query: Query, group: QueryGroups, program: StatementProgram, keys: Sequence[Compiled]
) -> Mapping[str, Any]:
    """Return the attribute `two_phase` of the aggregator of a query.

    Args:
        query: the query.
        group: its groups.
        program: compiled its keys.
        keys: the code of the values of GROUP BY.

    Raises:
        SqlRefused: its partials cannot be combined, or would not spread the events of a group.
    """
    place = query.statement.settings[TWO_PHASE].position
    reason = _reason(query, group)
    if reason is not None:
        raise query.text.refusal(place, *reason)
    statement = query.statement
    category = statement.settings.get("category", Setting(statement.name, statement.position)).value
    buckets = {"buckets": int(statement.settings["buckets"].value)} if "buckets" in statement.settings else {}
    key = _key_of_group(query, program, keys)
    return {TWO_PHASE: TwoPhase(key, partials=f"{category}.partials", **buckets)}


def could_have_phases(query: Query, group: QueryGroups, processor: type[Processor]) -> bool:
    """Return whether a query with groups could have two phases, and has one.

    Args:
        query: the query.
        group: its groups.
        processor: its aggregator.
    """
    return (
        TWO_PHASE not in query.statement.settings
        and issubclass(processor, Aggregator)
        and processor.monoid.commutative
        and _reason(query, group) is None
    )


def _reason(query: Query, group: QueryGroups) -> tuple[str, str] | None:
    """Return why a query cannot have two phases, and what to write; None if it can."""
    if query.source.step.kind is not Stateless:
        return (
            "two_phase reads the buckets of one table, and a join is none.",
            "Name the join first: WITH joined AS (SELECT … FROM … JOIN …) SELECT … FROM joined GROUP BY ….",
        )
    if isinstance(group.window, Session):
        return (
            "The bounds of a session depend on all events of its group, so two_phase cannot combine sessions of several buckets.",
            "Write a tumble or a hop window, or remove two_phase.",
        )
    if has_key_of_source(query.source, group):
        return (
            f"All events of a group are in one bucket of {query.source.name}, because its key is {query.source.key}: two phases would take longer than one.",
            f"Remove two_phase; or write {query.source.name} under another key.",
        )
    emit = query.statement.emit
    if emit is not None and emit.at_end and emit.interval:
        return (
            "two_phase does not support EMIT AFTER WATERMARK WITH DELAY.",
            "Write EMIT ON WINDOW CLOSE, and WITH (out_of_orderness = '1 minute').",
        )
    return None


def has_key_of_source(source: Relation, group: QueryGroups) -> bool:
    """Return whether a query groups by the key of its source, so that its events spread over no further buckets."""
    return any(isinstance(key, exp.Column) and source.is_keyed_by(key.name) for key in group.keys)


def expect_commutative(query: Query, found: Sequence[tuple[exp.Expr, Aggregate]]) -> None:
    """Raise SqlRefused for an aggregate that depends on the order of events, in a query in two phases."""
    for node, aggregate in found:
        if not aggregate.monoid.commutative:
            raise query.text.refusal(
                position_of(node),
                f"{node.sql(dialect='postgres').lower()} depends on the order of events, and the partials of several buckets have none, so it does not "
                "combine with two_phase.",
                "Remove two_phase; or write min(…) or max(…). A monoid of your own declares commutative = True if the order does not matter.",
            )


def _key_of_group(query: Query, program: StatementProgram, keys: Sequence[Compiled]) -> Callable[[Any], str]:
    """Return the function from a row to the key of its group. A row that WHERE excludes needs none, and may have none."""
    encoded = f"{encoder_of_keys(program)}({', '.join(key.code for key in keys)})"
    where = query.condition(program)
    code = encoded if where is None else f"{encoded} if {where.code} else {program.constant('')}"
    key: Callable[[Any], str] = program.function("group", "event", [f"return {code}"])
    key.__qualname__ = GROUP_KEY  # as explanations and descriptions of state name it
    return key
