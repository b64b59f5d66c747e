"""What a declaration must fulfil besides the types of its attributes, for every kind of processor."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from ..errors import DeclarationError
from ..monoids import Monoid
from ..time import (
    GlobalWindow,
    Hopping,
    Session,
    Sliding,
    Tumbling,
)
from ..validation import did_you_mean, is_library_class
from .categories import MAX_NAME
from .emission import AtCheckpoint, AtWatermark, OnLate
from .processor import Processor, as_tuple
from .records import fields_of
from .semantics import Semantics
from .stores import LocalStore, RemoteStore
from .two_phase import TwoPhase
from .type_parameters import expect_argument, expect_outputs

if TYPE_CHECKING:
    from .plan import ProcessorPlan


class _Elsewhere(NamedTuple):
    """An option that only some kinds of processors have.

    Args:
        types: the types of its values; a user's own attribute of the same name rarely has one.
        effect: what its absence means.
        kinds: the kinds that have it.
    """

    types: tuple[type, ...]
    effect: str
    kinds: str


_OPTIONS_OF_KINDS = {
    "window": _Elsewhere(
        (GlobalWindow, Tumbling, Hopping, Session, Sliding),
        "its kind has no windows: the state of a key would never end",
        "penstock.Windowed or penstock.Aggregator",
    ),
    "concurrency": _Elsewhere(
        (int,), "its kind processes one event after the other", "penstock.Stateless with an `async def process`"
    ),
    "monoid": _Elsewhere((Monoid,), "its kind combines no observations", "penstock.Aggregator"),
    "emit": _Elsewhere(
        (AtCheckpoint, AtWatermark), "its kind writes outputs when it returns them", "penstock.Aggregator"
    ),
    "two_phase": _Elsewhere((TwoPhase,), "its kind combines no partials", "penstock.Aggregator"),
    "store": _Elsewhere((LocalStore, RemoteStore), "its kind has no choice of a store", "penstock.Aggregator"),
    "late": _Elsewhere((OnLate,), "for its kind no event is late", "penstock.Stateful, Windowed or Aggregator"),
    "tombstones": _Elsewhere((bool,), "its kind receives no tombstones", "penstock.Stateless or penstock.Stateful"),
    "ordered": _Elsewhere((bool,), "its kind processes events as they arrive", "penstock.Stateful"),
    "state": _Elsewhere((type,), "its kind keeps no state of this type", "penstock.Stateful"),
    "schedules": _Elsewhere((dict,), "its kind saves no state with its firings", "penstock.Stateful"),
}


LONGEST_NAME = MAX_NAME - len(".dead_letter_marks")
"""The longest name of a processor: its categories have longer ones."""


def expect_feedback_is_read(plan: ProcessorPlan) -> None:
    """Raise DeclarationError for a feedback category that is no input."""
    cls = plan.declaration
    read = {category.name for category in plan.sources}
    unread = next((category.name for category in as_tuple(cls.feedback) if category.name not in read), None)
    if unread is not None:
        raise DeclarationError(
            f"Processor {cls.__name__} declares `feedback` with {unread}, which it does not read. Nothing was read. Add {unread} to its inputs, or remove it "
            "from `feedback`."
        )


def expect_type_parameters(plan: ProcessorPlan) -> None:
    """Raise DeclarationError for type parameters that contradict the categories."""
    cls = plan.declaration
    for parameter, categories in plan.inputs_by_parameter.items():
        for category in categories:
            expect_argument(cls, parameter, category.record, f"the input {category.name}")
    expect_outputs(cls, [record for destination in plan.destinations for record in destination.record_types])


def expect_clusters(plan: ProcessorPlan) -> None:
    """Raise DeclarationError if another cluster than the main one has an input or exactly-once outputs."""
    cls = plan.declaration
    for category in (*plan.inputs, *plan.side_inputs):
        if category.cluster is not None:
            raise DeclarationError(
                f"Processor {cls.__name__} reads {category.name}, which is on cluster {category.cluster}. Inputs must be on the main cluster, which also "
                f"keeps the positions. Run {cls.__name__} with a configuration whose `kafka` is the cluster of its inputs, and declare `cluster` only "
                "for categories that it writes. For inputs on several clusters, copy one of them to the main cluster first, with a processor or a "
                "mirror."
            )
    elsewhere = next((category for category in plan.outputs if category.cluster is not None), None)
    if elsewhere is not None and cls.output_semantics is Semantics.EXACTLY_ONCE:
        raise DeclarationError(
            f"Processor {cls.__name__} declares outputs exactly once, and writes {elsewhere.name} on cluster {elsewhere.cluster}. A Kafka transaction "
            "cannot include several clusters, so these outputs could be lost or repeated after a failure. Declare `output_semantics = "
            "penstock.Semantics.AT_LEAST_ONCE`, with keys by which readers recognise a repeated output. Or write to the main cluster exactly once, "
            f"and copy {elsewhere.name} with a mirror."
        )


def expect_partitioners(plan: ProcessorPlan) -> None:
    """Raise DeclarationError if events of one key may be in different shards."""
    cls = plan.declaration
    first, *others = plan.inputs
    unknown = next((category.name for category in plan.inputs if category.partitioner is None), None)
    if unknown is not None:
        raise DeclarationError(
            f"Processor {cls.__name__} has a state per key, but the partitioner of {unknown} is unknown (`partitioner=None`), so events of one key "
            f"may be in several buckets. Copy {unknown} to another category with a penstock.Repartition, and read that one. If each bucket should "
            "have a separate state, declare `key_check = False`."
        )
    for other in others:
        if other.partitioning != first.partitioning:
            raise DeclarationError(
                f"Processor {cls.__name__} reads {first.name} and {other.name}, which are not co-partitioned: their `partitioner` or `key_codec` "
                "differs, or their keys have different fields, or with KeyCodec.JSON or a schema registry the key is a str in one of them and an int in "
                "the other. Events of one key would be in different buckets. Copy one of them to another category with a penstock.Repartition, and read that one."
            )


def expect_columns(plan: ProcessorPlan, step: str, columns: tuple[str, ...] | None) -> None:
    """Validate a columnar step: one input, at most one output, and existing fields.

    Raises:
        DeclarationError: one of these conditions fails.
    """
    cls = plan.declaration
    if len(plan.sources) > 1 or len(plan.outputs) > 1:
        raise DeclarationError(
            f"Processor {cls.__name__} defines `{step}`, which needs one input and at most one output, but it reads or writes several categories. "
            f"Remove `{step}`; backfills then process event by event."
        )
    [category] = plan.sources
    known = fields_of(category.record)
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise DeclarationError(
            f"Processor {cls.__name__}: `columns` contains {', '.join(unknown)}, but {category.record_name} has only the fields "
            f"{', '.join(known)}.{did_you_mean(unknown[0], known)}"
        )


def expect_lateness(plan: ProcessorPlan, allowed: timedelta) -> None:
    """Raise DeclarationError if the allowed lateness is negative or exceeds the retention of an input."""
    owner = plan.declaration
    if allowed < timedelta():
        raise DeclarationError(f"Processor {owner.__name__}: `allowed_lateness = {allowed}` must not be negative.")
    for category in plan.inputs:
        if category.retention is not None and allowed > category.retention:
            raise DeclarationError(
                f"Processor {owner.__name__} allows a lateness of {allowed}, but the bus keeps events of {category.name} for only "
                f"{category.retention}. A lost window could not be rebuilt from the bus. Declare a shorter `allowed_lateness`, or a longer "
                f"`retention` of the category (None forever)."
            )


def expect_no_option_of_other_kinds(cls: type[Processor]) -> None:
    """Raise DeclarationError for an option that this kind of processor would ignore."""
    options: set[str] = {
        name
        for base in cls.__mro__
        if issubclass(base, Processor) and is_library_class(base)
        for name in base.__annotations__
    }
    for name, option in _OPTIONS_OF_KINDS.items():
        if name not in options and isinstance(getattr(cls, name, None), option.types):
            raise DeclarationError(
                f"Processor {cls.__name__} declares `{name}`, but {option.effect}. Nothing was read. Derive it from {option.kinds}, or remove "
                f"the `{name}`."
            )
