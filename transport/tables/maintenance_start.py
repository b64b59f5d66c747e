"""How a move begins: it is noted when no worker runs, and taken back where one has started in that moment."""

from __future__ import annotations

from collections.abc import Callable

from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError
from ..bus import Bus
from ..messages import Bucket, Position
from .maintenance_log import MOVES, MaintenanceOperation, forget_maintenance, newest_maintenance, record_maintenance


def expect_idle(processor: type[Processor], bus: Bus) -> None:
    """See that no worker of a processor runs: only of a group without members can positions be set, here to what they are.

    Raises:
        GroupInUse: one runs.
    """
    catalog = bus.catalog
    names = [category.name for category in processor.inputs()]
    positions = [position for name in names for position in catalog.positions(processor.name, name)]
    if not positions and MOVES.name in catalog.names():
        positions = [Position(Bucket(MOVES.name, 0), 0)]
    if positions:
        catalog.set_committed(processor.name, positions)


def note_begin(
    processor: type[Processor],
    bus: Bus,
    move: MaintenanceOperation,
    earlier: MaintenanceOperation | None,
    still: Callable[[], None],
) -> None:
    """Note that a move begins, after which no worker starts; then look again.

    Args:
        processor: whose.
        bus: where it is noted.
        move: what begins.
        earlier: the move before it.
        still: raises where something has changed meanwhile, for which the move was not planned.

    Raises:
        GroupInUse: a worker runs; it was not noted.
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


def take_back_move(bus: Bus, processor: str) -> None:
    """Note that a move which has begun has changed nothing, so that what was noted before it holds again; nothing where none has."""
    noted = newest_maintenance(bus, processor)
    if noted is None or noted.done:
        return
    if noted.earlier is None:
        forget_maintenance(bus, processor)
    else:
        record_maintenance(bus, noted.earlier)
