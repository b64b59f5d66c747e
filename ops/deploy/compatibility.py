"""Checks whether saved state matches a processor's declaration, before a deployment changes anything.

the current version, local state, the newest backups --> has each the declared shape?
a sample of the local values                         --> does each decode as the declared type?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...processors.declare import Processor, Stateful, plan_of
from ...processors.shard import is_remote
from ...state import FileStoreUnreachable, StateDamaged
from ...state.backups import ShardBackups, backed_up_shards, local_shards, read_database, state_inspector
from ...state.files import FileStore
from ...state.local import RocksShardState
from ...transport.tables import MaintenanceOperation
from ..shell import ReportStep
from .errors import IncompatibleState
from .version import Version, VersionShape

SAMPLE_VALUES = 1000
"""The number of values that are decoded in each shard."""


@dataclass(frozen=True)
class Incompatibility:
    """A difference between saved state and the declaration.

    Args:
        message: the difference in words.
        is_convertible: whether only the type of the state differs, so that a function can convert it.
    """

    message: str
    is_convertible: bool


def expect_compatible(
    processor: type[Processor],
    target: str,
    last: Version | None,
    states: Path,
    store: FileStore | None,
    *,
    progress: ReportStep,
    maintenance: MaintenanceOperation | None = None,
) -> None:
    """Check that the saved state matches a processor's declaration. A changed query with the same state is reported.

    Args:
        processor: the processor to deploy.
        target: its name on the command line.
        last: the version that was deployed last; None for the first deployment.
        states: the folder of local states.
        store: the backup store; None without backups. An unreachable store is reported and skipped.
        progress: receives progress lines.
        maintenance: the last maintenance operation on the processor's state; None without one.

    Raises:
        IncompatibleState: with the difference, its reason, and the alternatives.
    """
    incompatibilities = [
        *_in_version_and_local_state(processor, last, states, maintenance),
        *([] if store is None else _in_reachable_backups(processor, store, progress)),
    ]
    if incompatibilities:
        is_convertible = all(found.is_convertible for found in incompatibilities)
        conversion = [_conversion(processor, target, last, states, store)] if is_convertible else []
        raise IncompatibleState(
            f"{processor.__name__} was not deployed, and running workers continue. {incompatibilities[0].message} "
            f"{_alternatives(processor, target, conversion)}",
            processor.name,
        )
    if last is not None and last.shape.state is not None and last.shape.query != VersionShape.of(processor).query:
        progress(
            f"The query of {processor.name} has changed since {last.label}, and its saved state still fits: it is kept, and contains what the "
            f"old query made of earlier events. To recompute it from the archive: `penstock undeploy {processor.name}`, `penstock bootstrap {target} "
            "--overwrite`, and deploy again."
        )


def _in_version_and_local_state(
    processor: type[Processor], last: Version | None, states: Path, maintenance: MaintenanceOperation | None
) -> Iterator[Incompatibility]:
    shape = VersionShape.of(processor)
    if last is not None:
        yield from _in_version(processor, last, shape, maintenance)
    if shape.state is not None and not is_remote(processor):
        yield from _in_local_state(processor, states)


def _in_reachable_backups(processor: type[Processor], store: FileStore, progress: ReportStep) -> list[Incompatibility]:
    if plan_of(processor).state_shape is None or is_remote(processor):
        return []
    try:
        return list(_in_backups(processor, store))
    except FileStoreUnreachable as error:
        progress(f"Backups were not checked. {error}")
        return []


def _in_version(
    processor: type[Processor], last: Version, shape: VersionShape, maintenance: MaintenanceOperation | None
) -> Iterator[Incompatibility]:
    """Yield the difference between the shapes of the last version and of the declaration."""
    old = last.shape
    if old.state is None and shape.state is None:
        return  # without state, inputs may change
    converted = None if maintenance is None else maintenance.lineage.converted
    is_migrated = converted is not None and converted.shape == shape.state
    if old.state != shape.state and not is_migrated:
        yield Incompatibility(
            f"{last.label} stores {old.state or 'no state'}, and the declaration stores {shape.state or 'no state'}. Neither can continue "
            "from the other's state.",
            _differs_in_type(processor, old.state) and set(old.inputs) == set(shape.inputs),
        )
    elif set(old.inputs) != set(shape.inputs):
        yield Incompatibility(
            f"The state of {last.label} was computed from {_names(old)}, and the declaration reads {_names(shape)}. The state's positions "
            "refer to the old inputs.",
            is_convertible=False,
        )


def _differs_in_type(processor: type[Processor], shape: str | None) -> bool:
    return (
        shape is not None and issubclass(processor, Stateful) and plan_of(processor).differs_only_in_state_type(shape)
    )


def _in_local_state(processor: type[Processor], states: Path) -> Iterator[Incompatibility]:
    decode = state_inspector(processor, None, SAMPLE_VALUES)
    for shard in local_shards(states):
        if shard.processor != processor.name:
            continue
        identity = read_database(shard.folder(states), RocksShardState.identity)
        if identity is not None and identity.shape != plan_of(processor).state_shape:
            yield _different_shape(processor, f"The state of {shard} in {states}", identity.shape)
            continue
        try:
            read_database(shard.folder(states), decode)
        except StateDamaged as error:
            yield Incompatibility(str(error), issubclass(processor, Stateful))


def _in_backups(processor: type[Processor], store: FileStore) -> Iterator[Incompatibility]:
    for shard in backed_up_shards(store):
        newest = ShardBackups(store, *shard).newest() if shard.processor == processor.name else None
        if newest is not None and newest.identity.shape != plan_of(processor).state_shape:
            backup = f"The newest backup of {shard} at {store.location}"
            yield _different_shape(processor, backup, newest.identity.shape)


def _different_shape(processor: type[Processor], saved: str, shape: str) -> Incompatibility:
    message = f"{saved} contains {shape}, and the declaration stores {plan_of(processor).state_shape}."
    return Incompatibility(message, _differs_in_type(processor, shape))


def _conversion(
    processor: type[Processor], target: str, last: Version | None, states: Path, store: FileStore | None
) -> str:
    backup = "" if store is None else f" --backup {store.location}"
    command = f"penstock state migrate {target} --by FILE:FUNCTION --dir {states.parent}{backup}"
    stop = f"`penstock undeploy {processor.name}`" if last is not None else "stop its workers"
    return (
        "convert the saved state with a function of a key and its state that returns the new state "
        f"(`def FUNCTION(key, state): …`): {stop}, `{command}`, and deploy again"
    )


def _alternatives(processor: type[Processor], target: str, conversion: list[str]) -> str:
    name = f"{processor.name}_2"
    new_name = f"`CREATE TABLE {name}`" if VersionShape.of(processor).query else f'`name = "{name}"` on the class'
    alternatives = [
        "restore the previous declaration",
        *conversion,
        (
            f"start without state under a new name ({new_name}), which reads the inputs from the earliest event in Kafka and "
            "writes all outputs again"
        ),
        f"under a new name, start with state from the archive: `penstock bootstrap {target}`, then deploy",
    ]
    return (
        f"You can: {'; or '.join(alternatives)}. When {processor.name} is no longer needed, remove it with "
        f"`penstock undeploy {processor.name} --purge`."
    )


def _names(shape: VersionShape) -> str:
    return ", ".join(sorted(shape.inputs))
