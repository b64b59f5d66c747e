"""The files of deployments: versions with their code, and the version that each worker must run.

    <dir>/deployments/<name>/versions/000003/app/       the code of version 3
    <dir>/deployments/<name>/versions/000003.json       the version; written after its code, so it is complete or absent
    <dir>/deployments/<name>/desired.json               the current version, and the version of each worker
    <dir>/deployments/<name>/environment                values of environment variables, readable by the owner only
    <dir>/deployments/<name>/workers/0.json             the last start of worker 0
    <dir>/deployments/<name>/workers/0.slot             which of worker 0's two processes in supervisord is the current one: 0 or 1

Each write replaces `desired.json` atomically. During a rollout it lists workers of two versions. After an interruption,
the next command continues from this list.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ...processors.apps import AppName, Contents
from ...state.files import make_private_folder, replace_file
from ..shell import ReportStep, exclusive
from .errors import DeployError, NotDeployed
from .folders import deployments_folder, names_of_deployments
from .version import DeployedServer, Target, Version


class DesiredState(msgspec.Struct, frozen=True):
    """The state that a deployment must reach.

    Args:
        version: the number of the current version.
        workers: the version number of each worker; empty without a deployment.
        failed: the numbers of versions that did not become ready, or crashed again and again until they were replaced.
        stopped: how many workers the deployment had when it was stopped; 0 while it has workers.
    """

    version: int
    workers: tuple[int, ...]
    failed: tuple[int, ...] = ()
    stopped: int = 0

    @property
    def is_rolled_out(self) -> bool:
        """Whether every worker must run the current version."""
        return set(self.workers) <= {self.version}

    def after_failure(self, version: int, workers: tuple[int, ...]) -> DesiredState:
        """Return this state with a version that failed, and with other workers."""
        return replace(self, workers=workers, failed=tuple(sorted({*self.failed, version})))

    def after_update(self, version: int) -> DesiredState:
        """Return this state with all workers of a version that became ready."""
        failed = tuple(number for number in self.failed if number != version)
        return DesiredState(version, (version,) * len(self.workers), failed)

    def earlier_version(self, versions: Iterable[int]) -> int | None:
        """Return the version that a rollback restores: the last one before the current version that has not failed; None without one."""
        return max((number for number in versions if number < self.version and number not in self.failed), default=None)

    @property
    def last_count(self) -> int:
        """The number of workers, at present or before the deployment was stopped; at least one."""
        return len(self.workers) or self.stopped or 1

    def after_stop(self) -> DesiredState:
        """Return this state without workers. A later deployment starts as many."""
        return replace(self, workers=(), stopped=len(self.workers) or self.stopped)


class WorkerStart(msgspec.Struct, frozen=True):
    """A start of a worker.

    Args:
        version: the version number.
        pid: the process ID.
        health: the port of its health endpoint on 127.0.0.1.
        log_bytes: the size of its log before the start; 0 without a log file.
        slot: which of the worker's two processes in supervisord it is.
    """

    version: int
    pid: int
    health: int
    log_bytes: int = 0
    slot: int = 0


@dataclass(frozen=True)
class Deployment:
    """A deployed processor.

    Args:
        name: the processor's name.
        version: the current version.
        desired: the versions that its workers must run.
    """

    name: str
    version: Version
    desired: DesiredState

    @property
    def app(self) -> str:
        """The path of its app file."""
        return self.version.app

    @property
    def processor(self) -> str:
        """The name of the processor's class."""
        return self.version.processor

    @property
    def workers(self) -> int:
        """The desired number of workers."""
        return len(self.desired.workers)

    @property
    def target(self) -> Target:
        """The kind of its supervisor."""
        return self.version.settings.target


def all_deployments(folder: Path) -> list[Deployment]:
    """Return the deployments in a folder (`--dir`), by name.

    Raises:
        DeployError: a file of a deployment is unreadable.
    """
    found = (DeploymentFiles(folder, name).deployment() for name in names_of_deployments(folder))
    return [deployment for deployment in found if deployment is not None]


def server_of(folder: Path, name: str) -> DeployedServer | None:
    """Return the server of a deployment, also of a stopped one; None if it is of workers, or there is none."""
    files = DeploymentFiles(folder, name)
    desired = files.desired_state()
    return None if desired is None else files.version(desired.version).server


def servers_named(folder: Path, name: str) -> list[str]:
    """Return the names of the servers that share a name (`DeployedServer.replica_of`), also of stopped ones."""
    servers = ((each, server_of(folder, each)) for each in names_of_deployments(folder))
    return [each for each, server in servers if server is not None and server.replica_of == name]


def deployments_of(folder: Path, app: AppName) -> list[Deployment]:
    """Return the deployed processors of an app, or of a clone of it, by name.

    Raises:
        DeployError: a file of a deployment is unreadable.
        NotDeployed: there are none.
    """
    path, clone = app.path.resolve(), app.clone or ""
    found = [
        each
        for each in all_deployments(folder)
        if each.version.server is None and Path(each.app).resolve() == path and each.version.clone == clone
    ]
    if not found:
        raise NotDeployed(
            f"{app} is not deployed from {folder}: nothing was changed. `penstock deployments` lists what is."
        )
    return found


def deployed_elsewhere(folder: Path, app: Path, names: Collection[str]) -> list[Deployment]:
    """Return the deployments with some names that are of other apps than a file.

    Raises:
        DeployError: a file of a deployment is unreadable.
    """
    found = (DeploymentFiles(folder, name).deployment() for name in names)
    return [each for each in found if each is not None and Path(each.app) != app.absolute()]


def find_deployment(folder: Path, name: str) -> Deployment:
    """Return the deployment with a name.

    Raises:
        NotDeployed: no deployment has this name.
    """
    found = DeploymentFiles(folder, name).deployment()
    if found is None:
        names = ", ".join(deployment.name for deployment in all_deployments(folder))
        raise NotDeployed(
            f"{name} is not deployed from {folder}. Nothing was changed. "
            + (f"Deployed are: {names}." if names else "Deploy with `penstock deploy APP[:PROCESSOR]`.")
        )
    return found


@contextmanager
def deployment_lock(folder: Path, progress: ReportStep) -> Iterator[None]:
    """Hold the exclusive lock on a folder's deployments within the context; report a wait for it."""
    waits = f"Waiting for another command that changes the deployments in {folder}."
    with exclusive(deployments_folder(folder) / "lock", lambda: progress(waits)):
        yield


class DeploymentFiles:
    """The files of one deployment. Callers that write hold `deployment_lock`.

    Args:
        folder: the value of `--dir`.
        name: the processor's name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = deployments_folder(folder.absolute()) / name

    def deployment(self) -> Deployment | None:
        """Return the deployment; None without workers."""
        desired = self.desired_state()
        if desired is None or not desired.workers:
            return None
        return Deployment(self.name, self.version(desired.version), desired)

    def desired_state(self) -> DesiredState | None:
        """Return the desired state, also of a stopped deployment; None if the processor was never deployed."""
        path = self.folder / "desired.json"
        return _read(path, _decode_desired) if path.exists() else None

    def expect_desired_state(self) -> DesiredState:
        """Return the desired state, also of a stopped deployment.

        Raises:
            NotDeployed: the processor was never deployed.
        """
        desired = self.desired_state()
        if desired is None:
            raise NotDeployed(f"{self.name} was never deployed from {self.folder.parents[1]}. Nothing was changed.")
        return desired

    def save_desired_state(self, desired: DesiredState) -> None:
        """Replace the desired state atomically."""
        replace_file(self.folder / "desired.json", msgspec.json.encode(desired))

    def version_numbers(self) -> list[int]:
        """Return the numbers of all versions, in ascending order."""
        return sorted(int(path.stem) for path in (self.folder / "versions").glob("[0-9]*.json"))

    def version(self, number: int) -> Version:
        """Return a version.

        Raises:
            DeployError: the version does not exist, or its file is unreadable.
        """
        path = self._version(number).with_suffix(".json")
        if not path.exists():
            numbers = ", ".join(map(str, self.version_numbers())) or "none"
            raise DeployError(f"{self.name} has no version {number}. Nothing was changed. Its versions: {numbers}.")
        return _read(path, _decode_version)

    def add_version(self, version: Version, code: Contents) -> None:
        """Store a version with its code."""
        target_folder = self.code(version.number)
        shutil.rmtree(target_folder.parent, ignore_errors=True)  # an interrupted command may have left a partial copy
        for name, source in code.files.items():
            target = target_folder / name
            make_private_folder(target.parent)
            shutil.copyfile(source, target)
        replace_file(self._version(version.number).with_suffix(".json"), msgspec.json.encode(version))

    def code(self, number: int) -> Path:
        """Return the folder of a version's code."""
        return self._version(number) / "app"

    def last_start(self, worker: int) -> WorkerStart | None:
        """Return the last start of a worker; None if it never started."""
        path = self._worker(worker)
        return _read(path, _decode_start) if path.exists() else None

    def save_start(self, worker: int, start: WorkerStart) -> None:
        """Store the start of a worker."""
        replace_file(self._worker(worker), msgspec.json.encode(start))

    def slot(self, worker: int) -> int:
        """Return which of a worker's two processes in supervisord is the current one."""
        path = self._slot(worker)
        return int(path.read_bytes()) if path.exists() else 0

    def save_slot(self, worker: int, slot: int) -> None:
        """Make one of a worker's two processes the current one. The other ends when this one is prepared, and does not start again."""
        replace_file(self._slot(worker), str(slot).encode())

    @property
    def environment(self) -> Path:
        """The file with the values of environment variables."""
        return self.folder / "environment"

    def delete(self) -> None:
        """Delete all files. The desired state is deleted first, because it makes the processor deployed."""
        with suppress(FileNotFoundError):
            (self.folder / "desired.json").unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _version(self, number: int) -> Path:
        return self.folder / "versions" / f"{number:06d}"

    def _worker(self, number: int) -> Path:
        return self.folder / "workers" / f"{number}.json"

    def _slot(self, worker: int) -> Path:
        return self.folder / "workers" / f"{worker}.slot"


_T = TypeVar("_T")
_decode_desired = msgspec.json.Decoder(DesiredState)
_decode_version = msgspec.json.Decoder(Version)
_decode_start = msgspec.json.Decoder(WorkerStart)


def _read(path: Path, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise DeployError(
            f"Cannot read {path}: {error}. Running workers are not affected. Restore the file, or grant access to it."
        ) from error
