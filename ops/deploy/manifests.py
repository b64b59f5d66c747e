"""Kubernetes manifests of a deployment.

    ConfigMap            the code of one version as a ZIP file; its name contains the digest, so versions coexist
    Service              headless, for the names of the workers
    StatefulSet          the workers, with the unpacked code, a volume for state, and probes
    PodDisruptionBudget  at most one worker is unavailable at a time
    NetworkPolicy        other pods reach the health port only
    ScaledObject         KEDA starts more workers when the group's lag grows, up to one per bucket

The manifests contain no secrets. They refer to Secrets, which the user creates.

Source: Kubernetes API reference 1.30 (apps/v1, policy/v1); KEDA 2.15, "Scaled object specification" and "Apache Kafka" scaler.
"""

from __future__ import annotations

import re
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...processors.apps.app_files import Contents
from ..worker.app_processes import STOP_LIMIT_S
from ..worker.health import DEPLOYMENT_VARIABLE
from .errors import DeployError
from .version import DeploymentSettings, PodSettings, Version
from .worker_command import run_arguments

Manifest = dict[str, Any]

CODE_LIMIT_BYTES = 700_000
"""The largest size of packed code: a ConfigMap is limited to 1 MiB, and base64 adds a third."""
NAME_LIMIT = 52
"""The longest name of a StatefulSet: labels are limited to 63 characters, and pods append a suffix."""
LAG_PER_WORKER = 10_000
"""The lag in events per worker above which KEDA starts another worker."""
HEALTH_PORT = 8080
USER = 1000

CODE = "/penstock/app"
"""The folder of the code in a pod."""
_DATA, _PACKED, _CONFIG = "/penstock/data", "/penstock/packed", "/penstock/config"
_FILE = "penstock.toml"


def manifests_of(version: Version, code: Contents, workers: int) -> list[Manifest]:
    """Return the manifests of a deployment, in the order in which they must be applied.

    Args:
        version: the version to run.
        code: the files of its code.
        workers: the minimum number of workers.

    Raises:
        DeployError: the code is too large, or the name is too long.
    """
    return [
        _code_map(version, code),
        _service(version),
        _stateful_set(version),
        _disruption_budget(version),
        _network_policy(version),
        scaled_object(version, workers),
    ]


def object_name(version: Version) -> str:
    """Return the name of a deployment's objects.

    Raises:
        DeployError: the processor's name is too long.
    """
    name = "penstock-" + re.sub(r"[^a-z0-9]+", "-", version.name.lower()).strip("-")
    if len(name) > NAME_LIMIT:
        raise DeployError(
            f"The name {version.name} is too long for Kubernetes, which allows {NAME_LIMIT - len('penstock-')} characters. Nothing was "
            "changed. Give the processor a shorter `name`."
        )
    return name


def secret_name(version: Version) -> str:
    """Return the name of the Secret with the values of a deployment's environment variables."""
    return f"{object_name(version)}-env"


def prerequisites(version: Version) -> list[str]:
    """Return the commands that create the Secrets of a deployment, and a description of other required objects."""
    commands = []
    if version.settings.variables:
        values = " ".join(f'--from-literal={name}="${name}"' for name in version.settings.variables)
        commands.append(f"kubectl create secret generic {secret_name(version)} {values}")
    if version.settings.config is not None:
        file = f"--from-file={_FILE}={version.settings.config}"
        commands.append(f"kubectl create secret generic {_config_secret(version)} {file}")
    if version.settings.secured:
        commands.append(f"a TriggerAuthentication {_config_secret(version)}, with which KEDA reads the lag from Kafka")
    return commands


def scaled_object(version: Version, workers: int) -> Manifest:
    """Return the object with which KEDA scales by the group's lag, from a minimum number of workers to one per bucket."""
    secured = version.settings.secured
    triggers = [
        {
            "type": "kafka",
            **({"authenticationRef": {"name": _config_secret(version)}} if secured else {}),
            "metadata": {
                "bootstrapServers": version.settings.kafka,
                "consumerGroup": version.name,
                "topic": category,
                "lagThreshold": str(LAG_PER_WORKER),
                "offsetResetPolicy": "earliest",
            },
        }
        for category in sorted(version.shape.inputs)
    ]
    # Removing a worker pauses and moves its buckets, so a short lull must not cause it.
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 600}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": object_name(version)},
        "minReplicaCount": workers,
        "maxReplicaCount": max(workers, version.shape.buckets),
        "pollingInterval": 30,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
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
            f"The packed code of {version.app} has {len(packed):,} bytes, and a ConfigMap is limited to {CODE_LIMIT_BYTES:,}. Nothing was "
            "changed. Move other files out of its folder, or install large packages in the image."
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


def _network_policy(version: Version) -> Manifest:
    # Where a worker connects to (Kafka, stores, the backup) depends on the app, so it is not restricted.
    ingress = [{"ports": [{"protocol": "TCP", "port": HEALTH_PORT}]}]
    spec = {"podSelector": {"matchLabels": _selector(version)}, "policyTypes": ["Ingress"], "ingress": ingress}
    return _object("networking.k8s.io/v1", "NetworkPolicy", version, object_name(version), spec=spec)


def _stateful_set(version: Version) -> Manifest:
    pods = pod_settings(version.settings)
    claim = {
        "metadata": {"name": "data", "labels": _selector(version)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            **({} if pods.storage_class is None else {"storageClassName": pods.storage_class}),
            "resources": {"requests": {"storage": pods.disk}},
        },
    }
    # Without `replicas`, because KEDA sets them, and applying the manifest again would reset them.
    spec = {
        "serviceName": object_name(version),
        "selector": {"matchLabels": _selector(version)},
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "minReadySeconds": 10,
        "template": {
            "metadata": {"labels": _labels(version)},
            "spec": pod_spec(version, _worker_container(version, pods), _selector(version)),
        },
        "volumeClaimTemplates": [claim],
    }
    return _object("apps/v1", "StatefulSet", version, object_name(version), spec=spec)


def pod_spec(version: Version, container: Manifest, selector: Manifest) -> Manifest:
    """Return the specification of a pod with the code of a version, unpacked, and without rights.

    Args:
        version: the version.
        container: the container of the pod.
        selector: the labels of the pods, which are spread over the nodes.
    """
    pods = pod_settings(version.settings)
    volumes: list[Manifest] = [
        {"name": "packed", "configMap": {"name": _code_name(version)}},
        {"name": "app", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if version.settings.config is not None:
        volumes.append({"name": "config", "secret": {"secretName": _config_secret(version)}})
    return {
        "terminationGracePeriodSeconds": round(STOP_LIMIT_S) + 30,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # A lost node takes as few workers along as possible.
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector},
            }
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_unpack_container(pods)],
        "containers": [container],
        "volumes": volumes,
    }


def _unpack_container(pods: PodSettings) -> Manifest:
    return {
        "name": "code",
        "image": pods.image,
        "command": ["python", "-m", "zipfile", "-e", f"{_PACKED}/app.zip", CODE],
        "volumeMounts": [_mount("packed", _PACKED, read_only=True), _mount("app", CODE)],
        "resources": _resources(pods),
        "securityContext": _UNPRIVILEGED,
    }


def _worker_container(version: Version, pods: PodSettings) -> Manifest:
    arguments = run_arguments(version_in_pod(version), CODE, f"0.0.0.0:{HEALTH_PORT}")
    container = container_of(version, pods, "worker", [*arguments, "--keep-place"])  # a replaced pod keeps its name
    container["volumeMounts"].insert(1, _mount("data", _DATA))
    return {
        **container,
        "env": [{"name": DEPLOYMENT_VARIABLE, "value": version.label}, *secret_values([version])],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        # A worker without a broker lives, and is not ready: a restart would not help it.
        "startupProbe": {**_probe("/live"), "periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": {**_probe("/live"), "periodSeconds": 20, "failureThreshold": 3},
        "readinessProbe": {**_probe("/ready"), "periodSeconds": 5, "failureThreshold": 2},
    }


def container_of(version: Version, pods: PodSettings, name: str, arguments: list[str]) -> Manifest:
    """Return a container that runs a command of `penstock` in the folder of the code, with a read-only file system except for /tmp."""
    mounts = [_mount("app", CODE, read_only=True), _mount("tmp", "/tmp")]  # noqa: S108 - of the pod
    if version.settings.config is not None:
        mounts.append(_mount("config", _CONFIG, read_only=True))
    return {
        "name": name,
        "image": pods.image,
        "command": ["penstock", *arguments],
        "workingDir": CODE,
        "resources": _resources(pods),
        "securityContext": _UNPRIVILEGED,
        "volumeMounts": mounts,
    }


def version_in_pod(version: Version) -> Version:
    """Return a version with the paths of its files in a pod."""
    settings = version.settings
    config = None if settings.config is None else f"{_CONFIG}/{_FILE}"
    return replace(version, settings=replace(settings, folder=_DATA, config=config))


def secret_values(versions: Sequence[Version]) -> list[Manifest]:
    """Return the environment variables of several versions, each with the Secret of the first version that has it."""
    secrets = {name: secret_name(version) for version in reversed(versions) for name in version.settings.variables}
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secrets[name], "key": name}}} for name in sorted(secrets)
    ]


_UNPRIVILEGED: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


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
    """Return the settings of a deployment's pods.

    Raises:
        DeployError: the deployment has no image.
    """
    if settings.pods is None:
        raise DeployError(
            "Kubernetes needs an image for the workers. Nothing was changed. Name an image with Python, Penstock and the app's dependencies "
            "with --image."
        )
    return settings.pods
