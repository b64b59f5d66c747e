"""Manifests and units, validated against the schemas of Kubernetes, KEDA and systemd; and rollouts with kubectl."""

from __future__ import annotations

import os
import shutil
import subprocess
from base64 import b64decode
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

from penstock.ops.deploy.errors import DeployError, SupervisorUnavailable, UpdateFailed
from penstock.ops.deploy.kubernetes_rollout import KubernetesRollout, expect_reachable, manifest_list
from penstock.ops.deploy.manifests import Manifest, manifests_of, prerequisites
from penstock.ops.deploy.registry import DeploymentFiles, DesiredState
from penstock.ops.deploy.systemd import unit_text
from penstock.ops.deploy.version import PodSettings, Version
from penstock.processors.apps.app_files import Contents

ADDRESS = "postgresql://ann:geheim@db/penstock"
KUBERNETES = "1.33"

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
    """Neither do the commands that create the Secrets."""
    monkeypatch.setenv("PENSTOCK_STORE", ADDRESS)
    secured = version(tmp_path, variables=("PENSTOCK_STORE",), config="/etc/penstock.toml", secured=True)
    text = manifest_list(manifests_of(secured, code(tmp_path), 1)) + "\n".join(prerequisites(secured))

    assert "geheim" not in text
    assert '"secretKeyRef"' in text
    assert (
        'kubectl create secret generic penstock-small-totals-env --from-literal=PENSTOCK_STORE="$PENSTOCK_STORE"'
        in text
    )


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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions warn about two newer settings only. Folders may have any name."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    unit = tmp_path / "penstock-totals@.service"
    unit.write_text(unit_text(tmp_path / "with a space, 100% and $HOME", "totals"))
    checked = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=30
    )
    if "Failed to" in checked.stderr and "manager" in checked.stderr:
        pytest.skip(f"systemd-analyze does not work here: {checked.stderr}")
    newer_settings = ("'RestartSteps'", "'RestartMaxDelaySec'")

    assert [line for line in checked.stderr.splitlines() if not any(name in line for name in newer_settings)] == []
