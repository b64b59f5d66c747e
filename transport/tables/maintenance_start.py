"""The start of a maintenance operation: recorded while no worker runs, cancelled if a worker starts at the same moment."""

from __future__ import annotations

from collections.abc import Callable

from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError
from ..bus import Bus
from ..messages import Bucket, Position
from .maintenance_log import MOVES, MaintenanceOperation, forget_maintenance, newest_maintenance, record_maintenance


def expect_idle(processor: type[Processor], bus: Bus) -> None:
    """Check that no worker of a processor runs, by setting its positions to their present values: the bus refuses this for a group with members.

    Raises:
        GroupInUse: a worker runs.
    """
    catalog = bus.catalog
    names = [category.name for category in processor.inputs()]
    positions = [position for name in names for position in catalog.positions(processor.name, name)]
    if not positions and MOVES.name in catalog.names():
        positions = [Position(Bucket(MOVES.name, 0), 0)]
    if positions:
        catalog.set_committed(processor.name, positions)


def record_begin(
    processor: type[Processor],
    bus: Bus,
    move: MaintenanceOperation,
    earlier: MaintenanceOperation | None,
    still: Callable[[], None],
) -> None:
    """Record the start of an operation, which prevents workers from starting; then check again that no worker runs.

    Args:
        processor: the processor.
        bus: the bus.
        move: the operation.
        earlier: the previous operation.
        still: raises if the plan of the operation is outdated.

    Raises:
        GroupInUse: a worker runs; the operation is not recorded.
    """
    expect_idle(processor, bus)
    record_maintenance(bus, move)
    try:
        expect_idle(processor, bus)
        still()
    except PenstockError:
        if earlier is None:
            forget_maintenance(bus, processor.name)
        else:
            record_maintenance(bus, earlier)
        raise


def cancel_maintenance(bus: Bus, processor: str) -> None:
    """Replace an unfinished operation that has changed nothing by the previous one; do nothing if there is none."""
    newest = newest_maintenance(bus, processor)
    if newest is None or newest.done:
        return
    if newest.earlier is None:
        forget_maintenance(bus, processor)
    else:
        record_maintenance(bus, newest.earlier)
