"""What is looked at before the first event: that the categories exist and fit what the processor declares."""

from __future__ import annotations

from collections.abc import Iterable

from ...processors.categories import AnyCategory
from ...processors.dead_letters import dead_letters_of
from ...processors.errors import PenstockError, ProcessorFailed
from ...processors.kinds import Processor
from ...state.checkpoints import is_remote, reads_again
from ...transport.bus import Bucket, Bus, CategorySpec
from ...transport.ensuring import ensure
from ...transport.errors import CompactedInput, MissingCategory
from ...transport.promises import WATERMARKS
from ...transport.registrations import PROCESSORS
from ..watching.reports import REPORTS
from .changelog import changelog_of
from .topics import expect_buckets

Targets = dict[Bucket, int]
"""Where each input bucket ended when it was looked at."""


def prepare(processor: type[Processor], bus: Bus) -> Processor:
    """Check a processor against the bus, create what it alone writes (dead letters, changelog), and return it opened.

    Raises:
        MissingCategory: a category is not on the bus.
        BucketMismatch: a category has another number of buckets than declared; one key could be in two shards.
        CompactedInput: a state that is lost could not be built again from an input.
        ProcessorFailed: its `open` raised.
    """
    processor.check()
    expect_categories(processor, (*processor.inputs(), *processor.outputs()), bus)
    _expect_rebuildable(processor, bus)
    changelog = changelog_of(processor)
    own = [CategorySpec.of(dead_letters_of(processor)), *([changelog] if changelog else [])]
    ensure(bus, WATERMARKS, REPORTS, PROCESSORS, *own)
    return opened(processor)


def expect_categories(processor: type[Processor], categories: Iterable[AnyCategory], bus: Bus) -> None:
    """Raise MissingCategory or BucketMismatch where categories are not on the bus as a processor declares them."""
    for category in categories:
        expect_buckets(processor, category, _buckets(processor, bus, category.name))


def _expect_rebuildable(processor: type[Processor], bus: Bus) -> None:
    """Raise CompactedInput where a state that lies beside the worker would be built again from what a compacted input has left."""
    if is_remote(processor) or not reads_again(processor) or processor.rebuilds_from_latest():
        return
    for category in processor.inputs():
        if bus.catalog.describe(category.name).spec.compacted:
            raise CompactedInput(
                f"Category {category.name} is compacted on the bus: it keeps only the latest event of each key. If {processor.__name__} lost its "
                "state, it would read those again, and the state would lack all earlier events without a sign. Nothing was started. If the "
                "latest event of each key gives the same state, declare `latest_is_enough = True`; otherwise keep a changelog "
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
