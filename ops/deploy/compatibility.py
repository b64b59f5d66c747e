"""Whether what was saved fits what is declared now: asked before anything is changed.

the version that counts, the states on this machine, the newest backups, the remote store --> is each of the shape that is declared
a sample of the values on this machine --> does each decode as the type that is declared
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...processors.declare.processor import Processor
from ...processors.declare.stateful import Stateful
from ...processors.shard.checkpoints import is_remote
from ...state.backups.decoded_state import inspection
from ...state.backups.inventory import ShardName, backed_up_shards, local_shards, read_database
from ...state.backups.shard import ShardBackups
from ...state.errors import FileStoreUnreachable, StateDamaged
from ...state.files.file_store import FileStore
from ...state.local.rocksdb import RocksShardState
from ...transport.tables.maintenance_log import MaintenanceOperation
from .errors import IncompatibleState
from .version import Shape, Version

SAMPLE_VALUES = 1000
"""How many values of each shard are looked at."""


@dataclass(frozen=True)
class Incompatibility:
    """What does not fit.

    Args:
        says: what it is, in words.
        in_type: whether the type of a key's state alone is another, so that a function could make it fit.
    """

    says: str
    in_type: bool


def expect_compatible(
    processor: type[Processor],
    target: str,
    last: Version | None,
    states: Path,
    place: FileStore | None,
    *,
    say: Callable[[str], None],
    move: MaintenanceOperation | None = None,
) -> None:
    """Refuse a processor that the state there is does not fit.

    Args:
        processor: as it is declared now.
        target: how the user named it.
        last: the version that counts, or counted last; None where it was never deployed.
        states: the folder of states.
        place: where backups are kept; None for nowhere. One that does not answer is left out.
        say: tells that.
        move: what was last done to its states from outside, as far as that is known.

    Raises:
        IncompatibleState: it does not fit; says which, why, and what can be done.
    """
    misfits = [
        *_misfits(processor, last, states, move),
        *([] if place is None else _in_backups_or_none(processor, place, say)),
    ]
    if misfits:
        in_type = all(misfit.in_type for misfit in misfits)
        by_function = [_by_function(processor, target, last, states, place)] if in_type else []
        raise IncompatibleState(
            f"{processor.__name__} was not deployed, and what runs goes on: {misfits[0].says} {_choices(processor, target, by_function)}"
        )


def _misfits(
    processor: type[Processor], last: Version | None, states: Path, move: MaintenanceOperation | None
) -> Iterator[Incompatibility]:
    shape = Shape.of(processor)
    if last is not None:
        yield from _between(processor, last, shape, move)
    if shape.state is not None and not is_remote(processor):
        yield from _on_this_machine(processor, states)


def _in_backups_or_none(
    processor: type[Processor], place: FileStore, say: Callable[[str], None]
) -> list[Incompatibility]:
    if processor.state_shape() is None or is_remote(processor):
        return []
    try:
        return list(_in_backups(processor, place))
    except FileStoreUnreachable as error:
        say(f"Backups were not looked at. {error}")
        return []


def _between(
    processor: type[Processor], last: Version, shape: Shape, move: MaintenanceOperation | None
) -> Iterator[Incompatibility]:
    """Give what tells the shape of the version that counts from another."""
    old = last.shape
    if old.state is None and shape.state is None:
        return  # without state, any inputs will do
    is_migrated = (
        move is not None and move.lineage.converted is not None and move.lineage.converted.shape == shape.state
    )
    if old.state != shape.state and not is_migrated:
        yield Incompatibility(
            f"{last.label} keeps {_state(old)}, and it is now declared to keep {_state(shape)}; neither can go on from the other's.",
            _differs_in_type(processor, old.state) and set(old.inputs) == set(shape.inputs),
        )
    elif set(old.inputs) != set(shape.inputs):
        yield Incompatibility(
            f"the state of {last.label} counts what came in {_names(old)}, and it is now declared to read {_names(shape)}; the "
            "positions that the state reflects are those of the old inputs.",
            in_type=False,
        )


def _differs_in_type(processor: type[Processor], shape: str | None) -> bool:
    return shape is not None and issubclass(processor, Stateful) and processor.differs_only_in_state_type(shape)


def _on_this_machine(processor: type[Processor], states: Path) -> Iterator[Incompatibility]:
    decode = inspection(processor, None, SAMPLE_VALUES)
    for shard in local_shards(states):
        if shard.processor == processor.name:
            theirs = read_database(shard.folder(states), RocksShardState.identity)
            if theirs is not None and theirs.shape != processor.state_shape():
                says = f"the state of {shard} in {states} holds {theirs.shape}, and it is now declared to keep {processor.state_shape()}."
                yield Incompatibility(says, _differs_in_type(processor, theirs.shape))
                continue
            try:
                read_database(shard.folder(states), decode)
            except StateDamaged as error:
                yield Incompatibility(str(error), issubclass(processor, Stateful))


def _in_backups(processor: type[Processor], place: FileStore) -> Iterator[Incompatibility]:
    for shard in backed_up_shards(place):
        newest = ShardBackups(place, *shard).newest() if shard.processor == processor.name else None
        if newest is not None and newest.identity.shape != processor.state_shape():
            says = _foreign_backup(shard, place, newest.identity.shape, processor)
            yield Incompatibility(says, _differs_in_type(processor, newest.identity.shape))


def _foreign_backup(shard: ShardName, place: FileStore, theirs: str, processor: type[Processor]) -> str:
    return f"the newest backup of {shard} at {place.location} holds {theirs}, and it is now declared to keep {processor.state_shape()}."


def _by_function(
    processor: type[Processor], target: str, last: Version | None, states: Path, place: FileStore | None
) -> str:
    backup = "" if place is None else f" --backup {place.location}"
    command = f"penstock state migrate {target} --by FILE:FUNCTION --dir {states.parent}{backup}"
    stop = f"`penstock undeploy {processor.name}`" if last is not None else "stop its workers"
    return (
        "change what is saved by a function of yours, which is given a key and its state, and returns the new one "
        f"(`def FUNCTION(key, state): …`): {stop}, `{command}`, and deploy again"
    )


def _choices(processor: type[Processor], target: str, by_function: list[str]) -> str:
    fresh = f'`name = "{processor.name}_2"`'
    ways = [
        "go back to the declaration that fits",
        *by_function,
        (
            f"start fresh under a new name ({fresh} on the class), which reads its inputs from the first event that the bus keeps, and "
            "writes all of its outputs again"
        ),
        f"under a new name, begin with state that is computed from the archive: `penstock bootstrap {target}`, then deploy",
    ]
    return (
        f"You can: {'; or '.join(ways)}. {processor.name} itself is removed with `penstock undeploy {processor.name} --purge` when it is not "
        "needed any more."
    )


def _state(shape: Shape) -> str:
    return shape.state or "no state"


def _names(shape: Shape) -> str:
    return ", ".join(sorted(shape.inputs))
