"""Whether what was saved fits what is declared now: asked before anything is changed.

the version that counts, the states on this machine, the newest backups, the remote store --> is each of the shape that is declared
a sample of the values on this machine --> does each decode as the type that is declared
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ...processors.kinds import Processor
from ...state.backups.entries import inspection
from ...state.backups.errors import PlaceUnreachable
from ...state.backups.places import BackupPlace
from ...state.backups.shard import ShardBackups
from ...state.backups.survey import ShardName, kept_shards, local_shards, look
from ...state.checkpoints import is_remote
from ...state.errors import StateDamaged
from ...state.rocks import RocksShardState
from .errors import StateUnfit
from .version import Shape, Version

SAMPLE = 1000
"""How many values of each shard are looked at."""


def expect_fit(
    processor: type[Processor],
    target: str,
    last: Version | None,
    states: Path,
    place: BackupPlace | None,
    *,
    say: Callable[[str], None],
) -> None:
    """Refuse a processor that the state there is does not fit.

    Args:
        processor: as it is declared now.
        target: how the user named it.
        last: the version that counts, or counted last; None where it was never deployed.
        states: the folder of states.
        place: where backups are kept; None for nowhere. One that does not answer is left out.
        say: tells that.

    Raises:
        StateUnfit: it does not fit; says which, why, and what can be done.
    """
    misfits = [
        *_misfits(processor, last, states),
        *([] if place is None else _in_backups_or_none(processor, place, say)),
    ]
    if misfits:
        raise StateUnfit(
            f"{processor.__name__} was not deployed, and what runs goes on: {misfits[0]} {_choices(processor, target)}"
        )


def _misfits(processor: type[Processor], last: Version | None, states: Path) -> Iterator[str]:
    shape = Shape.of(processor)
    if last is not None:
        yield from _between(last, shape)
    if shape.state is not None and not is_remote(processor):
        yield from _on_this_machine(processor, states)


def _in_backups_or_none(processor: type[Processor], place: BackupPlace, say: Callable[[str], None]) -> list[str]:
    if processor.state_shape() is None or is_remote(processor):
        return []
    try:
        return list(_in_backups(processor, place))
    except PlaceUnreachable as error:
        say(f"Backups were not looked at. {error}")
        return []


def _between(last: Version, shape: Shape) -> Iterator[str]:
    """Give what tells the shape of the version that counts from another."""
    old = last.shape
    if old.state is None and shape.state is None:
        return  # without state, any inputs will do
    if old.state != shape.state:
        yield f"{last.label} keeps {_state(old)}, and it is now declared to keep {_state(shape)}; neither can go on from the other's."
    elif set(old.inputs) != set(shape.inputs):
        yield (
            f"the state of {last.label} counts what came in {_names(old)}, and it is now declared to read {_names(shape)}; the "
            "positions that the state reflects are those of the old inputs."
        )


def _on_this_machine(processor: type[Processor], states: Path) -> Iterator[str]:
    decode = inspection(processor, None, SAMPLE)
    for shard in local_shards(states):
        if shard.processor == processor.name:
            theirs = look(shard.folder(states), RocksShardState.identity)
            if theirs is not None and theirs.shape != processor.state_shape():
                yield f"the state of {shard} in {states} holds {theirs.shape}, and it is now declared to keep {processor.state_shape()}."
                continue
            try:
                look(shard.folder(states), decode)
            except StateDamaged as error:
                yield str(error)


def _in_backups(processor: type[Processor], place: BackupPlace) -> Iterator[str]:
    for shard in kept_shards(place):
        newest = ShardBackups(place, *shard).newest() if shard.processor == processor.name else None
        if newest is not None and newest.identity.shape != processor.state_shape():
            yield _foreign_backup(shard, place, newest.identity.shape, processor)


def _foreign_backup(shard: ShardName, place: BackupPlace, theirs: str, processor: type[Processor]) -> str:
    return f"the newest backup of {shard} at {place.location} holds {theirs}, and it is now declared to keep {processor.state_shape()}."


def _choices(processor: type[Processor], target: str) -> str:
    fresh = f'`name = "{processor.name}_2"`'
    return (
        f"You can: go back to the declaration that fits; or start fresh under a new name ({fresh} on the class), which reads its inputs "
        f"from the first event that the bus keeps, and writes all of its outputs again; or, under a new name, begin with state that is "
        f"computed from the archive: `penstock bootstrap {target}`, then deploy. {processor.name} itself is removed with "
        f"`penstock undeploy {processor.name} --purge` when it is not needed any more."
    )


def _state(shape: Shape) -> str:
    return shape.state or "no state"


def _names(shape: Shape) -> str:
    return ", ".join(sorted(shape.inputs))
