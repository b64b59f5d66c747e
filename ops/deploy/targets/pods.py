"""Pods with the code of a version: their containers, volumes and rights, and the Secrets that they read.

The code is in a ConfigMap, as a ZIP file. A first container unpacks it, and the next one runs `penstock` in its folder. Replicas of a server
share their Secrets.

Source: Kubernetes API reference 1.30 (core/v1).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ...kernel import STOP_LIMIT_S
from ..errors import DeployError
from ..version import DeploymentSettings, PodSettings, Version

Manifest = dict[str, Any]

NAME_LIMIT = 52
"""The longest name of a StatefulSet: labels are limited to 63 characters, and pods append a suffix."""
USER = 1000
GRACE_S = round(STOP_LIMIT_S) + 30
"""How long a pod may take to end, in seconds: for its last checkpoint and what surrounds it."""
CODE, DATA = "/penstock/app", "/penstock/data"
"""The folders of the code and of the state in a pod."""
_PACKED, _CONFIG, _TLS = "/penstock/packed", "/penstock/config", "/penstock/tls"
_READ_ONLY = {"app": CODE, "config": _CONFIG, "tls": _TLS}
"""The paths of volumes that a pod only reads."""
_TMP = "/tmp"  # noqa: S108 - of the pod
_FILE = "penstock.toml"
_UNPRIVILEGED: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def object_name(deployment: str) -> str:
    """Return the name of a deployment's objects.

    Raises:
        DeployError: the deployment's name is too long.
    """
    name = "penstock-" + re.sub(r"[^a-z0-9]+", "-", deployment.lower()).strip("-")
    if len(name) > NAME_LIMIT:
        raise DeployError(
            f"The name {deployment} is too long for Kubernetes, which allows {NAME_LIMIT - len('penstock-')} characters. Nothing was "
            "changed. Give the processor, table or category a shorter name."
        )
    return name


def kubectl(settings: DeploymentSettings, *words: str) -> list[str]:
    """Return the words of a kubectl command in the namespace of a deployment.

    Raises:
        DeployError: the deployment has no image.
    """
    namespace = pod_settings(settings).namespace
    return ["kubectl", *([] if namespace is None else ["--namespace", namespace]), *words]


def shared_name(version: Version) -> str:
    """Return the name of the objects that a server shares with its replicas; without any, the name of its own objects."""
    return object_name(version.replica_of or version.name)


def replicas_name(deployment: str) -> str:
    """Return the name of the objects for all replicas of a server together. No server has it: their names end with a number."""
    return f"{object_name(deployment)}-any"


def service_hosts(deployment: str, replica_of: str, namespace: str | None) -> list[str]:
    """Return the host names under which a server's clients reach it in the cluster, and any of its replicas that is ready.

    Args:
        deployment: the name of its deployment.
        replica_of: the name that it shares with its replicas; empty without any.
        namespace: its namespace; None for the one of its clients.
    """
    services = [object_name(deployment), *([replicas_name(replica_of)] if replica_of else [])]
    return [name if namespace is None else f"{name}.{namespace}.svc" for name in services]


def secret_name(version: Version) -> str:
    """Return the name of the Secret with the values of a deployment's environment variables."""
    return f"{shared_name(version)}-env"


def config_secret(version: Version) -> str:
    """Return the name of the Secret with the configuration of a deployment."""
    return f"{shared_name(version)}-config"


def prerequisites(version: Version) -> list[str]:
    """Return the commands that create the Secrets of a deployment, and a description of other required objects."""
    commands, settings, server = [], version.settings, version.server
    create = " ".join(kubectl(settings, "create", "secret"))
    if settings.variables:
        values = " ".join(f'--from-literal={name}="${name}"' for name in settings.variables)
        commands.append(f"{create} generic {secret_name(version)} {values}")
    if settings.config is not None:
        file = shlex.quote(f"--from-file={_FILE}={settings.config}")
        commands.append(f"{create} generic {config_secret(version)} {file}")
    if server is not None and server.certificate is not None:
        certificate, key = map(shlex.quote, server.certificate)
        commands.append(f"{create} tls {_tls_secret(version)} --cert={certificate} --key={key}")
    if settings.secured and server is None:
        commands.append(f"a TriggerAuthentication {config_secret(version)}, with which KEDA reads the lag from Kafka")
    return commands


def pod_spec(version: Version, container: Manifest, selector: Manifest) -> Manifest:
    """Return the specification of a pod with the code of a version, unpacked, and without rights.

    Args:
        version: the version.
        container: the container of the pod.
        selector: the labels of the pods, which are spread over the nodes.
    """
    return {
        "terminationGracePeriodSeconds": GRACE_S,
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
        "initContainers": [_unpack_container(pod_settings(version.settings))] if version.reads_app else [],
        "containers": [container],
        "volumes": list(_volumes(version)),
    }


def _volumes(version: Version) -> Iterator[Manifest]:
    if version.reads_app:
        yield {"name": "packed", "configMap": {"name": code_name(version)}}
        yield {"name": "app", "emptyDir": {}}
    yield {"name": "tmp", "emptyDir": {}}
    if version.settings.config is not None:
        yield {"name": "config", "secret": {"secretName": config_secret(version)}}
    if version.server is not None and version.server.certificate is not None:
        yield {"name": "tls", "secret": {"secretName": _tls_secret(version)}}


def _unpack_container(pods: PodSettings) -> Manifest:
    return {
        "name": "code",
        "image": pods.image,
        "command": ["python", "-m", "zipfile", "-e", f"{_PACKED}/app.zip", CODE],
        "volumeMounts": [mount("packed", _PACKED, read_only=True), mount("app", CODE)],
        "resources": _resources(pods),
        "securityContext": _UNPRIVILEGED,
    }


def container_of(version: Version, pods: PodSettings, name: str, arguments: list[str]) -> Manifest:
    """Return a container that runs a command of `penstock` in the folder of the code, with a read-only file system except for /tmp."""
    volumes = [volume["name"] for volume in _volumes(version)]
    mounts = [mount(name, path, read_only=True) for name, path in _READ_ONLY.items() if name in volumes]
    return {
        "name": name,
        "image": pods.image,
        "command": ["penstock", *arguments],
        "workingDir": CODE if version.reads_app else _TMP,
        "resources": _resources(pods),
        "securityContext": _UNPRIVILEGED,
        "volumeMounts": [mount("tmp", _TMP), *mounts],
    }


def version_in_pod(version: Version) -> Version:
    """Return a version with the paths of its files in a pod."""
    config = None if version.settings.config is None else f"{_CONFIG}/{_FILE}"
    return version.moved(DATA, config, (f"{_TLS}/tls.crt", f"{_TLS}/tls.key"))


def secret_values(versions: Sequence[Version]) -> list[Manifest]:
    """Return the environment variables of several versions, each with the Secret of the first version that has it."""
    secrets = {name: secret_name(version) for version in reversed(versions) for name in version.settings.variables}
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secrets[name], "key": name}}} for name in sorted(secrets)
    ]


def _resources(pods: PodSettings) -> Manifest:
    return {"requests": {"cpu": pods.cpu, "memory": pods.memory}, "limits": {"memory": pods.memory}}


def mount(name: str, path: str, *, read_only: bool = False) -> Manifest:
    """Return the mount of a volume at a path."""
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def code_name(version: Version) -> str:
    """Return the name of the ConfigMap with the code of a version."""
    return f"{object_name(version.name)}-code-{version.digest}"


def _tls_secret(version: Version) -> str:
    return f"{shared_name(version)}-tls"


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
