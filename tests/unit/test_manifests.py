"""Manifests, validated against the schemas of Kubernetes and KEDA; and rollouts with kubectl."""

from __future__ import annotations

import os
from base64 import b64decode
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import jsonschema
import kubernetes_validate
import msgspec
import pytest
from msgspec.structs import replace
from support.deployed import on_a_cluster, version_of
from support.kubectl import Kubectl

from penstock.ops.deploy import DeploymentFiles, SupervisorUnavailable, Version
from penstock.ops.deploy.errors import DeployError, UpdateFailed
from penstock.ops.deploy.registry import DesiredState
from penstock.ops.deploy.targets.kubernetes_rollout import (
    KubernetesRollout,
    expect_reachable,
    kubectl_log_command,
    manifest_list,
)
from penstock.ops.deploy.targets.kustomize import DeployedVersion, base_prerequisites, kustomize_base
from penstock.ops.deploy.targets.manifests import manifests_of
from penstock.ops.deploy.targets.pods import Manifest, prerequisites
from penstock.ops.deploy.version import PodSettings
from penstock.ops.shell.command_line.main import Penstock
from penstock.ops.shell.command_line.root import commands_of
from penstock.processors.apps import Contents

ADDRESS = "postgresql://ann:geheim@db/penstock"
KUBERNETES = "1.33"
yaml: Any = import_module("yaml")

# From the resource definition of KEDA 2.x, and its documentation of the metadata of the Kafka scaler.
_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}


def _only(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


SCALED_OBJECT = _only(
    ["scaleTargetRef", "triggers"],
    scaleTargetRef=_only(["name"], apiVersion=_TEXT, kind=_TEXT, name=_TEXT, envSourceContainerName=_TEXT),
    pollingInterval=_COUNT,
    cooldownPeriod=_COUNT,
    initialCooldownPeriod=_COUNT,
    idleReplicaCount=_COUNT,
    minReplicaCount=_COUNT,
    maxReplicaCount=_COUNT,
    fallback={"type": "object"},
    advanced=_only(
        [],
        restoreToOriginalReplicaCount={"type": "boolean"},
        scalingModifiers={"type": "object"},
        horizontalPodAutoscalerConfig=_only(
            [],
            name=_TEXT,
            behavior=_only(
                [],
                **{
                    direction: _only(
                        [],
                        stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
                        selectPolicy=_TEXT,
                        policies={"type": "array"},
                    )
                    for direction in ("scaleUp", "scaleDown")
                },
            ),
        ),
    ),
    triggers={
        "type": "array",
        "minItems": 1,
        "items": _only(
            ["type", "metadata"],
            type={"const": "kafka"},
            name=_TEXT,
            authenticationRef=_only(["name"], name=_TEXT, kind=_TEXT),
            metadata=_only(
                ["bootstrapServers", "consumerGroup"],
                bootstrapServers=_TEXT,
                consumerGroup=_TEXT,
                topic=_TEXT,
                lagThreshold={"type": "string", "pattern": "^[1-9][0-9]*$"},
                activationLagThreshold=_TEXT,
                offsetResetPolicy={"enum": ["latest", "earliest"]},
                allowIdleConsumers=_TEXT,
                scaleToZeroOnInvalidOffset=_TEXT,
                excludePersistentLag=_TEXT,
                limitToPartitionsWithLag=_TEXT,
                version=_TEXT,
                partitionLimitation=_TEXT,
            ),
        ),
    },
)


def version(folder: Path, number: int = 1, **settings: Any) -> Version:
    """Return a version for Kubernetes."""
    plain = on_a_cluster(version_of(folder, number, name="small.totals"), PodSettings("registry/app:7"))
    return replace(plain, settings=replace(plain.settings, **settings))


def code(folder: Path) -> Contents:
    """Return the code of an app with two files."""
    (folder / "app.py").write_text("import files\n")
    (folder / "files.py").write_text("# nothing\n")
    return Contents({name: folder / name for name in ("app.py", "files.py")})


def by_kind(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return manifests by their kinds."""
    return {manifest["kind"]: manifest for manifest in manifests}


@pytest.mark.parametrize(
    "settings",
    [{}, {"config": "/etc/penstock.toml", "secured": True, "variables": ("PENSTOCK_STORE",)}],
    ids=["plain", "secured"],
)
def test_manifests_match_the_schemas(tmp_path: Path, settings: dict[str, Any]) -> None:
    """The published schemas allow every field."""
    manifests = manifests_of(version(tmp_path, **settings), code(tmp_path), 2)
    for manifest in manifests:
        if manifest["kind"] != "ScaledObject":
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    scaled = by_kind(manifests)["ScaledObject"]
    jsonschema.validate(scaled["spec"], SCALED_OBJECT)

    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    assert msgspec.json.decode(manifest_list(manifests))["kind"] == "List"


def test_manifests_refer_to_existing_objects(tmp_path: Path) -> None:
    """Every reference has a target. The consumer group has the processor's name, which no object may have."""
    found = by_kind(manifests_of(version(tmp_path), code(tmp_path), 2))
    workers, scaled = found["StatefulSet"]["spec"], found["ScaledObject"]["spec"]
    labels = workers["template"]["metadata"]["labels"]
    [container] = workers["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    volumes = {volume["name"] for volume in workers["template"]["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in workers["volumeClaimTemplates"]}

    assert workers["serviceName"] == found["Service"]["metadata"]["name"] == "penstock-small-totals"
    assert scaled["scaleTargetRef"]["name"] == found["StatefulSet"]["metadata"]["name"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (2, 4)
    assert scaled["triggers"][0]["metadata"]["consumerGroup"] == "small.totals"
    for selector in (workers["selector"]["matchLabels"], found["Service"]["spec"]["selector"]):
        assert selector.items() <= labels.items()
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    assert f"0.0.0.0:{ports['health']}" in container["command"]
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert {"name": "PENSTOCK_DEPLOYMENT", "value": "small.totals@1"} in container["env"]


def test_values_are_those_that_the_cluster_accepts(tmp_path: Path) -> None:
    """The schemas allow any text where the API server accepts a few words only."""
    found = by_kind(manifests_of(version(tmp_path), code(tmp_path), 2))
    workers = found["StatefulSet"]["spec"]
    [spread] = workers["template"]["spec"]["topologySpreadConstraints"]

    assert workers["updateStrategy"] == {"type": "RollingUpdate"}
    assert workers["podManagementPolicy"] in {"Parallel", "OrderedReady"}
    assert spread["whenUnsatisfiable"] in {"ScheduleAnyway", "DoNotSchedule"}
    assert found["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress"]
    assert workers["template"]["spec"]["securityContext"]["fsGroupChangePolicy"] in {"OnRootMismatch", "Always"}


def test_workers_have_no_more_rights_than_they_need(tmp_path: Path) -> None:
    """Pods have no root user, no token of the cluster and no writable image. Other pods reach only the health port."""
    classed = PodSettings("registry/app:7", storage_class="fast")
    found = by_kind(manifests_of(version(tmp_path, pods=classed), code(tmp_path), 1))
    spec = found["StatefulSet"]["spec"]
    pod, claim = spec["template"]["spec"], spec["volumeClaimTemplates"][0]
    [container] = pod["containers"]
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}

    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (*pod["initContainers"], container):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
    assert writable == {"/penstock/data", "/tmp"}  # noqa: S108 - of the pod
    assert container["command"][container["command"].index("--dir") + 1] == "/penstock/data"
    assert found["NetworkPolicy"]["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == spec["selector"]["matchLabels"]
    assert claim["spec"]["storageClassName"] == "fast"


def base_of(folder: Path, **settings: Any) -> dict[str, list[Manifest]]:
    """Return the manifests of a kustomize base for an app of two processors, by file."""
    versions = [version(folder, **settings), replace(version(folder, **settings), name="large")]
    files = kustomize_base([DeployedVersion(each, code(folder), 2) for each in versions])
    listed = yaml.safe_load(files.pop("kustomization.yaml"))
    assert listed.pop("resources") == sorted(files)
    assert listed == {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": "streams"}
    return {name: msgspec.json.decode(text)["items"] for name, text in files.items()}


@pytest.mark.parametrize(
    "settings",
    [{}, {"config": "/etc/penstock.toml", "secured": True, "variables": ("PENSTOCK_STORE",)}],
    ids=["plain", "secured"],
)
def test_a_base_contains_the_workers_and_what_watches_them(tmp_path: Path, settings: dict[str, Any]) -> None:
    """The schemas allow every field; each object has its own name, and the workers are those of a deployment without a base."""
    base = base_of(tmp_path, pods=PodSettings("registry/app:7", "streams"), **settings)
    services = {name.removesuffix(".json"): base[name] for name in base if by_kind(base[name]).get("Deployment")}
    manifests = [manifest for items in base.values() for manifest in items]
    for manifest in manifests:
        if manifest["kind"] != "ScaledObject":
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    named = [
        (manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests if manifest["kind"] != "ConfigMap"
    ]

    assert len(named) == len(set(named))
    assert base["penstock-small-totals.json"] == manifests_of(
        version(tmp_path, pods=PodSettings("registry/app:7", "streams"), **settings), code(tmp_path), 2
    )
    assert set(services) == {"penstock-alerts", "penstock-metrics", "penstock-dashboard"}
    for items in services.values():
        pod = by_kind(items)["Deployment"]["spec"]["template"]["spec"]
        assert (pod["automountServiceAccountToken"], pod["securityContext"]["runAsNonRoot"]) == (False, True)
        assert all(
            each["securityContext"]["readOnlyRootFilesystem"] for each in [*pod["containers"], *pod["initContainers"]]
        )
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} <= {
            volume["name"] for volume in pod["volumes"]
        }


def test_services_of_a_base_have_the_variables_of_each_processor(tmp_path: Path) -> None:
    """Without them, they could not read the configuration or import the app; each comes from the Secret of a processor that has it."""
    small = version(tmp_path, pods=PodSettings("registry/app:7", "streams"), variables=("PENSTOCK_STORE",))
    large = replace(
        small, name="large", settings=replace(small.settings, variables=("KAFKA_PASSWORD", "PENSTOCK_STORE"))
    )
    files = kustomize_base([DeployedVersion(each, code(tmp_path), 2) for each in (small, large)])
    wanted = {"KAFKA_PASSWORD": "penstock-large-env", "PENSTOCK_STORE": "penstock-small-totals-env"}
    for name in ("alerts", "metrics", "dashboard"):
        [container] = by_kind(msgspec.json.decode(files[f"penstock-{name}.json"])["items"])["Deployment"]["spec"][
            "template"
        ]["spec"]["containers"]
        keys = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"]}

        assert keys == {name: {"name": secret, "key": name} for name, secret in wanted.items()}


def test_services_of_a_base_are_reachable_at_their_port_only(tmp_path: Path) -> None:
    """Selectors match the pods; the alert process has no port; the dashboard does not start without its token."""
    base = base_of(tmp_path, pods=PodSettings("registry/app:7", "streams"))
    for name, port in {"penstock-alerts": None, "penstock-metrics": 9464, "penstock-dashboard": 8710}.items():
        found = by_kind(base[f"{name}.json"])
        spec, policy = found["Deployment"]["spec"], found["NetworkPolicy"]["spec"]
        labels, container = spec["template"]["metadata"]["labels"], spec["template"]["spec"]["containers"][0]
        assert labels == spec["selector"]["matchLabels"] == policy["podSelector"]["matchLabels"]
        assert [rule["ports"][0]["port"] for rule in policy["ingress"]] == [port] * (port is not None)
        assert [each["containerPort"] for each in container.get("ports", [])] == [port] * (port is not None)
        if port is not None:
            assert found["Service"]["spec"]["selector"] == labels
            assert str(port) in container["command"]
    dashboard, alerts = (
        by_kind(base[f"penstock-{name}.json"])["Deployment"]["spec"] for name in ("dashboard", "alerts")
    )

    assert dashboard["template"]["spec"]["containers"][0]["envFrom"][0]["secretRef"]["optional"] is False
    assert alerts["replicas"] == 2


def test_commands_of_a_base_exist(tmp_path: Path) -> None:
    """Each of their options exists, too."""
    base = base_of(tmp_path, pods=PodSettings("registry/app:7", "streams"), config="/etc/penstock.toml")
    known = dict(commands_of(Penstock()))
    for name in ("alerts", "metrics", "dashboard"):
        command = by_kind(base[f"penstock-{name}.json"])["Deployment"]["spec"]["template"]["spec"]["containers"][0][
            "command"
        ]
        words = ("alerts", "run") if name == "alerts" else ("serve", name)
        options = {f"--{option.name}" for option in known[words]}

        assert {word for word in command if word.startswith("--")} - {"--config"} <= options


def test_probes_for_restarts_do_not_depend_on_kafka(tmp_path: Path) -> None:
    """A pod without a broker is not ready, and lives: a restart would not help it."""
    [container] = by_kind(manifests_of(version(tmp_path), code(tmp_path), 1))["StatefulSet"]["spec"]["template"][
        "spec"
    ]["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}

    assert paths == {"startup": "/live", "liveness": "/live", "readiness": "/ready"}


def test_manifests_contain_the_code(tmp_path: Path) -> None:
    """A new version needs no new image, and the code of older versions remains for a rollback."""
    found = by_kind(manifests_of(version(tmp_path), code(tmp_path), 1))
    packed = ZipFile(BytesIO(b64decode(found["ConfigMap"]["binaryData"]["app.zip"])))
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    [unpacking], [container] = pod["initContainers"], pod["containers"]

    assert sorted(packed.namelist()) == ["app.py", "files.py"]
    assert found["ConfigMap"]["immutable"]
    assert found["ConfigMap"]["metadata"]["name"].endswith(version(tmp_path).digest)
    assert f"{unpacking['command'][-1]}/app.py:Totals" in container["command"]


def test_manifests_contain_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that create the Secrets do not contain them either."""
    monkeypatch.setenv("PENSTOCK_STORE", ADDRESS)
    secured = version(tmp_path, variables=("PENSTOCK_STORE",), config="/etc/penstock.toml", secured=True)
    text = manifest_list(manifests_of(secured, code(tmp_path), 1)) + "\n".join(prerequisites(secured))

    assert "geheim" not in text
    assert '"secretKeyRef"' in text
    assert (
        'kubectl create secret generic penstock-small-totals-env --from-literal=PENSTOCK_STORE="$PENSTOCK_STORE"'
        in text
    )


def test_printed_commands_name_the_namespace(tmp_path: Path) -> None:
    """A Secret in another namespace than the pods would not be found."""
    placed = version(
        tmp_path, pods=PodSettings("registry/app:7", "streams"), variables=("PENSTOCK_STORE",), config="/etc/my conf"
    )
    printed = [
        *prerequisites(placed),
        *base_prerequisites(placed),
        " ".join(kubectl_log_command(placed, 0, 10, follow=False)),
    ]

    assert len(printed) == 5
    assert all(command.startswith("kubectl --namespace streams ") for command in printed)
    assert printed[1].endswith(" '--from-file=penstock.toml=/etc/my conf'")


def test_limits_of_kubernetes_are_checked(tmp_path: Path) -> None:
    """A long name, large code, and a backup store on this machine are errors."""
    with pytest.raises(DeployError, match="is too long for Kubernetes"):
        manifests_of(replace(version(tmp_path), name="x" * 60), code(tmp_path), 1)
    (tmp_path / "large.py").write_bytes(os.urandom(800_000))
    with pytest.raises(DeployError, match="ConfigMap is limited to 700,000"):
        manifests_of(version(tmp_path), Contents({"large.py": tmp_path / "large.py"}), 1)
    with pytest.raises(DeployError, match="folder on this machine"):
        expect_reachable(version(tmp_path, backup="/backups"))

    expect_reachable(version(tmp_path, backup="hdfs://name:8020/backups"))


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """A substitute for kubectl, first on PATH."""
    kubectl = Kubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", kubectl.path)
    return kubectl


def on_cluster(folder: Path) -> tuple[DeploymentFiles, KubernetesRollout]:
    """Store two versions, and return the files and the rollout of their deployment."""
    files = DeploymentFiles(folder, "small.totals")
    for number in (1, 2):
        files.add_version(version(folder, number, pods=PodSettings("image", "streams")), code(folder))
    return files, KubernetesRollout(files, 60.0, lambda _: None)


def test_kubectl_applies_scales_and_deletes(tmp_path: Path, kubectl: Kubectl) -> None:
    """One call applies all manifests, and one waits, in the configured namespace. Volumes are not deleted."""
    files, rollout = on_cluster(tmp_path)
    rollout.start(files.version(1), 2)
    [(apply, parts), (wait, _)] = kubectl.calls()
    rollout.scale(3)
    [(_, scaled)] = kubectl.calls()
    rollout.stop()
    [(delete, _)] = kubectl.calls()

    assert apply == ["--namespace", "streams", "apply", "--filename", "-"]
    assert [part["kind"] for part in parts["items"]][:3] == ["ConfigMap", "Service", "StatefulSet"]
    assert wait[2:5] == ["rollout", "status", "statefulset/penstock-small-totals"]
    assert [part["spec"]["minReplicaCount"] for part in scaled["items"]] == [3]
    assert "statefulset" in delete[3]
    assert "persistentvolumeclaim" not in delete[3]
    assert "--cascade=foreground" in delete  # pods that still run are members of the group
    assert files.deployment() is None


def test_a_failed_version_on_a_cluster_is_rolled_back(tmp_path: Path, kubectl: Kubectl) -> None:
    """The manifests and the code of the old version are applied again."""
    files, rollout = on_cluster(tmp_path)
    rollout.start(files.version(1), 2)
    kubectl.calls()
    kubectl.fail_once_at("rollout")
    with pytest.raises(UpdateFailed, match=r"small\.totals@1 was restored"):
        rollout.update(files.version(2))
    [(_, new), _, (_, old)] = kubectl.calls()

    assert version_label(new) == "2"
    assert version_label(old) == "1"
    assert files.desired_state() == DesiredState(1, (1, 1), failed=(2,))


def version_label(parts: Any) -> str:
    """Return the version in the labels of manifests."""
    return str(parts["items"][0]["metadata"]["labels"]["app.kubernetes.io/version"])


def test_without_kubectl_the_error_names_the_alternatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--dry-run prints the manifests."""
    monkeypatch.setenv("PATH", str(tmp_path))
    files, rollout = on_cluster(tmp_path)

    with pytest.raises(SupervisorUnavailable, match=r"no kubectl.*--dry-run"):
        rollout.start(files.version(1), 1)

    assert files.deployment() is None
