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

import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

from ...processors.apps.app_files import Contents
from ..worker.health import DEPLOYMENT_VARIABLE
from .errors import DeployError
from .pods import (
    CODE,
    DATA,
    Manifest,
    code_name,
    config_secret,
    container_of,
    mount,
    object_name,
    pod_settings,
    pod_spec,
    secret_values,
    version_in_pod,
)
from .version import PodSettings, Version
from .worker_command import run_arguments

CODE_LIMIT_BYTES = 700_000
"""The largest size of packed code: a ConfigMap is limited to 1 MiB, and base64 adds a third."""
LAG_PER_WORKER = 10_000
"""The lag in events per worker above which KEDA starts another worker."""
HEALTH_PORT = 8080


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


def scaled_object(version: Version, workers: int) -> Manifest:
    """Return the object with which KEDA scales by the group's lag, from a minimum number of workers to one per bucket."""
    secured = version.settings.secured
    triggers = [
        {
            "type": "kafka",
            **({"authenticationRef": {"name": config_secret(version)}} if secured else {}),
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
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": object_name(version.name)},
        "minReplicaCount": workers,
        "maxReplicaCount": max(workers, version.shape.buckets),
        "pollingInterval": 30,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
        "triggers": triggers,
    }
    return _object("keda.sh/v1alpha1", "ScaledObject", version, object_name(version.name), spec=spec)


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
        code_name(version),
        immutable=True,
        binaryData={"app.zip": b64encode(packed).decode()},
    )


def _service(version: Version) -> Manifest:
    ports = [{"name": "health", "port": HEALTH_PORT}]
    spec = {"clusterIP": "None", "selector": _selector(version), "ports": ports, "publishNotReadyAddresses": True}
    return _object("v1", "Service", version, object_name(version.name), spec=spec)


def _disruption_budget(version: Version) -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _selector(version)}}
    return _object("policy/v1", "PodDisruptionBudget", version, object_name(version.name), spec=spec)


def _network_policy(version: Version) -> Manifest:
    # Where a worker connects to (Kafka, stores, the backup) depends on the app, so it is not restricted.
    ingress = [{"ports": [{"protocol": "TCP", "port": HEALTH_PORT}]}]
    spec = {"podSelector": {"matchLabels": _selector(version)}, "policyTypes": ["Ingress"], "ingress": ingress}
    return _object("networking.k8s.io/v1", "NetworkPolicy", version, object_name(version.name), spec=spec)


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
        "serviceName": object_name(version.name),
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
    return _object("apps/v1", "StatefulSet", version, object_name(version.name), spec=spec)


def _worker_container(version: Version, pods: PodSettings) -> Manifest:
    arguments = run_arguments(version_in_pod(version), CODE, f"0.0.0.0:{HEALTH_PORT}")
    container = container_of(version, pods, "worker", [*arguments, "--keep-place"])  # a replaced pod keeps its name
    container["volumeMounts"].insert(1, mount("data", DATA))
    return {
        **container,
        "env": [{"name": DEPLOYMENT_VARIABLE, "value": version.label}, *secret_values([version])],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        # A worker without a broker lives, and is not ready: a restart would not help it.
        "startupProbe": {**_probe("/live"), "periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": {**_probe("/live"), "periodSeconds": 20, "failureThreshold": 3},
        "readinessProbe": {**_probe("/ready"), "periodSeconds": 5, "failureThreshold": 2},
    }


def _probe(path: str) -> Manifest:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5}


def _object(api: str, kind: str, version: Version, name: str, **rest: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": _labels(version)}, **rest}


def _labels(version: Version) -> dict[str, str]:
    return {**_selector(version), "app.kubernetes.io/version": str(version.number)}


def _selector(version: Version) -> dict[str, str]:
    return {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": object_name(version.name)}
