"""Kubernetes manifests of a deployment: of the workers of a processor, or of a server.

    ConfigMap            the code of one version as a ZIP file; its name contains the digest, so versions coexist
    Service              headless, for the names of the workers; of a server, its address, and one for any of its replicas that is ready
    StatefulSet          the workers, or the one process of a server, with the unpacked code, a volume for state, and probes
    PodDisruptionBudget  at most one worker, or replica of a server, is unavailable at a time
    NetworkPolicy        other pods reach the health port only, and the ports of a server
    ScaledObject         KEDA starts more workers when the group's lag grows, up to one per bucket

The objects for all replicas of a server together are the same in the manifests of each, so that each can be applied alone.

The manifests contain no secrets. They refer to Secrets, which the user creates.

Source: Kubernetes API reference 1.30 (apps/v1, policy/v1); KEDA 2.15, "Scaled object specification" and "Apache Kafka" scaler.
"""

from __future__ import annotations

import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

from ....processors.apps import Contents
from ...kernel import DEPLOYMENT_VARIABLE
from ..errors import DeployError
from ..version import DeployedServer, PodSettings, Version
from ..worker_command import run_arguments
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
    replicas_name,
    secret_values,
    shared_name,
    version_in_pod,
)

CODE_LIMIT_BYTES = 700_000
"""The largest size of packed code: a ConfigMap is limited to 1 MiB, and base64 adds a third."""
LAG_PER_WORKER = 10_000
"""The lag in events per worker above which KEDA starts another worker."""
HEALTH_PORT = 8080
_NAME = "app.kubernetes.io/name"


def manifests_of(version: Version, code: Contents, workers: int) -> list[Manifest]:
    """Return the manifests of a deployment, in the order in which they must be applied.

    Args:
        version: the version to run.
        code: the files of its code.
        workers: the minimum number of workers.

    Raises:
        DeployError: the code is too large, or the name is too long.
    """
    server = version.server
    return [
        *([_code_map(version, code)] if version.reads_app else []),
        _headless_service(version) if server is None else _server_service(version, server),
        *([_replicas_service(version, server)] if server is not None and version.replica_of else []),
        _stateful_set(version),
        _disruption_budget(version),
        _network_policy(version),
        *([scaled_object(version, workers)] if server is None else []),
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


def _headless_service(version: Version) -> Manifest:
    ports = [{"name": "health", "port": HEALTH_PORT}]
    spec = {"clusterIP": "None", "selector": _selector(version), "ports": ports, "publishNotReadyAddresses": True}
    return _object("v1", "Service", version, object_name(version.name), spec=spec)


def _server_service(version: Version, server: DeployedServer) -> Manifest:
    ports = [{"name": "health", "port": HEALTH_PORT}, *_service_ports(server)]
    spec = {"selector": _selector(version), "ports": ports}
    return _object("v1", "Service", version, object_name(version.name), spec=spec)


def _replicas_service(version: Version, server: DeployedServer) -> Manifest:
    spec = {"selector": _replicas_selector(version), "ports": _service_ports(server)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _replicas_metadata(server.replica_of), "spec": spec}


def _service_ports(server: DeployedServer) -> list[Manifest]:
    return [{"name": scheme, "port": port, "targetPort": scheme} for scheme, port in server.ports.items()]


def _disruption_budget(version: Version) -> Manifest:
    # One for all replicas: a pod with two cannot be evicted.
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _replicas_selector(version)}}
    if not version.replica_of:
        return _object("policy/v1", "PodDisruptionBudget", version, object_name(version.name), spec=spec)
    metadata = _replicas_metadata(version.replica_of)
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def _network_policy(version: Version) -> Manifest:
    # Where a worker connects to (Kafka, stores, the backup) depends on the app, so it is not restricted.
    ports = [{"protocol": "TCP", "port": port} for port in _ports(version).values()]
    spec = {
        "podSelector": {"matchLabels": _selector(version)},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": ports}],
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", version, object_name(version.name), spec=spec)


def _ports(version: Version) -> dict[str, int]:
    """Return the ports of a pod by name."""
    return {"health": HEALTH_PORT, **({} if version.server is None else version.server.ports)}


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
    spec = {
        # Not those of workers: KEDA sets them, and applying the manifest again would reset them.
        **({} if version.server is None else {"replicas": 1}),
        "serviceName": object_name(version.name),
        "selector": {"matchLabels": _selector(version)},
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "minReadySeconds": 10,
        "template": {
            "metadata": {"labels": _labels(version)},
            "spec": pod_spec(version, _worker_container(version, pods), _replicas_selector(version)),
        },
        "volumeClaimTemplates": [claim],
    }
    return _object("apps/v1", "StatefulSet", version, object_name(version.name), spec=spec)


def _worker_container(version: Version, pods: PodSettings) -> Manifest:
    arguments = run_arguments(version_in_pod(version), CODE, f"0.0.0.0:{HEALTH_PORT}")
    arguments += ["--keep-place"] * (version.server is None)  # a replaced pod keeps its name
    container = container_of(version, pods, "worker", arguments)
    container["volumeMounts"].insert(1, mount("data", DATA))
    return {
        **container,
        "env": [{"name": DEPLOYMENT_VARIABLE, "value": version.label}, *secret_values([version])],
        "ports": [{"name": name, "containerPort": port} for name, port in _ports(version).items()],
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
    return {**_replicas_selector(version), **_selector(version), "app.kubernetes.io/version": str(version.number)}


def _selector(version: Version) -> dict[str, str]:
    return _instance(object_name(version.name))


def _replicas_selector(version: Version) -> dict[str, str]:
    """Return the labels of the pods of a server and all its replicas; of a deployment without replicas, its own."""
    if not version.replica_of:
        return _selector(version)
    return {_NAME: "penstock", "app.kubernetes.io/part-of": shared_name(version)}


def _replicas_metadata(replica_of: str) -> Manifest:
    name = replicas_name(replica_of)
    return {"name": name, "labels": _instance(name)}


def _instance(name: str) -> dict[str, str]:
    return {_NAME: "penstock", "app.kubernetes.io/instance": name}
