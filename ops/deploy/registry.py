"""What is deployed from a folder: versions with their code, and which of them each worker runs.

    <dir>/deployments/<name>/versions/000003/app/       the files of version 3's code
    <dir>/deployments/<name>/versions/000003.json       the version; written last, so that it is whole or not there
    <dir>/deployments/<name>/standing.json              the version that counts, and the one that each worker is to run
    <dir>/deployments/<name>/environment                values that workers are given; its owner's alone
    <dir>/deployments/<name>/workers/0.json             what worker 0 was last started as

`standing.json` is replaced as a whole. While a version takes another's place its workers stand there with different ones;
whoever dies then leaves a list from which the next one goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from ...processors.declare.app_files import Contents
from ...state.files.durable import replace_file
from ..dev_services.lock import exclusive
from .errors import DeployError, NotDeployed
from .version import Target, Version


class DesiredState(msgspec.Struct, frozen=True):
    """What a deployment is to be.

    Args:
        version: the number of the version that counts.
        workers: the number of the version that each worker is to run; nothing when it is not deployed.
        failed: versions that did not come up.
    """

    version: int
    workers: tuple[int, ...]
    failed: tuple[int, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether every worker is to run the version that counts."""
        return set(self.workers) <= {self.version}


class WorkerStart(msgspec.Struct, frozen=True):
    """What a worker was last started as.

    Args:
        version: the number of the version.
        pid: its process.
        health: the port of 127.0.0.1 where it tells how it is.
    """

    version: int
    pid: int
    health: int


@dataclass(frozen=True)
class Deployment:
    """A processor that is kept running.

    Args:
        name: the processor's name.
        version: the version that counts.
        standing: what each of its workers is to run.
    """

    name: str
    version: Version
    standing: DesiredState

    @property
    def app(self) -> str:
        """The app file it was deployed from."""
        return self.version.app

    @property
    def processor(self) -> str:
        """The processor's class."""
        return self.version.processor

    @property
    def workers(self) -> int:
        """How many workers it is to have."""
        return len(self.standing.workers)

    @property
    def target(self) -> Target:
        """What keeps them alive."""
        return self.version.settings.target


def all_deployments(folder: Path) -> list[Deployment]:
    """Return what is deployed from a folder (`--dir`), by name.

    Raises:
        DeployError: a file of theirs cannot be read.
    """
    names = sorted(path.parent.name for path in _root(folder).glob("*/standing.json"))
    found = (DeploymentFiles(folder, name).deployment() for name in names)
    return [deployment for deployment in found if deployment is not None]


def find_deployment(folder: Path, name: str) -> Deployment:
    """Return the deployment of a name.

    Raises:
        NotDeployed: there is none.
    """
    found = DeploymentFiles(folder, name).deployment()
    if found is None:
        there = ", ".join(deployment.name for deployment in all_deployments(folder))
        raise NotDeployed(
            f"{name} is not deployed from {folder}. "
            + (f"What is: {there}." if there else "Nothing is. Deploy with `penstock deploy APP[:PROCESSOR]`.")
        )
    return found


@contextmanager
def deployment_lock(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Be the only one in the block who changes what is deployed from a folder; `say` tells whoever has to wait for that."""
    waits = f"Another command is changing what is deployed from {folder}; waiting for it."
    with exclusive(_root(folder) / "lock", lambda: say(waits)):
        yield


class DeploymentFiles:
    """The files of one deployment. Whoever writes is the only one who does, see `deployment_lock`.

    Args:
        folder: `--dir`.
        name: the processor's name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = _root(folder.absolute()) / name

    def deployment(self) -> Deployment | None:
        """Return what is deployed; None where nothing is."""
        standing = self.standing()
        if standing is None or not standing.workers:
            return None
        return Deployment(self.name, self.version(standing.version), standing)

    def standing(self) -> DesiredState | None:
        """Return what it is to be, or was; None where it was never deployed."""
        path = self.folder / "standing.json"
        return _read(path, _standing) if path.exists() else None

    def stand(self, standing: DesiredState) -> None:
        """Note what it is to be, in place of what was noted before."""
        replace_file(self.folder / "standing.json", msgspec.json.encode(standing))

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, the oldest first."""
        return sorted(int(path.stem) for path in (self.folder / "versions").glob("[0-9]*.json"))

    def version(self, number: int) -> Version:
        """Return a version.

        Raises:
            DeployError: there is none of that number, or its file cannot be read.
        """
        path = self._version(number).with_suffix(".json")
        if not path.exists():
            there = ", ".join(map(str, self.numbers())) or "none"
            raise DeployError(f"There is no version {number} of {self.name}. Its versions: {there}.")
        return _read(path, _version)

    def add(self, version: Version, code: Contents) -> None:
        """Keep a version with its code."""
        kept = self.code(version.number)
        shutil.rmtree(kept.parent, ignore_errors=True)  # what is there was left by one who died before it was whole
        for name, source in code.files.items():
            target = kept / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        replace_file(self._version(version.number).with_suffix(".json"), msgspec.json.encode(version))

    def code(self, number: int) -> Path:
        """Return the folder of a version's code."""
        return self._version(number) / "app"

    def started(self, worker: int) -> WorkerStart | None:
        """Return what a worker was last started as; None where it never was."""
        path = self._worker(worker)
        return _read(path, _started) if path.exists() else None

    def start(self, worker: int, started: WorkerStart) -> None:
        """Note what a worker is started as."""
        replace_file(self._worker(worker), msgspec.json.encode(started))

    @property
    def environment(self) -> Path:
        """The file of the values that workers are given."""
        return self.folder / "environment"

    def forget(self) -> None:
        """Remove all of it: versions, code and notes. The standing first: without it nothing is deployed."""
        with suppress(FileNotFoundError):
            (self.folder / "standing.json").unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _version(self, number: int) -> Path:
        return self.folder / "versions" / f"{number:06d}"

    def _worker(self, number: int) -> Path:
        return self.folder / "workers" / f"{number}.json"


def _root(folder: Path) -> Path:
    return folder / "deployments"


_T = TypeVar("_T")
_standing = msgspec.json.Decoder(DesiredState)
_version = msgspec.json.Decoder(Version)
_started = msgspec.json.Decoder(WorkerStart)


def _read(path: Path, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise DeployError(
            f"{path} cannot be read: {error}. Workers that run are not affected. Put the file back as it was, or give access."
        ) from error
