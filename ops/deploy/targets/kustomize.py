"""A kustomize base for an app: its workers, and what watches them.

    kustomization.yaml    the files below, and the namespace
    NAME.json             the manifests of one processor's workers
    alerts.json           two processes of `penstock alerts run`, of which one notifies
    metrics.json          `penstock serve metrics`, with a Service that Prometheus finds by its annotations
    dashboard.json        `penstock serve dashboard`, with a Service; its tokens come from a Secret

An environment is an overlay: it names the base and patches replicas, resources, images or storage classes.

Source: kustomize 5, "kustomization.yaml"; Kubernetes API reference 1.30 (apps/v1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....processors.apps import Contents
from ..errors import DeployError
from ..version import Version
from .kubernetes_rollout import manifest_list
from .manifests import manifests_of
from .pods import (
    CODE,
    Manifest,
    container_of,
    kubectl,
    object_name,
    pod_settings,
    pod_spec,
    secret_values,
    version_in_pod,
)

DASHBOARD_PORT = 8710
METRICS_PORT = 9464
ALERT_REPLICAS = 2
DASHBOARD_SECRET = "penstock-dashboard"  # noqa: S105 - a name
ALERTS_SECRET = "penstock-alerts"  # noqa: S105 - as above


class DeployedVersion(NamedTuple):
    """A processor of an app.

    Args:
        version: its version.
        code: the files of its code.
        workers: the minimum number of workers.
    """

    version: Version
    code: Contents
    workers: int


@dataclass(frozen=True)
class _App:
    """The versions of all processors of an app. Their services need the variables of each: the configuration and the app's modules read them."""

    versions: Sequence[Version]

    @property
    def version(self) -> Version:
        """A version with the code and the configuration of the whole app, as each has."""
        return self.versions[0]


def kustomize_base(processors: Sequence[DeployedVersion]) -> dict[str, str]:
    """Return the files of a base for the processors of an app, by name.

    Raises:
        DeployError: there is no processor, or the code is too large, or a name is too long.
    """
    if not processors:
        raise DeployError("The app has no processor, so there is nothing to write. Declare one.")
    files = {
        f"{object_name(version.name)}.json": manifest_list(manifests_of(version, code, workers))
        for version, code, workers in processors
    }
    app = _App([processor.version for processor in processors])
    files |= {
        "penstock-alerts.json": manifest_list(list(_alerts(app))),
        "penstock-metrics.json": manifest_list(list(_metrics(app))),
        "penstock-dashboard.json": manifest_list(list(_dashboard(app))),
    }
    return {"kustomization.yaml": _kustomization(sorted(files), pod_settings(app.version.settings).namespace), **files}


def base_prerequisites(version: Version) -> list[str]:
    """Return the commands that create the Secrets of the services of a version's app."""
    create = " ".join(kubectl(version.settings, "create", "secret", "generic"))
    return [
        f"{create} {DASHBOARD_SECRET} --from-literal=PENSTOCK_DASHBOARD_TOKEN=… --from-literal=PENSTOCK_DASHBOARD_VIEWER_TOKEN=…",
        f"{create} {ALERTS_SECRET} --from-literal=PENSTOCK_ALERTS_WEBHOOK=https://…",
    ]


def _kustomization(resources: list[str], namespace: str | None) -> str:
    head = [
        "# Written by `penstock deploy --dry-run --kustomize`; change it in an overlay.",
        "apiVersion: kustomize.config.k8s.io/v1beta1",
    ]
    place = [] if namespace is None else [f"namespace: {namespace}"]
    return "\n".join([*head, "kind: Kustomization", *place, "resources:", *(f"  - {name}" for name in resources), ""])


def _alerts(app: _App) -> Iterator[Manifest]:
    arguments = ["alerts", "run", str(app.version.app_in(CODE).whole)]
    container = _container(app, "alerts", arguments, ALERTS_SECRET, optional=True)
    yield _deployment(app.version, "penstock-alerts", container, ALERT_REPLICAS)
    yield _network_policy("penstock-alerts", None)


def _metrics(app: _App) -> Iterator[Manifest]:
    arguments = ["serve", "metrics", "--host", "0.0.0.0", "--port", str(METRICS_PORT)]  # noqa: S104 - of the pod
    container = _container(app, "metrics", arguments, None, optional=True)
    # Until a broker answers, it waits and listens at no port.
    container |= {"ports": [{"name": "http", "containerPort": METRICS_PORT}], "readinessProbe": _connects()}
    yield _deployment(app.version, "penstock-metrics", container, 1)
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
    yield _service("penstock-metrics", METRICS_PORT, scraped)
    yield _network_policy("penstock-metrics", METRICS_PORT)


def _dashboard(app: _App) -> Iterator[Manifest]:
    name = str(app.version.app_in(CODE).whole)
    arguments = ["serve", "dashboard", name, "--host", "0.0.0.0", "--port", str(DASHBOARD_PORT)]  # noqa: S104 - of the pod, with a token
    container = _container(app, "dashboard", arguments, DASHBOARD_SECRET, optional=False)
    container |= {"ports": [{"name": "http", "containerPort": DASHBOARD_PORT}], "readinessProbe": _connects()}
    yield _deployment(app.version, "penstock-dashboard", container, 1)
    yield _service("penstock-dashboard", DASHBOARD_PORT, {})
    yield _network_policy("penstock-dashboard", DASHBOARD_PORT)


def _container(app: _App, name: str, arguments: list[str], secret: str | None, *, optional: bool) -> Manifest:
    """Return the container of a service. It keeps nothing, so its folder is in /tmp."""
    settings = version_in_pod(app.version).settings
    options = ["--kafka", settings.kafka, "--dir", "/tmp/penstock"]  # noqa: S108 - of the pod
    options += [] if settings.config is None else ["--config", settings.config]
    container = container_of(app.version, pod_settings(settings), name, [*arguments, *options])
    container["env"] = secret_values(app.versions)
    if secret is not None:
        container["envFrom"] = [{"secretRef": {"name": secret, "optional": optional}}]
    return {**container, "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}}


def _connects() -> Manifest:
    return {"tcpSocket": {"port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}


def _deployment(version: Version, name: str, container: Manifest, replicas: int) -> Manifest:
    selector = _labels(name)
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": selector},
        "template": {"metadata": {"labels": selector}, "spec": pod_spec(version, container, selector)},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": selector}, "spec": spec}


def _service(name: str, port: int, annotations: dict[str, str]) -> Manifest:
    metadata = {"name": name, "labels": _labels(name), **({"annotations": annotations} if annotations else {})}
    spec = {"selector": _labels(name), "ports": [{"name": "http", "port": port, "targetPort": "http"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _network_policy(name: str, port: int | None) -> Manifest:
    """Return the policy that lets others reach one port, or none."""
    ingress = [] if port is None else [{"ports": [{"protocol": "TCP", "port": port}]}]
    spec = {"podSelector": {"matchLabels": _labels(name)}, "policyTypes": ["Ingress"], "ingress": ingress}
    metadata = {"name": name, "labels": _labels(name)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": name}
