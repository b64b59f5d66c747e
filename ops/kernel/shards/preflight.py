"""Checks before the first event: the categories exist and match the processor's declaration."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from ....processors import (
    USER_CODE_ERRORS,
    DeclarationChanged,
    PenstockError,
    ProcessorFailed,
    counted,
    did_you_mean,
    error_in_words,
    start,
)
from ....processors.apps import AppName
from ....processors.declare import (
    OVERHEAD_BYTES,
    SIZE_SETTING,
    AnyCategory,
    Processor,
    dead_letters_of,
    plan_of,
    retry_prefix,
)
from ....processors.shard import is_remote, reads_again, uses_transactions
from ....transport import (
    MESSAGE_LIMIT,
    BatchesRefused,
    Bucket,
    BucketMismatch,
    Bus,
    CategorySpec,
    CategoryState,
    CompactedInput,
    Durability,
    MissingCategory,
    SettingNotReported,
    connect_lookup,
    create_missing_categories,
)
from ....transport.tables import (
    PROCESSORS,
    SNAPSHOTS,
    WATERMARKS,
    Promotion,
    newest_maintenance,
    register_inputs,
    registration_of,
    watermarks_on,
)
from ..telemetry import REPORTS
from .changelog_replay import changelog_of
from .resume_checks import finished_maintenance
from .topic_watch import expect_bucket_count


class InputsChanged(DeclarationChanged):
    """A processor of the same name has read other categories: rename one of them, or remove the data of the other."""


class MissingClone(PenstockError):
    """A clone does not exist: make it, or name another one."""


_LOG = logging.getLogger("penstock.worker")
Targets = dict[Bucket, int]
"""The end offset of each input bucket at one time."""


def prepare(processor: type[Processor], bus: Bus) -> Processor:
    """Check a processor against the bus, create its internal categories (dead letters, changelog), and return it open; end it with `lifecycle.end`.

    Raises:
        NoTransactions: it needs transactions, and the cluster has none.
        MissingCategory: a category is not on the bus.
        BucketMismatch: a category has another number of buckets than declared, or than it had when its state was built.
        CompactedInput: a lost state could not be rebuilt from an input.
        InputsChanged: a processor of the same name has read other categories.
        BatchesRefused: an output or an internal category accepts only small batches.
        ProcessorFailed: its `open` raised an exception.
        MissingClone: it belongs to a clone that does not exist.
    """
    plan = plan_of(processor)
    plan.check()
    if uses_transactions(processor):
        bus.expect_transactions(start_identity(processor.name))
    _expect_clone(processor, bus)
    expect_categories(processor, (*plan.sources, *plan.outputs), bus)
    largest = _largest_message(processor, bus)
    retries = [_for_messages_of(CategorySpec.of(category), largest) for category in plan.retry_categories]
    create_missing_categories(bus, *retries)
    expect_categories(processor, plan.retry_categories, bus)
    expect_side_inputs(processor, bus)
    _expect_rebuildable(processor, bus)
    _register(processor, bus)
    changelog = changelog_of(processor)
    own = [_for_messages_of(CategorySpec.of(dead_letters_of(processor)), largest), *([changelog] if changelog else [])]
    create_missing_categories(bus, WATERMARKS, REPORTS, PROCESSORS, SNAPSHOTS, *own)
    written = [*(category.name for category in plan.written_categories), *(spec.name for spec in own)]
    names = (*written, WATERMARKS.name, REPORTS.name, PROCESSORS.name)
    # Asked for all of them: a batch that the broker rejects later would end the worker again and again.
    limits = {name: bus.catalog.message_limit(name) for name in names}
    _warn_about_sizes({spec.name: limits[spec.name] for spec in (*retries, *own)}, largest)
    warn_about_durability(processor, bus)
    warn_about_estimates(processor, bus)
    return open_processor(processor, bus)


def start_identity(processor: str) -> str:
    """Return the transactional id with which a processor's start checks the cluster. It is no worker's."""
    return f"{processor}.start"


def _largest_message(processor: type[Processor], bus: Bus) -> int:
    """Return the size limit of the input with the largest messages, in bytes; 0 if none is known."""
    limits = []
    for category in plan_of(processor).sources:
        with suppress(BatchesRefused):  # this worker only reads it
            limits.append(bus.catalog.message_limit(category.name))
    return max(limits, default=0)


def _for_messages_of(spec: CategorySpec, size: int) -> CategorySpec:
    """Return the settings of a new category that accepts messages of a size, with their overhead, if the cluster permits that."""
    accepting = replace(spec, preferred=frozenset({SIZE_SETTING}))
    if size <= MESSAGE_LIMIT or int(spec.settings.get(SIZE_SETTING, 0)) > size:
        return accepting
    return replace(accepting, settings={**spec.settings, SIZE_SETTING: str(size + OVERHEAD_BYTES)})


def _warn_about_sizes(limits: Mapping[str, int], size: int) -> None:
    """Log the categories of a processor that accept only smaller messages than its inputs."""
    for name, limit in limits.items():
        if limit < size:
            _LOG.warning(
                "%s accepts messages of %s bytes, and an input of this processor has messages of up to %s. A larger event is not retried, its dead "
                "letter is truncated, and a larger state stops the worker. Raise the limit: `kafka-configs.sh --bootstrap-server HOST:PORT "
                "--alter --topic %s --add-config %s=%d`.",
                name,
                f"{limit:,}",
                f"{size:,}",
                name,
                SIZE_SETTING,
                size + OVERHEAD_BYTES,
            )


def _expect_clone(processor: type[Processor], bus: Bus) -> None:
    """Raise MissingClone for a processor of a clone that was never made, which would start with an empty state, or was promoted."""
    if processor.cloned_from is None:
        return
    operation = newest_maintenance(bus, processor.name)
    if operation is not None and operation.is_done and isinstance(operation.kind, Promotion):
        raise MissingClone(
            f"{processor.name} was promoted: {processor.cloned_from.name} continues with its state. Nothing was started. Remove the clone with "
            "`penstock clone APP@NAME --remove`, and run the app itself."
        )
    if operation is None:
        raise MissingClone(
            f"There is no {processor.name}: its clone was never made on this Kafka cluster, or was removed. Nothing was started. Make it with "
            "`penstock clone APP SNAPSHOT --as NAME`, or run the app itself."
        )


def _register(processor: type[Processor], bus: Bus) -> None:
    """Register a processor's inputs on the bus, or check that they equal the registered ones."""
    plan = plan_of(processor)
    registered = registration_of(bus, processor.name)
    declared = {category.name: category.buckets for category in plan.inputs}
    if registered.inputs == declared:
        return
    if registered.inputs is not None and registered.shards:
        finished_maintenance(bus, processor.name)  # an unfinished one may have changed the number of buckets
        _expect_nothing_waits(processor, registered.inputs.keys() - declared.keys(), bus)
        retries = retry_prefix(processor.name)
        before = {name: buckets for name, buckets in registered.inputs.items() if not name.startswith(retries)}
        _expect_same_inputs(processor, before)
        if plan.state_shape is not None and any(shard.has_committed for shard in registered.shards.values()):
            _expect_same_buckets(processor, before)
    register_inputs(bus, processor.name, declared)


def _expect_nothing_waits(processor: type[Processor], removed: Iterable[str], bus: Bus) -> None:
    """Raise InputsChanged if events wait for an attempt that a processor does not declare any more."""
    existing = set(bus.catalog.names())
    for name in sorted(
        existing.intersection(name for name in removed if name.startswith(retry_prefix(processor.name)))
    ):
        committed = bus.catalog.committed(processor.name, name)
        waiting = sum(max(end - committed.get(number, 0), 0) for number, end in bus.catalog.stable_ends(name).items())
        if waiting:
            raise InputsChanged(
                f"{counted(waiting, 'event')} of {processor.__name__} may wait for a retry in {name}, and its declaration has no such attempt any more, so no "
                "worker would ever process them. Nothing was started. Declare `on_error = penstock.Retry(…)` with as many attempts as before until "
                "`penstock status` shows no event that waits. Then change it.",
                processor.name,
            )


def _expect_same_inputs(processor: type[Processor], before: Mapping[str, int]) -> None:
    declared = {category.name for category in plan_of(processor).sources}
    if declared != before.keys():
        raise InputsChanged(
            f"{processor.__name__} reads {_listed(declared)}, but on this bus a processor called {processor.name} has read {_listed(before)}. Both "
            "would share one group, its positions and its states, which would make both wrong. Nothing was started. Rename one of them "
            f'(`name = "…"` in the class). If it is the same processor with changed inputs, start it anew after `penstock undeploy '
            f"{processor.name} --purge`, which removes its data, or set its position with `penstock reset APP:PROCESSOR`.",
            processor.name,
        )


def _expect_same_buckets(processor: type[Processor], before: Mapping[str, int]) -> None:
    changed = [category for category in plan_of(processor).sources if category.buckets != before[category.name]]
    if changed:
        sizes = ", ".join(
            f"{category.name} ({before[category.name]} then, {category.buckets} now)" for category in changed
        )
        raise BucketMismatch(
            f"{processor.__name__} has state from a time when its inputs had another number of buckets: {sizes}. Events of some keys are now in "
            "another bucket than their state, so those keys would start anew. Nothing was started. Add buckets only with `penstock category "
            "resize`, which also moves state. If another tool has added them, rename the processor and make it read the output of a "
            "penstock.Repartition, or start with an empty state (`penstock reset APP:PROCESSOR --to latest --state empty`)."
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def warn_about_durability(processor: type[Processor], bus: Bus) -> None:
    """Log categories whose events the failure of a broker can lose, and inputs whose arrival times come from their producers.

    A setting that the brokers do not report is not checked, which is logged.
    """
    plan = plan_of(processor)
    inputs = {category.name for category in plan.inputs}
    names = sorted(inputs | {category.name for category in plan.outputs})
    durability = {name: bus.catalog.durability(name) for name in names}
    _log_unsafe({name: found for name, found in durability.items() if found.is_safe is False})
    _log_unchecked({name: found for name, found in durability.items() if found.is_safe is None})
    known_inputs = {name: found for name, found in durability.items() if name in inputs}
    for name, found in known_inputs.items() if processor.max_future is not None else ():
        if warning := found.timestamp_warning(name):
            _LOG.info("%s", warning)  # it says the same at each start, and the commands about categories show it


def _log_unsafe(unsafe: Mapping[str, Durability]) -> None:
    if not unsafe:
        return
    replicas = min(found.replicas for found in unsafe.values())
    confirming = [found.min_in_sync for found in unsafe.values() if found.min_in_sync is not None]
    _LOG.log(
        logging.WARNING if replicas > 1 else logging.INFO,
        "The failure of a broker can lose events of %s (at least %d replicas, of which %s must confirm a message). Exactly-once semantics "
        "during such a failure need replication factor 3, min.insync.replicas=2 and unclean.leader.election.enable=false.",
        ", ".join(unsafe),
        replicas,
        min(confirming, default="an unknown number"),
    )


def _log_unchecked(unchecked: Mapping[str, Durability]) -> None:
    unknown = {name: reason for found in unchecked.values() for name, reason in found.unknown.items()}
    if unknown:
        _LOG.info(
            "It was not checked whether the failure of a broker can lose events of %s: unknown are %s.",
            ", ".join(unchecked),
            "; ".join(f"{name} ({reason})" for name, reason in unknown.items()),
        )


def warn_about_estimates(processor: type[Processor], bus: Bus) -> None:
    """Log inputs whose watermarks are estimated by default, although processors of another app write them."""
    plan = plan_of(processor)
    estimated = plan.estimated_by_default if plan.uses_event_time else frozenset()
    writers = {
        (name, statement.writer)
        for statement in (watermarks_on(bus).values() if estimated else ())
        for name in estimated.intersection(statement.ends)
        if not statement.outside and statement.writer != processor.name
    }
    for name, writer in sorted(writers):
        _LOG.warning(
            "%s estimates the watermark of %s from its events, but the processor %s of another app writes it. While %s catches up, its outputs come in "
            "another order, and more of them are late. To use its watermark, declare `watermark = {%s: penstock.watermarks.UpstreamWatermark()}` in %s, "
            "with the variable of the category; to keep the estimate, declare `penstock.watermarks.Confidence()` there.",
            processor.__name__,
            name,
            writer,
            writer,
            name,
            processor.__name__,
        )


def expect_categories(processor: type[Processor], categories: Iterable[AnyCategory], bus: Bus) -> None:
    """Raise MissingCategory or BucketMismatch if categories differ from a processor's declaration."""
    for category in categories:
        expect_bucket_count(processor, category, _buckets(processor, bus, category))


def _expect_rebuildable(processor: type[Processor], bus: Bus) -> None:
    """Raise CompactedInput if a local state would be rebuilt from an input that keeps only the latest event of each key."""
    plan = plan_of(processor)
    if is_remote(processor) or not reads_again(processor) or plan.is_compaction_safe:
        return
    for category in plan.inputs:
        state = bus.catalog.describe(category.name)
        _expect_known_cleanup(processor, state)
        if state.spec.compacted:
            raise CompactedInput(
                f"Category {category.name} is compacted on the bus: it keeps only the latest event of each key. If {processor.__name__} lost its "
                "state, it would read only those again, and the state would lack all earlier events without an error. Nothing was started. If the "
                "latest event of each key produces the same state, declare `compaction_safe = True`. Otherwise use a changelog "
                "(`output_semantics = Semantics.EXACTLY_ONCE` with `deterministic = False`), declare state and outputs at most once, or keep all "
                f"events of {category.name} (`cleanup.policy=delete`)."
            )


def _expect_known_cleanup(processor: type[Processor], state: CategoryState) -> None:
    """Raise SettingNotReported if it is unknown whether an input is compacted."""
    try:
        state.expect_known_cleanup()
    except SettingNotReported as error:
        raise SettingNotReported(
            f"{error} If it is, a lost state of {processor.__name__} could not be rebuilt from it. Nothing was started. Grant DescribeConfigs on the "
            "category (`penstock acls` prints all rights), or declare `compaction_safe = True` if the latest event of each key produces the same state."
        ) from error


def _buckets(processor: type[Processor], bus: Bus, category: AnyCategory) -> int:
    try:
        return bus.catalog.describe(category.name).spec.buckets
    except MissingCategory as error:
        app = AppName.of_processor(processor)
        place = "the bus" if category.cluster is None else f"cluster {category.cluster}"
        raise MissingCategory(
            f"{processor.__name__} needs category {category.name}, which is not on {place}.{did_you_mean(category.name, bus.catalog.names())} Nothing was started. Create the app's "
            f"categories with `penstock category create {app}`. If it exists, this Kafka user may not read its description: `penstock acls {app}` "
            "prints the rights that workers need."
        ) from error


def expect_side_inputs(processor: type[Processor], bus: Bus) -> None:
    """Raise MissingCategory if a category that a processor reads as a table is not on the bus; its number of buckets may differ."""
    for category in plan_of(processor).side_inputs:
        _buckets(processor, bus, category)


def open_processor(processor: type[Processor], bus: Bus) -> Processor:
    """Create and open a processor, whose lookups may read the bus.

    Raises:
        ProcessorFailed: its constructor or `open` raised an exception.
    """
    try:
        instance = processor()
        connect_lookup(instance, bus)
        start(instance)
    except PenstockError:
        raise
    except USER_CODE_ERRORS as error:
        raise ProcessorFailed(
            f"{processor.__name__} could not be opened: {error_in_words(error)}. Nothing was read. Fix its `__init__`, which gets no arguments, its `open`, or the "
            "resources that they load, and start it again."
        ) from error
    return instance


def ends_of(categories: Iterable[AnyCategory], bus: Bus) -> Targets:
    """Return the current end offset of each bucket of some categories."""
    return {
        Bucket(category.name, number): end
        for category in categories
        for number, end in bus.catalog.describe(category.name).ends.items()
    }
