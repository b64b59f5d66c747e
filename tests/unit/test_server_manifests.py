"""Servers on Kubernetes: their manifests, validated against the schemas, their addresses, and the end of the objects that replicas share."""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import msgspec
import pytest
from msgspec.structs import replace
from support.deployed import on_a_cluster, version_of
from support.kubectl import Kubectl
from typer.testing import CliRunner

from penstock.ops.deploy import DeployedServer, DeploymentFiles, Version
from penstock.ops.deploy.errors import DeployError
from penstock.ops.deploy.targets.kubernetes_rollout import KubernetesRollout, expect_reachable, manifest_list
from penstock.ops.deploy.targets.manifests import manifests_of
from penstock.ops.deploy.targets.pods import Manifest, prerequisites
from penstock.ops.deploy.version import PodSettings, VersionShape
from penstock.ops.shell.command_line.main import Penstock
from penstock.ops.shell.command_line.main import app as commands
from penstock.ops.shell.command_line.root import commands_of
from penstock.processors.apps import Contents

KUBERNETES = "1.33"
TABLE_OPTIONS = ("--key", "carrier", "--value", "top", "--host", "0.0.0.0", "--port", "8720", "--connections", "9")  # noqa: S104
LASER = DeployedServer(
    ("serve", "laser", "tops.1", "--app"),
    ("--category", "tops", *TABLE_OPTIONS, "--http", "8780"),
    ("rediss://penstock-laser-tops-1:8720", "https://penstock-laser-tops-1:8780"),
    has_worker=True,
    replica_of="laser.tops",
    certificate=("/home/ann/tls.pem", "/home/ann/key.pem"),
)
DAILY = DeployedServer(
    ("serve", "laser", "tops.1"),
    ("--parquet", "hdfs://name:8020/tops", *TABLE_OPTIONS),
    ("redis://penstock-laser-tops-1:8720",),
    has_worker=False,
    reads_app=False,
    replica_of="laser.tops",
)
SCUBA_OPTIONS = ("--keep", "2h", "--sample", "1.0", "--max-size", "1GB", "--memory", "2GB", "--timeout", "10s")


def scuba(folder: Path) -> DeployedServer:
    """Return a server whose rows are in its folder."""
    words = (*SCUBA_OPTIONS, "--file", f"{folder}/state/scuba.views/rows.duckdb", "--port", "8740")
    return DeployedServer(
        ("serve", "scuba", "views", "--app"), words, ("http://penstock-scuba-views:8740",), has_worker=False
    )


def version(folder: Path, name: str, server: DeployedServer, token: str = "PENSTOCK_LASER_TOKEN") -> Version:  # noqa: S107 - a name
    """Return a version of a server for Kubernetes."""
    placed = on_a_cluster(version_of(folder, 1, name=name), PodSettings("registry/app:7", "streams"))
    settings = replace(placed.settings, variables=(token,), config="/etc/penstock.toml", secured=True)
    return replace(placed, settings=settings, server=server)


def servers(folder: Path) -> dict[str, Version]:
    """Return every kind of server."""
    return {
        "laser": version(folder, "laser.tops.1", LASER),
        "daily": replace(version(folder, "laser.tops.1", DAILY), shape=VersionShape(None, {})),
        "scuba": version(folder, "scuba.views", scuba(folder), "PENSTOCK_SCUBA_TOKEN"),
    }


def manifests(version: Version) -> list[Manifest]:
    """Return the manifests of a version, with an app of one file."""
    app = Path(version.app)
    app.write_text("# nothing\n")
    return manifests_of(version, Contents({"app.py": app}), 1)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """Return the manifests of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Return whether a selector matches labels."""
    return selector.items() <= labels.items()


@pytest.fixture(params=["laser", "daily", "scuba"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Version:
    """A version of each kind of server."""
    return servers(tmp_path)[request.param]


def test_manifests_of_servers_match_the_schemas(server: Version) -> None:
    """The published schemas allow every field. KEDA does not scale a server."""
    for manifest in manifests(server):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)

    assert of_kind(manifests(server), "ScaledObject") == []
    assert [each["spec"]["replicas"] for each in of_kind(manifests(server), "StatefulSet")] == [1]


def test_clients_reach_the_ports_of_a_server(server: Version) -> None:
    """Every Service selects its pod and has the ports that it listens at. The NetworkPolicy allows only these."""
    found = manifests(server)
    [workload], [policy] = of_kind(found, "StatefulSet"), of_kind(found, "NetworkPolicy")
    pod = workload["spec"]["template"]
    [container] = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    services = of_kind(found, "Service")

    assert server.server is not None
    assert ports == {"health": 8080, **server.server.ports}
    assert {str(port) for name, port in ports.items() if name != "health"} <= set(container["command"])
    assert f"0.0.0.0:{ports['health']}" in container["command"]
    assert workload["spec"]["serviceName"] in [service["metadata"]["name"] for service in services]
    for service in services:
        assert selects(service["spec"]["selector"], pod["metadata"]["labels"])
        assert "clusterIP" not in service["spec"]
        for port in service["spec"]["ports"]:
            assert ports[port.get("targetPort", port["name"])] == port["port"]
    assert [port["port"] for port in policy["spec"]["ingress"][0]["ports"]] == list(ports.values())
    assert selects(policy["spec"]["podSelector"]["matchLabels"], pod["metadata"]["labels"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "health"


def test_pods_of_servers_mount_what_they_name(server: Version) -> None:
    """Every mount has a volume, every path of the command is in a mount, and a server without an app has no code."""
    found = manifests(server)
    spec = of_kind(found, "StatefulSet")[0]["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    mounted = tuple(mount["mountPath"] for mount in container["volumeMounts"])
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    maps = {each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each}

    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert all(word.startswith(mounted) for word in container["command"] if word.startswith("/"))
    assert container["workingDir"] in mounted
    assert writable == {"/penstock/data", "/tmp"}  # noqa: S108 - of the pod
    assert maps == {each["metadata"]["name"] for each in of_kind(found, "ConfigMap")}
    assert len(maps) == len(pod["initContainers"]) == server.reads_app
    for each in (*pod["initContainers"], container):
        assert each["securityContext"]["readOnlyRootFilesystem"]


def test_commands_of_servers_exist(server: Version) -> None:
    """Each of their options exists, too."""
    [container] = of_kind(manifests(server), "StatefulSet")[0]["spec"]["template"]["spec"]["containers"]
    known = dict(commands_of(Penstock()))[tuple(container["command"][1:3])]
    options = {f"--{option.name}" for option in known} | {"--config"}

    assert {word for word in container["command"] if word.startswith("--")} <= options


def test_replicas_share_an_address_and_secrets(tmp_path: Path) -> None:
    """One Service selects the ready pods of all replicas, and one budget selects all pods, because a pod with two cannot be evicted."""
    replicas = [version(tmp_path, f"laser.tops.{number}", LASER) for number in (1, 2)]
    first, second = map(manifests, replicas)
    pods = [of_kind(found, "StatefulSet")[0]["spec"]["template"] for found in (first, second)]
    labels = [pod["metadata"]["labels"] for pod in pods]
    shared = [manifest for manifest in first if manifest in second]
    own = {each["metadata"]["name"] for each in first} - {each["metadata"]["name"] for each in shared}
    [spread] = pods[0]["spec"]["topologySpreadConstraints"]

    assert sorted(manifest["kind"] for manifest in shared) == ["PodDisruptionBudget", "Service"]
    assert own & {each["metadata"]["name"] for each in second} == set()
    assert len(of_kind(first, "PodDisruptionBudget")) == 1
    for manifest in shared:
        spec = manifest["spec"]
        selector = spec["selector"] if manifest["kind"] == "Service" else spec["selector"]["matchLabels"]
        assert all(selects(selector, each) for each in labels)
    assert all(selects(spread["labelSelector"]["matchLabels"], each) for each in labels)
    for manifest in of_kind(first, "Service"):
        if manifest not in shared:
            assert not selects(manifest["spec"]["selector"], labels[1])
    assert prerequisites(replicas[0]) == prerequisites(replicas[1])


def test_tables_with_similar_names_have_different_objects(tmp_path: Path) -> None:
    """The address of all replicas of `tops.1` is not the one of the first replica of `tops`."""
    other = replace(LASER, replica_of="laser.tops.1")
    first = manifests(version(tmp_path, "laser.tops.1", LASER))
    second = manifests(version(tmp_path, "laser.tops.1.1", other))

    names = [{(each["kind"], each["metadata"]["name"]) for each in found} for found in (first, second)]
    assert names[0] & names[1] == set()


def test_tokens_and_certificates_of_servers_are_in_secrets(tmp_path: Path) -> None:
    """The pod does not start without the token. The commands that create the Secrets contain no value."""
    found = servers(tmp_path)
    text = manifest_list(manifests(found["laser"]))
    [container] = of_kind(manifests(found["laser"]), "StatefulSet")[0]["spec"]["template"]["spec"]["containers"]
    create = "kubectl --namespace streams create secret"
    token = {"secretKeyRef": {"name": "penstock-laser-tops-env", "key": "PENSTOCK_LASER_TOKEN"}}

    assert container["env"][1] == {"name": "PENSTOCK_LASER_TOKEN", "valueFrom": token}
    assert "/home/ann" not in text
    assert prerequisites(found["laser"]) == [
        f'{create} generic penstock-laser-tops-env --from-literal=PENSTOCK_LASER_TOKEN="$PENSTOCK_LASER_TOKEN"',
        f"{create} generic penstock-laser-tops-config --from-file=penstock.toml=/etc/penstock.toml",
        f"{create} tls penstock-laser-tops-tls --cert=/home/ann/tls.pem --key=/home/ann/key.pem",
    ]


def test_servers_of_a_cluster_read_no_files_of_this_machine(tmp_path: Path) -> None:
    """A warehouse in a folder is refused, also in `--dir`; what a server itself writes there is on its volume."""
    for found in servers(tmp_path).values():
        expect_reachable(found)
    local = replace(DAILY, options=("--parquet", f"{tmp_path}/warehouse/tops"))
    with pytest.raises(DeployError, match=r"warehouse/tops is on this machine.*hdfs://"):
        expect_reachable(version(tmp_path, "laser.tops.1", local))


def test_the_last_replica_takes_the_shared_objects_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of the other replicas keep their address before. KEDA does not scale a server."""
    kubectl = Kubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", kubectl.path)
    rollouts = []
    for number in (1, 2):
        name = f"laser.tops.{number}"
        files = DeploymentFiles(tmp_path, name)
        files.add_version(version(tmp_path, name, LASER), Contents({}))
        rollouts.append(KubernetesRollout(files, 60.0, lambda _: None))
        rollouts[-1].start(files.version(1), 1)
    rollouts[0].scale(1)
    scaled = kubectl.calls()[-1][1]["items"]
    for rollout in rollouts:
        rollout.stop()
    calls = [call for call, _ in kubectl.calls()]
    first, last = [call[call.index("--selector") + 1] for call in calls]

    assert of_kind(scaled, "ScaledObject") == []
    assert not any("scaledobject" in word for call in calls for word in call)  # there may be no KEDA
    assert first == "app.kubernetes.io/instance in (penstock-laser-tops-1)"
    assert last == "app.kubernetes.io/instance in (penstock-laser-tops-2, penstock-laser-tops-any)"


def test_a_stopped_deployment_of_a_cluster_says_where_its_state_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is on volumes of the cluster, and not on this machine."""
    kubectl = Kubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", kubectl.path)
    files = DeploymentFiles(tmp_path, "laser.tops.1")
    files.add_version(version(tmp_path, "laser.tops.1", LASER), Contents({}))
    KubernetesRollout(files, 60.0, lambda _: None).start(files.version(1), 1)
    stopped = CliRunner().invoke(commands, ["undeploy", "laser.tops.1", "--dir", str(tmp_path)])

    assert stopped.exit_code == 0
    assert "Its state stays on volumes of the cluster" in " ".join(stopped.stderr.split())


APP = """
import penstock as ps

class Ranking(ps.Record, frozen=True):
    carrier: str
    at: ps.EventTime
    top: str

rankings = ps.Category("rankings", Ranking, key="carrier", event_time="at", buckets=3)
"""


@pytest.mark.parametrize(
    ("command", "addresses", "memory"),
    [
        (
            ["serve", "laser", "rankings", "--deploy", "--key", "carrier", "--value", "top", "--replicas", "2"],
            {"penstock-laser-rankings-1", "penstock-laser-rankings-2", "penstock-laser-rankings-any"},
            "1Gi",
        ),
        (["serve", "scuba", "rankings", "--deploy", "--memory", "1GB"], {"penstock-scuba-rankings"}, "2048Mi"),
    ],
    ids=["laser", "scuba"],
)
def test_a_dry_run_needs_neither_cluster_nor_broker(
    tmp_path: Path, command: list[str], addresses: set[str], memory: str
) -> None:
    """It prints the input of kubectl, each object once, and the commands for Secrets. Servers listen beyond their pod, with a token."""
    app = tmp_path / "rankings.py"
    app.write_text(APP)
    where = ["--app", str(app), "--kafka", "127.0.0.1:1", "--dir", str(tmp_path / "dir")]
    options = ["--target", "kubernetes", "--image", "registry/app:7", "--namespace", "streams", "--dry-run"]
    printed = CliRunner().invoke(commands, [*command, *where, *options])
    items = msgspec.json.decode(printed.stdout)["items"]
    names = [(each["kind"], each["metadata"]["name"]) for each in items]

    containers = [each["spec"]["template"]["spec"]["containers"][0] for each in of_kind(items, "StatefulSet")]

    assert printed.exit_code == 0
    for container in containers:
        words = container["command"]
        assert words[words.index("--host") + 1] == "0.0.0.0"  # noqa: S104 - of a pod
        assert f"PENSTOCK_{command[1].upper()}_TOKEN" in [variable["name"] for variable in container["env"]]
        assert container["resources"]["limits"] == {"memory": memory}
    assert len(names) == len(set(names))
    assert {name for kind, name in names if kind == "Service"} == addresses
    assert "so the categories and their numbers of buckets are not checked" in printed.stderr
    assert printed.stderr.count("kubectl --namespace streams create secret generic") == 1
    assert not (tmp_path / "dir" / "deployments" / "laser.rankings.1").exists()


def test_ports_of_pods_are_not_chosen(tmp_path: Path) -> None:
    """Options for servers of this machine are refused, and an image is necessary."""
    app = tmp_path / "rankings.py"
    app.write_text(APP)
    deploy = [
        "serve",
        "laser",
        "rankings",
        "--deploy",
        "--key",
        "carrier",
        "--value",
        "top",
        "--app",
        str(app),
        "--dry-run",
    ]
    cluster = ["--target", "kubernetes", "--kafka", "127.0.0.1:1", "--dir", str(tmp_path / "dir")]
    answers = [
        CliRunner().invoke(commands, [*deploy, *cluster, *options])
        for options in ([], ["--image", "a", "--port", "8000"], ["--image", "a", "--host", "::"])
    ]

    assert [answer.exit_code for answer in answers] == [2, 2, 2]
    assert ["--image" in answer.stderr for answer in answers] == [True, False, False]
    assert ["--port" in answer.stderr for answer in answers] == [False, True, True]
