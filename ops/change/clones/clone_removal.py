"""Removal of a clone with everything that it has stored. May be repeated after an interruption.

workers stopped --> snapshots of the clone --> each processor, as `ops/deploy/purge.py` does --> categories
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ....processors.apps import App, renamed_categories
from ....state.files import FileStore, open_file_store
from ....transport import Bus, MissingCategory
from ....transport.tables import Promotion, newest_maintenance, require_idle
from ...deploy import NotDeployed, PurgePlan, plan_purge, purge, stop_deployment
from ..snapshots import SnapshotStore
from .cloning import CloneRefused, original_of


@dataclass(frozen=True)
class CloneRemoval:
    """The stored data of a clone.

    Args:
        app: the clone.
        processors: what its processors have stored.
        categories: its own categories that exist.
        store: its backup store; None without one.
        snapshots: the ids of its own snapshots.
    """

    app: App
    processors: Sequence[PurgePlan]
    categories: Sequence[str]
    store: FileStore | None
    snapshots: Sequence[str]

    def lines(self) -> list[str]:
        """Return a line for each item."""
        lines = [line for plan in self.processors for line in plan.lines()]
        lines += [f"category {name}" for name in self.categories]
        return lines + [f"snapshot {id_} of {self.app.name}" for id_ in self.snapshots]


def plan_removal(
    clone: App, bus: Bus, folder: Path, backup: str | None = None, webhdfs: str | None = None
) -> CloneRemoval:
    """Return the stored data of a clone; nothing is changed.

    Args:
        clone: the app under the clone's names.
        bus: the bus.
        folder: the folder of local state and deployments.
        backup: the location of its backups.
        webhdfs: the WebHDFS address of that store.

    Raises:
        CloneRefused: there is no such clone, or the app is taking its states over.
    """
    _expect_not_needed(clone, bus)
    processors = []
    for processor in clone.processors:
        with suppress(NotDeployed):
            processors.append(plan_purge(folder, processor.name, bus, backup, webhdfs))
    own = {name for processor in clone.processors for name in renamed_categories(processor).values()}
    categories = sorted(own & set(bus.catalog.names()))
    if not processors and not categories:
        raise CloneRefused(f"There is no clone {clone.name}. Nothing was changed. `penstock status` lists what runs.")
    store = open_file_store(backup, webhdfs) if backup else None
    snapshots = [] if store is None else SnapshotStore(store).ids(clone.name)
    return CloneRemoval(clone, processors, categories, store, snapshots)


def _expect_not_needed(clone: App, bus: Bus) -> None:
    """Raise CloneRefused during a promotion, which could not be finished without the states of the clone."""
    for processor in clone.processors:
        newest = newest_maintenance(bus, original_of(processor).name)
        if (
            newest is None
            or newest.is_done
            or not isinstance(newest.kind, Promotion)
            or newest.kind.clone != clone.name
        ):
            continue
        raise CloneRefused(
            f"{original_of(processor).name} is taking over the state of {processor.name}: a {newest.kind} is unfinished. Nothing was changed. Finish "
            "it with `penstock promote`, which removes the clone at its end."
        )


def remove_clone(removal: CloneRemoval, bus: Bus, folder: Path, report: Callable[[str], None]) -> None:
    """Remove a clone. The caller has locked the deployments.

    Raises:
        GroupInUse: a worker of the clone runs that was not deployed from this folder. No data was removed.
    """
    for plan in removal.processors:
        if plan.files.deployment() is not None:
            stop_deployment(folder, plan.name, report)
    for processor in removal.app.processors:
        require_idle(processor, bus)
    if removal.store is not None:
        snapshots = SnapshotStore(removal.store)
        for id_ in removal.snapshots:
            snapshots.delete(removal.app.name, id_)
    for plan in removal.processors:
        purge(plan, bus)
    for name in removal.categories:
        with suppress(MissingCategory):
            bus.catalog.delete(name)
