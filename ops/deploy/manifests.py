"""What a cluster is told of a deployment: a StatefulSet with a volume for each worker's states, and what belongs to it.

    ConfigMap            the code of one version, packed; its name has the digest, so versions lie side by side
    Service              headless: gives the workers their names
    StatefulSet          the workers: code unpacked into each, states on a volume of its own, probes
    PodDisruptionBudget  one worker at a time may be taken away
    ScaledObject         KEDA: more workers when the group falls behind, up to one for each bucket

No secret is in it: Secrets are named, and whoever deploys makes them.

Source: Kubernetes API reference 1.30 (apps/v1, policy/v1); KEDA 2.15, "Scaled object specification" and "Apache Kafka" scaler.
"""

from __future__ import annotations

import re
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...processors.declare.app_files import Contents
from ..worker.app_processes import STOP_LIMIT_S
from ..worker.health import DEPLOYMENT_VARIABLE
from .errors import DeployError
from .version import DeploymentSettings, PodSettings, Version
from .worker_command import run_arguments

Manifest = dict[str, Any]

CODE_LIMIT_BYTES = 700_000
"""How large packed code may be: a ConfigMap holds a mebibyte, and this grows by a third on its way there."""
NAME_LIMIT = 52
"""How long a StatefulSet's name may be: pods add to it, and labels end at 63."""
LAG_FOR_EACH = 10_000
"""How many events a worker may have before it before another is started, where there is a bucket for it."""
HEALTH_PORT = 8080
USER = 1000

_CODE, _DATA, _PACKED, _CONFIG = "/penstock/app", "/penstock/data", "/penstock/packed", "/penstock/config"
_FILE = "penstock.toml"


def manifests_of(version: Version, code: Contents, workers: int) -> list[Manifest]:
    """Return all that a cluster is told, in the order in which it is to be applied.

    Args:
        version: which.
        code: its files.
        workers: the least number of workers.

    Raises:
        DeployError: the code is too large, or the name is none for a cluster.
    """
    return [
        _code_map(version, code),
        _service(version),
        _stateful_set(version),
        _disruption_budget(version),
        scaled_object(version, workers),
    ]


def object_name(version: Version) -> str:
    """Return what a deployment's objects are called.

    Raises:
        DeployError: nothing that a cluster takes can be made of the processor's name.
    """
    name = "penstock-" + re.sub(r"[^a-z0-9]+", "-", version.name.lower()).strip("-")
    if len(name) > NAME_LIMIT:
        raise DeployError(
            f"{version.name} is too long a name for a cluster, which takes {NAME_LIMIT - len('penstock-')} characters. Nothing was "
            "changed. Give the processor a shorter `name`."
        )
    return name


def secret_name(version: Version) -> str:
    """Return what the Secret is called that holds the values of a deployment's variables."""
    return f"{object_name(version)}-env"


def prerequisites(version: Version) -> list[str]:
    """Return what makes the Secrets that a deployment names, and the like: a command each, or words."""
    commands = []
    if version.settings.variables:
        values = " ".join(f'--from-literal={name}="${name}"' for name in version.settings.variables)
        commands.append(f"kubectl create secret generic {secret_name(version)} {values}")
    if version.settings.config is not None:
        file = f"--from-file={_FILE}={version.settings.config}"
        commands.append(f"kubectl create secret generic {_config_secret(version)} {file}")
    if version.settings.secured:
        commands.append(f"and a TriggerAuthentication {_config_secret(version)}, with which KEDA asks that cluster")
    return commands


def scaled_object(version: Version, workers: int) -> Manifest:
    """Return what has KEDA change the number of workers by how far the group is behind, from so many up to one for each bucket."""
    secured = version.settings.secured
    triggers = [
        {
            "type": "kafka",
            **({"authenticationRef": {"name": _config_secret(version)}} if secured else {}),
            "metadata": {
                "bootstrapServers": version.settings.kafka,
                "consumerGroup": version.name,
                "topic": category,
                "lagThreshold": str(LAG_FOR_EACH),
                "offsetResetPolicy": "earliest",
            },
        }
        for category in sorted(version.shape.inputs)
    ]
    # A worker that leaves has its buckets wait and move: not for every lull.
    calm = {"scaleDown": {"stabilizationWindowSeconds": 600}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": object_name(version)},
        "minReplicaCount": workers,
        "maxReplicaCount": max(workers, version.shape.buckets),
        "pollingInterval": 30,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": calm}},
        "triggers": triggers,
    }
    return _object("keda.sh/v1alpha1", "ScaledObject", version, object_name(version), spec=spec)


def _code_map(version: Version, code: Contents) -> Manifest:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "app.zip")
        code.pack(archive)
        packed = archive.read_bytes()
    if len(packed) > CODE_LIMIT_BYTES:
        raise DeployError(
            f"The code of {version.app} is {len(packed):,} bytes when packed, and a cluster's ConfigMap takes {CODE_LIMIT_BYTES:,}. Nothing "
            "was changed. Move what is no code out of its folder, or install large packages in the image."
        )
    return _object(
        "v1",
        "ConfigMap",
        version,
        _code_name(version),
        immutable=True,
        binaryData={"app.zip": b64encode(packed).decode()},
    )


def _service(version: Version) -> Manifest:
    ports = [{"name": "health", "port": HEALTH_PORT}]
    spec = {"clusterIP": "None", "selector": _selector(version), "ports": ports, "publishNotReadyAddresses": True}
    return _object("v1", "Service", version, object_name(version), spec=spec)


def _disruption_budget(version: Version) -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _selector(version)}}
    return _object("policy/v1", "PodDisruptionBudget", version, object_name(version), spec=spec)


def _stateful_set(version: Version) -> Manifest:
    pods = pod_settings(version.settings)
    claim = {
        "metadata": {"name": "data", "labels": _selector(version)},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": pods.disk}}},
    }
    # No number of replicas: that is KEDA's, and to apply one again would take back what it did.
    spec = {
        "serviceName": object_name(version),
        "selector": {"matchLabels": _selector(version)},
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "SupervisedRollout"},
        "minReadySeconds": 10,
        "template": {"metadata": {"labels": _labels(version)}, "spec": _pod(version, pods)},
        "volumeClaimTemplates": [claim],
    }
    return _object("apps/v1", "StatefulSet", version, object_name(version), spec=spec)


def _pod(version: Version, pods: PodSettings) -> Manifest:
    volumes: list[Manifest] = [
        {"name": "packed", "configMap": {"name": _code_name(version)}},
        {"name": "app", "emptyDir": {}},
    ]
    if version.settings.config is not None:
        volumes.append({"name": "config", "secret": {"secretName": _config_secret(version)}})
    return {
        "terminationGracePeriodSeconds": round(STOP_LIMIT_S) + 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_unpacking(pods)],
        "containers": [_worker(version, pods)],
        "volumes": volumes,
    }


def _unpacking(pods: PodSettings) -> Manifest:
    return {
        "name": "code",
        "image": pods.image,
        "command": ["python", "-m", "zipfile", "-e", f"{_PACKED}/app.zip", _CODE],
        "volumeMounts": [_mount("packed", _PACKED, read_only=True), _mount("app", _CODE)],
        "resources": _resources(pods),
        "securityContext": _UNPRIVILEGED,
    }


def _worker(version: Version, pods: PodSettings) -> Manifest:
    mounts = [_mount("app", _CODE, read_only=True), _mount("data", _DATA)]
    if version.settings.config is not None:
        mounts.append(_mount("config", _CONFIG, read_only=True))
    return {
        "name": "worker",
        "image": pods.image,
        # A pod that is replaced comes back under its name: its buckets wait for it.
        "command": ["penstock", *run_arguments(_inside(version), _CODE, f"0.0.0.0:{HEALTH_PORT}"), "--keep-place"],
        "workingDir": _CODE,
        "env": [{"name": DEPLOYMENT_VARIABLE, "value": version.label}, *_secret_values(version)],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "startupProbe": {**_probe("/health"), "periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": {**_probe("/health"), "periodSeconds": 20, "failureThreshold": 3},
        "readinessProbe": {**_probe("/ready"), "periodSeconds": 5, "failureThreshold": 2},
        "resources": _resources(pods),
        "securityContext": _UNPRIVILEGED,
        "volumeMounts": mounts,
    }


def _inside(version: Version) -> Version:
    """Return a version with the places that its files have in a pod."""
    settings = version.settings
    inside = None if settings.config is None else f"{_CONFIG}/{_FILE}"
    return replace(version, settings=replace(settings, folder=_DATA, config=inside))


def _secret_values(version: Version) -> list[Manifest]:
    name = secret_name(version)
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": variable}}}
        for variable in version.settings.variables
    ]


_UNPRIVILEGED: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _resources(pods: PodSettings) -> Manifest:
    return {"requests": {"cpu": pods.cpu, "memory": pods.memory}, "limits": {"memory": pods.memory}}


def _probe(path: str) -> Manifest:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5}


def _mount(name: str, path: str, *, read_only: bool = False) -> Manifest:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _object(api: str, kind: str, version: Version, name: str, **rest: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": _labels(version)}, **rest}


def _labels(version: Version) -> dict[str, str]:
    return {**_selector(version), "app.kubernetes.io/version": str(version.number)}


def _selector(version: Version) -> dict[str, str]:
    return {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": object_name(version)}


def _code_name(version: Version) -> str:
    return f"{object_name(version)}-code-{version.digest}"


def _config_secret(version: Version) -> str:
    return f"{object_name(version)}-config"


def pod_settings(settings: DeploymentSettings) -> PodSettings:
    """Return what a deployment's workers run in on a cluster."""
    if settings.pods is None:
        raise DeployError(
            "A cluster needs an image to run workers in. Nothing was changed. Name one with --image: it has Python, Penstock, and what the "
            "app imports beside its own files."
        )
    return settings.pods
