"""Removal of everything that a processor has stored. Afterwards, a processor of the same name starts from the beginning.

group and maintenance log --> watermarks --> dead letters and changelog --> backups --> state and logs --> versions

The versions are deleted last: while they exist, the command can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ...processors import counted
from ...processors.declare import retry_prefix
from ...state.backups import backed_up_shards
from ...state.files import FileStore, open_file_store
from ...transport import Bus, MissingCategory
from ...transport.tables import (
    WATERMARKS,
    WatermarkOwner,
    deletion_messages,
    forget_maintenance,
    forget_registration,
    newest_maintenance,
    registrations_on,
    watermarks_on,
)
from .environment import STORE
from .errors import NotDeployed
from .registry import DeploymentFiles
from .targets import kubectl, object_name
from .version import Target, Version
from .worker_logs import logs_folder


@dataclass(frozen=True)
class PurgePlan:
    """The stored data of a processor.

    Args:
        name: the processor's name.
        files: the files of its deployment.
        folders: the existing folders of its state and logs.
        store: its backup store; None without backups.
        backed_up: the number of shards with backups.
        categories: its dead letters and its changelog, if they exist.
        watermarks: the number of its watermarks.
        out_of_reach: data that this command does not delete, in words.
    """

    name: str
    files: DeploymentFiles
    folders: tuple[Path, ...]
    store: FileStore | None
    backed_up: int
    categories: tuple[str, ...]
    watermarks: int
    out_of_reach: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield a line for each item."""
        yield f"the positions of group {self.name} in Kafka"
        yield from (f"category {category}" for category in self.categories)
        if self.watermarks:
            yield counted(self.watermarks, "watermark")
        if self.store is not None and self.backed_up:
            yield f"the backups of {counted(self.backed_up, 'shard')} at {self.store.location}"
        yield from map(str, self.folders)
        versions = len(self.files.version_numbers())
        if versions:
            yield f"{versions} {'version' if versions == 1 else 'versions'} in {self.files.folder}"


def plan_purge(folder: Path, name: str, bus: Bus, backup: str | None = None, webhdfs: str | None = None) -> PurgePlan:
    """Return the stored data of a processor that was deployed from a folder (`--dir`), or that `penstock run` ran.

    Args:
        folder: the folder of local state and deployments.
        name: the processor's name.
        bus: the bus with its positions.
        backup: its backup store, if it was never deployed; deployments record theirs.
        webhdfs: the WebHDFS address of that store.

    Raises:
        NotDeployed: neither the folder nor the bus has data of the processor.
        BusError: no broker answers.
    """
    files = DeploymentFiles(folder, name)
    desired = files.desired_state()
    version = None if desired is None else files.version(desired.version)
    if version is not None:
        backup, webhdfs = version.settings.backup, version.settings.webhdfs
    store = open_file_store(backup, webhdfs) if backup else None
    existing = set(bus.catalog.names())
    folders = tuple(path for path in (folder / "state" / name, logs_folder(folder, name)) if path.is_dir())
    is_known = name in registrations_on(bus) or newest_maintenance(bus, name) is not None
    if version is None and not folders and not is_known:
        raise NotDeployed(
            f"There is no processor {name}: it was never deployed from {folder}, and no worker of that name has run on this Kafka cluster. "
            "Nothing was changed. `penstock status` lists the processors that run."
        )
    return PurgePlan(
        name,
        files,
        folders,
        store,
        0 if store is None else sum(shard.processor == name for shard in backed_up_shards(store)),
        tuple(
            category
            for category in sorted(existing)
            if category in {f"{name}.dead_letters", f"{name}.dead_letter_marks", f"{name}.changelog"}
            or category.startswith(retry_prefix(name))
        ),
        len(_watermarks(bus, name)),
        tuple(_out_of_reach(version, backup)),
    )


def _watermarks(bus: Bus, processor: str) -> list[WatermarkOwner]:
    return [owner for owner in watermarks_on(bus) if owner[0] == processor]


def _out_of_reach(version: Version | None, backup: str | None) -> Iterator[str]:
    if version is None:
        yield "its state on other machines or in a remote store, if it has any; delete it there"
        if backup is None:
            yield "its backups, if it has any; name them with --backup"
        return
    if STORE in version.settings.variables:
        yield "its state in the remote store, which other programs may read; delete it there"
    if version.settings.target is Target.KUBERNETES:
        instance = f"app.kubernetes.io/instance={object_name(version.name)}"
        command = kubectl(version.settings, "delete", "persistentvolumeclaim", "--selector", instance)
        yield f"the volumes with its state in the cluster: `{' '.join(command)}`"


def purge(plan: PurgePlan, bus: Bus) -> None:
    """Delete the stored data of a processor without workers.

    Raises:
        GroupInUse: workers of this name still run elsewhere.
        StateError: the backup store is unreachable, or rejects a deletion.
    """
    bus.catalog.forget_group(plan.name)
    forget_registration(bus, plan.name)
    if newest_maintenance(bus, plan.name) is not None:
        forget_maintenance(bus, plan.name)
    watermarks = _watermarks(bus, plan.name)  # read again: the workers ran until a moment ago
    if watermarks:
        with closing(bus.writer()) as writer:
            writer.send(WATERMARKS.name, deletion_messages(watermarks))
            writer.flush()
    for category in plan.categories:
        with suppress(MissingCategory):
            bus.catalog.delete(category)
    if plan.store is not None:
        _delete_folder(plan.store, plan.name)
    for folder in plan.folders:
        shutil.rmtree(folder, ignore_errors=True)
    plan.files.delete()


def _delete_folder(store: FileStore, folder: str) -> None:
    """Delete a folder's files. Manifests are deleted before the files that they list, which are in subfolders."""
    contents = store.list_folder(folder)
    for name, size_bytes in contents.items():
        if size_bytes is not None:
            store.delete(f"{folder}/{name}")
    for name, size_bytes in contents.items():
        if size_bytes is None:
            _delete_folder(store, f"{folder}/{name}")
