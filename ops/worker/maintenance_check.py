"""What a worker makes of a move of its processor, such as a reset: it waits for no half-done one, and uses no state of before."""

from __future__ import annotations

from datetime import datetime, timezone

from ...processors.errors import PenstockError
from ...processors.shard.position import StatePosition
from ...state.errors import StateError
from ...state.protocols import ShardState
from ...transport.bus import Bus
from ...transport.tables.maintenance_log import MaintenanceOperation, newest_maintenance


class MoveUnfinished(PenstockError):
    """Positions and states of a processor are being moved, or were when that broke off: let it be finished."""


class StateSuperseded(StateError):
    """A state is of before its processor was moved: put it away."""


def move_of(bus: Bus, processor: str) -> MaintenanceOperation | None:
    """Return the newest move of a processor.

    Raises:
        MoveUnfinished: it is half done.
    """
    move = newest_maintenance(bus, processor)
    if move is not None and not move.done:
        raise MoveUnfinished(
            f"{processor}: a {move.what} was begun at {_shown(move.time_ms)} and has not come to its end, so positions and states may not "
            "fit each other. Nothing was read or changed. Let it finish, or give the same command again, which finishes it; then start "
            "the worker."
        )
    return move


def expect_current(state: ShardState, move: MaintenanceOperation | None, processor: str, bucket: int) -> None:
    """See that a state which was opened is not of before its processor was moved; one that is new begins as the move says.

    Raises:
        StateSuperseded: it is, or what it was made of cannot be had again from its bucket.
    """
    number = 0 if move is None else move.number_of(bucket)
    if move is None or not number:
        return
    position = state.position()
    if not position:
        if not move.rebuilds and bucket not in move.begins:
            raise StateSuperseded(
                f"{processor}, bucket {bucket}: its state is neither on this machine nor in a backup that is new enough, and the events of "
                f"this bucket alone do not make it: it was brought here by a {move.what} ({_shown(move.time_ms)}). Nothing was read. Name the "
                "place of backups with --backup, start the worker with the state folder (`--dir`) in which that was done, or give the "
                "processor another name to begin anew."
            )
        state.save_position(StatePosition(move.begins.get(bucket, {}), maintenance_number=number))
    elif position.maintenance_number < number:
        raise StateSuperseded(
            f"{processor}, bucket {bucket}: the state on this machine is of before the {move.what} of {_shown(move.time_ms)}, which put another in "
            "its place. To go on with it would undo that here. Nothing was read or changed. Start the worker with --backup, and it takes the "
            "state that fits from there; where no backups are kept, remove the processor's folder below `--dir`/state on this machine."
        )


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
