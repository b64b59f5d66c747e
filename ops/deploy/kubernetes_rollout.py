"""A deployment on Kubernetes: manifests applied by kubectl, which the cluster follows pod by pod.

Workers live elsewhere, so their versions are noted all at once: before the manifests are applied, so that whoever dies in between leaves
what can be begun again, and taken back where the cluster does not come to it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ...processors.declare.app_files import Contents
from .errors import DeployError, SupervisorUnavailable, UpdateFailed, WorkerFailed
from .manifests import Manifest, manifests_of, object_name, pod_settings, scaled_object
from .registry import DeploymentFiles, DesiredState
from .supervised_rollout import Say
from .version import Version

KINDS = "scaledobject,poddisruptionbudget,statefulset,service,configmap"
ANSWER_LIMIT_S = 60.0


class KubernetesRollout:
    """Changes a deployment on a cluster. The only one who does, meanwhile.

    Args:
        records: what is noted of it.
        limit_s: how long a worker may take to come up.
        say: tells what is going on.
    """

    def __init__(self, records: DeploymentFiles, limit_s: float, say: Say) -> None:
        self._records = records
        self._limit_s = limit_s
        self._say = say

    def begin(self, version: Version, workers: int) -> None:
        """Start a deployment that has no workers.

        Raises:
            UpdateFailed: not all of them came up; none is left.
        """
        before = self._records.standing()
        self._records.stand(DesiredState(version.number, (version.number,) * workers, before.failed if before else ()))
        try:
            self._apply(version, workers)
        except SupervisorUnavailable:
            self._records.stand(replace(self._expect_standing(), workers=()))
            raise
        except WorkerFailed as error:
            self._delete(version)
            self._records.stand(DesiredState(version.number, (), (*(before.failed if before else ()), version.number)))
            raise UpdateFailed(
                f"{error}\n{version.label} was taken down again. Mend the app and deploy again."
            ) from error

    def update(self, version: Version) -> None:
        """Have every worker run a version, one after the other.

        Raises:
            UpdateFailed: one did not come up; all of them run again what they ran before.
        """
        before = self._expect_standing()
        count = len(before.workers)
        self._records.stand(replace(before, workers=(version.number,) * count))
        try:
            self._apply(version, count)
        except WorkerFailed as error:
            old = self._records.version(before.version)
            failed = tuple(sorted({*before.failed, version.number}))
            self._records.stand(replace(before, workers=(old.number,) * count, failed=failed))
            self._send(self._manifests(old, count), old)
            raise UpdateFailed(f"{error}\n{old.label} was put back. Mend the app and deploy again.") from error
        self._records.stand(replace(self._expect_standing(), version=version.number))

    def replace_all(self, version: Version) -> None:
        """Have every worker run a version whose inputs are others: no pod of the old one may be left beside one of the new.

        Raises:
            UpdateFailed: one did not come up; all of them run again what they ran before.
        """
        old = self._records.version(self._expect_standing().version)
        self._say(
            f"{version.label}: stopping all workers, since its inputs are others, and starting them as the new version …"
        )
        self._kubectl(old, "delete", "statefulset", object_name(old), "--ignore-not-found", "--wait")
        self.update(version)

    def resize(self, workers: int) -> None:
        """Have at least so many workers."""
        standing = self._expect_standing()
        version = self._records.version(standing.version)
        self._records.stand(replace(standing, workers=(standing.version,) * workers))
        self._send([scaled_object(version, workers)], version)

    def revive(self) -> None:
        """Apply what counts once more."""
        standing = self._expect_standing()
        version = self._records.version(standing.version)
        self._send(self._manifests(version, len(standing.workers)), version)

    def take_down(self) -> None:
        """Remove it from the cluster; the volumes with the states stay."""
        standing = self._expect_standing()
        self._delete(self._records.version(standing.version))
        self._records.stand(replace(standing, workers=()))

    def _apply(self, version: Version, workers: int) -> None:
        self._send(self._manifests(version, workers), version)
        self._say(f"{version.label}: waiting for the cluster to replace its workers, one by one …")
        name = f"statefulset/{object_name(version)}"
        limit_s = self._limit_s * workers
        try:
            self._kubectl(version, "rollout", "status", name, f"--timeout={limit_s:.0f}s", limit_s=limit_s)
        except SupervisorUnavailable as error:
            raise WorkerFailed(
                f"{version.label} did not come up on the cluster: {error} `kubectl logs {name}` shows what it said."
            ) from error

    def _delete(self, version: Version) -> None:
        instance = f"app.kubernetes.io/instance={object_name(version)}"
        self._kubectl(version, "delete", KINDS, "--selector", instance, "--wait", "--ignore-not-found")

    def _manifests(self, version: Version, workers: int) -> list[Manifest]:
        return manifests_of(version, self._code(version), workers)

    def _send(self, manifests: Sequence[Manifest], version: Version) -> None:
        self._kubectl(version, "apply", "--filename", "-", stdin=manifest_list(manifests))

    def _code(self, version: Version) -> Contents:
        folder = self._records.code(version.number)
        files = (path for path in folder.rglob("*") if path.is_file())
        return Contents({path.relative_to(folder).as_posix(): path for path in files})

    @staticmethod
    def _kubectl(version: Version, *arguments: str, stdin: str = "", limit_s: float = 0.0) -> None:
        if shutil.which("kubectl") is None:
            raise SupervisorUnavailable(
                "There is no kubectl on this machine, so nothing was sent to a cluster. Print the manifests with --dry-run, and apply them "
                "where it is; or install it and deploy again."
            )
        namespace = pod_settings(version.settings).namespace
        command = ["kubectl", *([] if namespace is None else ["--namespace", namespace]), *arguments]
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, check=False, timeout=ANSWER_LIMIT_S + limit_s
            )
        except subprocess.TimeoutExpired as error:
            raise SupervisorUnavailable(
                f"`{' '.join(command)}` gave no answer within {error.timeout:.0f} s."
            ) from error
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).rstrip(".")
            raise SupervisorUnavailable(
                f"`{' '.join(command)}` failed: {said}. Look whether the cluster answers, and repeat the command."
            )

    def _expect_standing(self) -> DesiredState:
        standing = self._records.standing()
        if standing is None:
            raise AssertionError(f"{self._records.name} is not deployed")
        return standing


def manifest_list(manifests: Sequence[Manifest]) -> str:
    """Return manifests as one file that kubectl applies."""
    whole = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def expect_reachable(version: Version) -> None:
    """Refuse what a cluster cannot reach.

    Raises:
        DeployError: backups are to go to a folder of this machine.
    """
    backup = version.settings.backup
    if backup is not None and "://" not in backup:
        raise DeployError(
            f"{backup} is a folder of this machine, where the cluster's workers cannot back their states up. Nothing was changed. Name a place "
            "that they reach: --backup hdfs://HOST:PORT/PATH."
        )
