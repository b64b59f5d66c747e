"""Removing all that is left of a processor: after that, one of its name begins as if there had never been one.

stopped --> group and moves forgotten --> promises taken back --> dead letters and changelog deleted --> backups, state, logs --> versions

Versions go last: as long as they are there, the command can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ...state.backups.inventory import backed_up_shards
from ...state.files.file_store import FileStore, open_file_store
from ...transport.bus import Bus
from ...transport.errors import MissingCategory
from ...transport.tables.maintenance_log import forget_maintenance, newest_maintenance
from ...transport.tables.registrations import forget_registration
from ...transport.tables.upstream_watermarks import WATERMARKS, WatermarkOwner, deletion_messages, watermarks_on
from .environment import STORE
from .manifests import object_name
from .registry import DeploymentFiles, find_deployment
from .version import Target, Version


@dataclass(frozen=True)
class PurgePlan:
    """What is kept of a processor.

    Args:
        name: its name.
        records: its versions.
        folders: its state and its logs, where they are there.
        place: where it is backed up; None for nowhere.
        backups: of how many of its shards there are backups.
        categories: those that it alone writes.
        promises: what it has promised.
        elsewhere: what is kept where this does not reach, in words.
    """

    name: str
    records: DeploymentFiles
    folders: tuple[Path, ...]
    place: FileStore | None
    backups: int
    categories: tuple[str, ...]
    promises: tuple[WatermarkOwner, ...]
    elsewhere: tuple[str, ...]

    @property
    def says(self) -> list[str]:
        """What will be removed, a line each."""
        return list(self._says())

    def _says(self) -> Iterator[str]:
        yield f"the positions of group {self.name} on the bus"
        yield from (f"category {category}" for category in self.categories)
        if self.promises:
            yield f"{len(self.promises)} promises about event time"
        if self.place is not None and self.backups:
            yield f"the backups of {self.backups} shards at {self.place.location}"
        yield from map(str, self.folders)
        yield f"{len(self.records.numbers())} versions, in {self.records.folder}"
        yield from (f"not {what}" for what in self.elsewhere)


def plan_purge(folder: Path, name: str, bus: Bus) -> PurgePlan:
    """Return what is kept of a processor that is or was deployed.

    Raises:
        NotDeployed: it never was.
        BusError: the bus does not answer.
    """
    records = DeploymentFiles(folder, name)
    standing = records.standing()
    if standing is None:
        find_deployment(folder, name)
        raise AssertionError("it says that there is none")
    settings = records.version(standing.version).settings
    place = open_file_store(settings.backup, settings.webhdfs) if settings.backup else None
    there = set(bus.catalog.names())
    return PurgePlan(
        name,
        records,
        tuple(path for path in (folder / "state" / name, folder / "logs" / name) if path.is_dir()),
        place,
        0 if place is None else sum(shard.processor == name for shard in backed_up_shards(place)),
        tuple(one for one in (f"{name}.dead_letters", f"{name}.changelog") if one in there),
        tuple(one for one in watermarks_on(bus) if one[0] == name),
        tuple(_elsewhere(records.version(standing.version))),
    )


def _elsewhere(version: Version) -> Iterator[str]:
    if STORE in version.settings.variables:
        yield "its state in the remote store, which others may read: remove that there"
    if version.settings.target is Target.KUBERNETES:
        instance = f"app.kubernetes.io/instance={object_name(version)}"
        yield f"the volumes of its states in the cluster: `kubectl delete persistentvolumeclaim --selector {instance}`"


def purge(remains: PurgePlan, bus: Bus) -> None:
    """Remove it. The processor has no workers any more.

    Raises:
        GroupInUse: somebody else runs workers of that name.
        StateError: backups could not be removed.
    """
    bus.catalog.forget_group(remains.name)
    forget_registration(bus, remains.name)
    if newest_maintenance(bus, remains.name) is not None:
        forget_maintenance(bus, remains.name)
    promised = [
        one for one in watermarks_on(bus) if one[0] == remains.name
    ]  # perhaps more by now: it ran until a moment ago
    if promised:
        with closing(bus.writer()) as writer:
            writer.send(WATERMARKS.name, deletion_messages(promised))
            writer.flush()
    for category in remains.categories:
        with suppress(MissingCategory):
            bus.catalog.delete(category)
    if remains.place is not None:
        _delete_all(remains.place, remains.name)
    for folder in remains.folders:
        shutil.rmtree(folder, ignore_errors=True)
    remains.records.forget()


def _delete_all(place: FileStore, folder: str) -> None:
    """Delete a folder's files; of each shard manifests before what they name, which stand deeper."""
    contents = place.list_folder(folder)
    for name, size_bytes in contents.items():
        if size_bytes is not None:
            place.delete(f"{folder}/{name}")
    for name, size_bytes in contents.items():
        if size_bytes is None:
            _delete_all(place, f"{folder}/{name}")
