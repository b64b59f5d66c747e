"""Rollouts on Kubernetes: kubectl applies manifests, and the cluster replaces the pods one by one.

The desired state lists the new version for all workers before kubectl applies the manifests. After an interruption, repeating
the command continues the rollout. If the cluster does not complete a rollout, the previous version is applied again.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ....processors.apps import Contents
from ...shell import ReportStep
from ..errors import DeployError, SupervisorUnavailable, UpdateFailed, WorkerFailed
from ..registry import DeploymentFiles, DesiredState, all_deployments
from ..version import Version
from .manifests import manifests_of, scaled_object
from .pods import GRACE_S, Manifest, kubectl, object_name, replicas_name, shared_name

KINDS = "networkpolicy,poddisruptionbudget,statefulset,service,configmap"
KUBECTL_LIMIT_S = 60.0
END_LIMIT_S = 30.0 + GRACE_S
"""How long pods may take to end, beside the answer of the cluster."""
_TO_THE_END = ("--wait", "--cascade=foreground", "--ignore-not-found")
"""A deletion ends when the pods have ended. In the background, they would still read, as members of their group."""


def kubectl_log_command(version: Version, worker: int | None, lines: int, *, follow: bool) -> list[str]:
    """Return the command that prints the logs of a deployment's pods, or of one of them."""
    name = object_name(version.name)
    pods = (
        [f"{name}-{worker}"] if worker is not None else ["--selector", f"app.kubernetes.io/instance={name}", "--prefix"]
    )
    # By default, kubectl follows five pods at most.
    many = ["--max-log-requests", str(max(version.shape.buckets, 5))] if follow and worker is None else []
    options = ["--container", "worker", "--tail", str(lines), *many, *["--follow"] * follow]
    return kubectl(version.settings, "logs", *pods, *options)


class KubernetesRollout:
    """Changes the workers of a deployment on Kubernetes. The caller holds `deployment_lock`.

    Args:
        files: the files of the deployment.
        limit_s: the time in seconds within which a worker must become ready.
        progress: receives progress lines.
    """

    def __init__(self, files: DeploymentFiles, limit_s: float, progress: ReportStep) -> None:
        self._files = files
        self._limit_s = limit_s
        self._progress = progress

    def start(self, version: Version, workers: int) -> None:
        """Start the workers of a deployment that has none.

        Raises:
            UpdateFailed: a worker did not become ready; all workers were removed.
            SupervisorUnavailable: no worker was started.
        """
        before = self._files.desired_state()
        failed = before.failed if before else ()
        desired = DesiredState(version.number, (version.number,) * workers, failed)
        self._files.save_desired_state(desired)
        try:
            self._roll_out(version, workers)
        except SupervisorUnavailable:
            self._files.save_desired_state(desired.after_stop())
            raise
        except WorkerFailed as error:
            self._delete(version)
            self._files.save_desired_state(desired.after_stop().after_failure(version.number, workers=()))
            raise UpdateFailed(
                f"{error}\n{version.label} was removed from the cluster, so nothing is deployed. Correct the app and deploy again."
            ) from error

    def update(self, version: Version) -> None:
        """Replace the version of all workers, one after the other.

        Raises:
            UpdateFailed: a worker did not become ready; the previous version was applied again.
        """
        before = self._files.expect_desired_state()
        count = len(before.workers)
        self._files.save_desired_state(replace(before, workers=(version.number,) * count))
        try:
            self._roll_out(version, count)
        except WorkerFailed as error:
            old = self._files.version(before.version)
            self._files.save_desired_state(before.after_failure(version.number, (old.number,) * count))
            self._apply(self._manifests(old, count), old)
            raise UpdateFailed(
                f"{error}\n{old.label} was restored. No saved state is lost. Correct the app and deploy again."
            ) from error
        self._files.save_desired_state(replace(self._files.expect_desired_state(), version=version.number))

    def replace_all(self, version: Version) -> None:
        """Stop all workers and start them as a version. Versions with different inputs cannot share a consumer group.

        Raises:
            UpdateFailed: a worker did not become ready; the previous version was applied again.
        """
        old = self._files.version(self._files.expect_desired_state().version)
        self._progress(f"{version.label}: restarting all workers, because the inputs differ …")
        self._kubectl(old, "delete", "statefulset", object_name(old.name), *_TO_THE_END, limit_s=END_LIMIT_S)
        self.update(version)

    def scale(self, workers: int) -> None:
        """Change the minimum number of workers; KEDA may start more."""
        desired = self._files.expect_desired_state()
        version = self._files.version(desired.version)
        self._files.save_desired_state(replace(desired, workers=(desired.version,) * workers))
        # A server has one process, which KEDA does not scale.
        manifests = [scaled_object(version, workers)] if version.server is None else self._manifests(version, workers)
        self._apply(manifests, version)

    def reapply(self) -> None:
        """Apply the manifests of the current version again."""
        desired = self._files.expect_desired_state()
        version = self._files.version(desired.version)
        self._apply(self._manifests(version, len(desired.workers)), version)

    def stop(self) -> None:
        """Remove the deployment from the cluster. The volumes with state stay."""
        desired = self._files.expect_desired_state()
        self._delete(self._files.version(desired.version))
        self._files.save_desired_state(desired.after_stop())

    def _roll_out(self, version: Version, workers: int) -> None:
        self._apply(self._manifests(version, workers), version)
        self._progress(f"{version.label}: waiting until the cluster has replaced all workers …")
        name = f"statefulset/{object_name(version.name)}"
        limit_s = self._limit_s * workers
        try:
            self._kubectl(version, "rollout", "status", name, f"--timeout={limit_s:.0f}s", limit_s=limit_s)
        except SupervisorUnavailable as error:
            raise WorkerFailed(
                f"{version.label} did not become ready on the cluster: {error} `kubectl logs {name}` shows the log."
            ) from error

    def _delete(self, version: Version) -> None:
        names, server = [object_name(version.name)], version.server
        if version.replica_of and not self._has_replicas(version):
            names.append(replicas_name(version.replica_of))
        selector = f"app.kubernetes.io/instance in ({', '.join(names)})"
        kinds = f"scaledobject,{KINDS}" if server is None else KINDS  # a cluster without KEDA refuses the word
        self._kubectl(version, "delete", kinds, "--selector", selector, *_TO_THE_END, limit_s=END_LIMIT_S)

    @staticmethod
    def _has_replicas(version: Version) -> bool:
        """Return whether another replica of a server is deployed, for which the objects of all replicas stay."""
        others = (each.version for each in all_deployments(Path(version.settings.folder)) if each.name != version.name)
        return any(each.settings.pods and shared_name(each) == shared_name(version) for each in others)

    def _manifests(self, version: Version, workers: int) -> list[Manifest]:
        return manifests_of(version, self._code(version), workers)

    def _apply(self, manifests: Sequence[Manifest], version: Version) -> None:
        self._kubectl(version, "apply", "--filename", "-", stdin=manifest_list(manifests))

    def _code(self, version: Version) -> Contents:
        folder = self._files.code(version.number)
        paths = (path for path in folder.rglob("*") if path.is_file())
        return Contents({path.relative_to(folder).as_posix(): path for path in paths})

    @staticmethod
    def _kubectl(version: Version, *arguments: str, stdin: str = "", limit_s: float = 0.0) -> None:
        if shutil.which("kubectl") is None:
            raise SupervisorUnavailable(
                "This machine has no kubectl. Nothing was sent to a cluster. Install kubectl and deploy again; or print the manifests with "
                "--dry-run, and apply them on another machine."
            )
        command = kubectl(version.settings, *arguments)
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, check=False, timeout=KUBECTL_LIMIT_S + limit_s
            )
        except subprocess.TimeoutExpired as error:
            raise SupervisorUnavailable(
                f"`{' '.join(command)}` did not finish within {error.timeout:.0f} s. Check the cluster, and repeat the command."
            ) from error
        if done.returncode:
            reason = (done.stderr.strip() or done.stdout.strip()).rstrip(".")
            raise SupervisorUnavailable(
                f"`{' '.join(command)}` failed: {reason}. Check the cluster, and repeat the command."
            )


def manifest_list(manifests: Sequence[Manifest]) -> str:
    """Return manifests as one JSON document for `kubectl apply`."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def expect_reachable(version: Version) -> None:
    """Check that pods can reach the backup store of a version, and what a server reads.

    Raises:
        DeployError: it is on this machine.
    """
    backup, states = version.settings.backup, Path(version.settings.folder, "state")
    if backup is not None and "://" not in backup:
        raise DeployError(
            f"The backup store {backup} is a folder on this machine, which the cluster's workers cannot reach. Nothing was changed. Name "
            "a store that they reach: --backup hdfs://HOST:PORT/PATH."
        )
    paths = [Path(word) for word in (version.server.options if version.server else ()) if word.startswith("/")]
    unreachable = [path for path in paths if not path.is_relative_to(states)]
    if unreachable:
        raise DeployError(
            f"{unreachable[0]} is on this machine, where the cluster's servers cannot read it. Nothing was changed. Name a location that they reach, "
            "such as hdfs://HOST:PORT/PATH."
        )


def expect_own_objects(versions: Iterable[Version]) -> None:
    """Check that no two deployments have objects of the same name in a cluster.

    Raises:
        DeployError: two have.
    """
    names: dict[tuple[str | None, str], str] = {}
    for version in versions:
        if version.settings.pods is None:
            continue
        name = object_name(version.name)
        other = names.setdefault((version.settings.pods.namespace, name), version.name)
        if other != version.name:
            raise DeployError(
                f"{version.name} and {other} would both be {name} in the cluster, and would replace each other. Nothing was changed. Give one of them "
                "a name that differs in letters or digits, or deploy it to another --namespace."
            )
