"""What is looked at before the first event: that the categories exist and fit what the processor declares."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ...processors.declare.categories import AnyCategory
from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError, ProcessorFailed
from ...processors.shard.checkpoints import is_remote, reads_again
from ...transport.bus import Bus
from ...transport.category_spec import CategorySpec
from ...transport.errors import BucketMismatch, CompactedInput, MissingCategory
from ...transport.internal_topics import create_missing_categories
from ...transport.messages import Bucket
from ...transport.tables.registrations import PROCESSORS, register_inputs, registration_of
from ...transport.tables.upstream_watermarks import WATERMARKS
from ..monitoring.reports import REPORTS
from .changelog_replay import changelog_of
from .resume_checks import finished_maintenance
from .topic_watch import expect_buckets


class OtherInputs(PenstockError):
    """A processor of the same name has read other categories: rename one of them, or remove what is left of the other."""


_LOG = logging.getLogger("penstock.worker")
Targets = dict[Bucket, int]
"""Where each input bucket ended when it was looked at."""


def prepare(processor: type[Processor], bus: Bus) -> Processor:
    """Check a processor against the bus, create what it alone writes (dead letters, changelog), and return it opened.

    Raises:
        MissingCategory: a category is not on the bus.
        BucketMismatch: a category has another number of buckets than declared, or than it had when state was made of it.
        CompactedInput: a state that is lost could not be built again from an input.
        OtherInputs: a processor of its name has read other categories.
        BatchesRefused: a category that it writes, or one of Penstock's own, takes too small batches.
        ProcessorFailed: its `open` raised.
    """
    processor.check()
    expect_categories(processor, (*processor.inputs(), *processor.outputs()), bus)
    _expect_rebuildable(processor, bus)
    _register(processor, bus)
    changelog = changelog_of(processor)
    own = [CategorySpec.of(dead_letters_of(processor)), *([changelog] if changelog else [])]
    create_missing_categories(bus, WATERMARKS, REPORTS, PROCESSORS, *own)
    written = [*(category.name for category in processor.outputs()), *(spec.name for spec in own)]
    for name in (*written, WATERMARKS.name, REPORTS.name, PROCESSORS.name):
        bus.catalog.message_limit(name)  # a batch that the broker rejects later would end the worker again and again
    warn_of_losses(processor, bus)
    return opened(processor)


def _register(processor: type[Processor], bus: Bus) -> None:
    """Note on the bus what a processor reads, or see that it is what was noted."""
    known = registration_of(bus, processor.name)
    declared = {category.name: category.buckets for category in processor.inputs()}
    if known.inputs == declared:
        return
    if known.inputs is not None and known.shards:
        finished_maintenance(
            bus, processor.name
        )  # one that is half done may have changed the buckets, and is to be finished first
        _expect_same_inputs(processor, known.inputs)
        if processor.state_shape() is not None and any(shard.has_committed for shard in known.shards.values()):
            _expect_same_buckets(processor, known.inputs)
    register_inputs(bus, processor.name, declared)


def _expect_same_inputs(processor: type[Processor], before: Mapping[str, int]) -> None:
    declared = {category.name for category in processor.inputs()}
    if declared != before.keys():
        raise OtherInputs(
            f"{processor.__name__} reads {_listed(declared)}, but on this bus a processor called {processor.name} has read {_listed(before)}. Both "
            "would share one group, its positions and its states, and each would spoil the other's. Nothing was started. Give one of them "
            f'another name (`name = "…"` in the class). If it is the same processor, and its inputs were changed: `penstock undeploy '
            f"{processor.name} --purge` removes what is left of it, and it begins anew; or choose with `penstock reset APP:PROCESSOR` where it "
            "goes on."
        )


def _expect_same_buckets(processor: type[Processor], before: Mapping[str, int]) -> None:
    changed = [category for category in processor.inputs() if category.buckets != before[category.name]]
    if changed:
        sizes = ", ".join(f"{one.name} ({before[one.name]} then, {one.buckets} now)" for one in changed)
        raise BucketMismatch(
            f"{processor.__name__} has state that was made when its inputs had another number of buckets: {sizes}. Keys lie in other buckets now "
            "than their state, so they would begin anew beside it. Nothing was started. Buckets are added, and state is moved along, with "
            "`penstock category resize`; where another tool has added them, give the processor another name, and let it read a category that "
            "a penstock.Repartition writes; or begin with an empty state (`penstock reset APP:PROCESSOR --to latest --state empty`)."
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def warn_of_losses(processor: type[Processor], bus: Bus) -> None:
    """Say once which categories would lose events with a broker, and of which inputs writers say when their events arrived."""
    inputs = {category.name for category in processor.inputs()}
    names = sorted(inputs | {category.name for category in processor.outputs()})
    found = {name: bus.catalog.durability(name) for name in names}
    unsafe = {name: one for name, one in found.items() if not one.is_safe}
    if unsafe:
        replicas, in_sync = (min(getattr(one, what) for one in unsafe.values()) for what in ("replicas", "in_sync"))
        level = logging.WARNING if replicas > 1 else logging.INFO
        _LOG.log(
            level,
            "Events of %s can be lost with a broker (at the least %d replicas, of which %d must have a message that counts as written). What "
            "is exactly once with a broker that fails needs replication factor 3, min.insync.replicas=2 and "
            "unclean.leader.election.enable=false.",
            ", ".join(unsafe),
            replicas,
            in_sync,
        )
    claimed = [name for name, one in found.items() if name in inputs and not one.uses_arrival_time]
    if claimed and processor.max_future is not None:
        _LOG.warning(
            "When events of %s arrived is what their writers say (message.timestamp.type=CreateTime): `max_future` and the order in which "
            "inputs meet go by that. Set message.timestamp.type=LogAppendTime on it to go by the broker's time.",
            ", ".join(claimed),
        )


def expect_categories(processor: type[Processor], categories: Iterable[AnyCategory], bus: Bus) -> None:
    """Raise MissingCategory or BucketMismatch where categories are not on the bus as a processor declares them."""
    for category in categories:
        expect_buckets(processor, category, _buckets(processor, bus, category.name))


def _expect_rebuildable(processor: type[Processor], bus: Bus) -> None:
    """Raise CompactedInput where a state that lies beside the worker would be built again from what a compacted input has left."""
    if is_remote(processor) or not reads_again(processor) or processor.is_compaction_safe():
        return
    for category in processor.inputs():
        if bus.catalog.describe(category.name).spec.compacted:
            raise CompactedInput(
                f"Category {category.name} is compacted on the bus: it keeps only the latest event of each key. If {processor.__name__} lost its "
                "state, it would read those again, and the state would lack all earlier events without a sign. Nothing was started. If the "
                "latest event of each key gives the same state, declare `compaction_safe = True`; otherwise keep a changelog "
                "(`output_semantics = Semantics.EXACTLY_ONCE` with `deterministic = False`), ask for state and outputs at most once, or keep all "
                f"events of {category.name} (`cleanup.policy=delete`)."
            )


def _buckets(processor: type[Processor], bus: Bus, name: str) -> int:
    try:
        return bus.catalog.describe(name).spec.buckets
    except MissingCategory as error:
        raise MissingCategory(
            f"{processor.__name__} needs category {name}, which is not on the bus. Nothing was started. Create the app's "
            "categories with `penstock category create APP.py`."
        ) from error


def opened(processor: type[Processor]) -> Processor:
    """Return a processor, opened.

    Raises:
        ProcessorFailed: its `open` raised.
    """
    try:
        made = processor()
        made.open()
    except PenstockError:
        raise
    except Exception as error:
        raise ProcessorFailed(
            f"{processor.__name__} could not be opened: {type(error).__name__}: {error}. Nothing was read; mend its "
            "`open` or what it loads, and start it again."
        ) from error
    return made


def ends_of(categories: Iterable[AnyCategory], bus: Bus) -> Targets:
    """Return where each bucket of the categories ends now."""
    return {
        Bucket(category.name, number): end
        for category in categories
        for number, end in bus.catalog.describe(category.name).ends.items()
    }
