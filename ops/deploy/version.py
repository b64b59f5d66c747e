"""One version of a deployment: the code, how it is run, and what it keeps. Written once, never changed."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import msgspec

from ...processors.declare.processor import Processor


class Target(str, Enum):
    """What keeps the workers alive."""

    LOCAL = "local"
    """supervisord, one for each `--dir`."""
    SYSTEMD = "systemd"
    """Units of the user's own systemd."""
    KUBERNETES = "kubernetes"
    """A StatefulSet."""


class PodSettings(msgspec.Struct, frozen=True):
    """What a cluster runs workers in.

    Args:
        image: the container image: it has Penstock and what the app imports beside its own files.
        namespace: where; None for that of kubectl's context.
        cpu: how many cores a worker asks for, as Kubernetes writes it.
        memory: what a worker asks for and is limited to, as Kubernetes writes it.
        disk: how large the volume of a worker's states is, as Kubernetes writes it.
    """

    image: str
    namespace: str | None = None
    cpu: str = "500m"
    memory: str = "1Gi"
    disk: str = "10Gi"


class DeploymentSettings(msgspec.Struct, frozen=True):
    """How the workers of a deployment are run; no secrets: those are named by the variables that hold them.

    Args:
        kafka: the cluster's address.
        config: the file of the configuration, whole; None for none.
        secured: whether the cluster asks for more than its address.
        folder: `--dir`, whole.
        working_folder: from where relative paths in the app lead on.
        backup: where states are backed up; None for nowhere.
        webhdfs: where WebHDFS answers; None for its default.
        backup_every_s: how often a state is backed up, in seconds.
        variables: the variables of the environment whose values the workers are given.
        target: what keeps the workers alive.
        pods: what they run in on Kubernetes; None elsewhere.
    """

    kafka: str
    folder: str
    working_folder: str
    config: str | None = None
    secured: bool = False
    backup: str | None = None
    webhdfs: str | None = None
    backup_every_s: float = 60.0
    variables: tuple[str, ...] = ()
    target: Target = Target.LOCAL
    pods: PodSettings | None = None


class Shape(msgspec.Struct, frozen=True):
    """What a processor keeps, and of which inputs: state goes on only under the same.

    Args:
        state: what the bytes of saved state mean; None where there is no state.
        inputs: the number of buckets by category.
    """

    state: str | None
    inputs: dict[str, int]

    @staticmethod
    def of(processor: type[Processor]) -> Shape:
        """Return what a processor, as it is declared, keeps."""
        inputs = {category.name: category.buckets for category in processor.inputs()}
        return Shape(processor.state_shape(), inputs)

    @property
    def buckets(self) -> int:
        """How many buckets each input has."""
        return next(iter(self.inputs.values()))


class Version(msgspec.Struct, frozen=True):
    """One version of a deployment.

    Args:
        number: counted from 1.
        name: the processor's name.
        app: the app file it was deployed from, whole path.
        processor: its class.
        digest: what tells its code from other code.
        settings: how it is run.
        shape: what it keeps.
        time_ms: when it was deployed, in milliseconds since 1970, UTC.
        by: the user who did.
    """

    number: int
    name: str
    app: str
    processor: str
    digest: str
    settings: DeploymentSettings
    shape: Shape
    time_ms: int
    by: str

    @property
    def label(self) -> str:
        """What its workers know it by: `scorer@3`."""
        return f"{self.name}@{self.number}"

    @property
    def app_file(self) -> str:
        """The name of the app file, among the files of its code."""
        return Path(self.app).name

    def is_run_like(self, other: Version) -> bool:
        """Tell whether another is the same code under the same settings."""
        return (self.app, self.processor, self.digest, self.settings) == (
            other.app,
            other.processor,
            other.digest,
            other.settings,
        )
