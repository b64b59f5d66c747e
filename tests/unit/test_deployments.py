"""Deployments: stored versions, desired states and environment variables; and the checks before a deployment."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import replace as replace_request
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.deployed import stored_versions, version_of

import penstock as ps
from penstock.ops.deploy import (
    DeployedServer,
    DeploymentFiles,
    DeploymentRequest,
    DeploymentSettings,
    IncompatibleState,
    NotDeployed,
    Target,
    all_deployments,
    find_deployment,
    load_variables,
    plan_deployment,
    plan_purge,
    purge,
)
from penstock.ops.deploy.compatibility import expect_compatible
from penstock.ops.deploy.deployments import plan_deployments
from penstock.ops.deploy.environment import save_variables, variable_values
from penstock.ops.deploy.errors import DeployError, NameTaken
from penstock.ops.deploy.registry import DesiredState, deployments_of
from penstock.ops.deploy.version import PodSettings, VersionShape
from penstock.ops.status import observer_factory
from penstock.processors.apps import AppName, Contents
from penstock.processors.declare import Processor, plan_of
from penstock.state import ShardIdentity
from penstock.state.files import LocalFileStore
from penstock.state.local import RocksStateFolder
from penstock.transport import CategorySpec, create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import (
    PROCESSORS,
    ConvertedType,
    MaintenanceOperation,
    Migration,
    Resize,
    StateLineage,
    newest_maintenance,
    register_inputs,
)
from penstock.transport.tables.maintenance_log import record_maintenance


class Reading(ps.Record, frozen=True):
    """A reading of a meter."""

    meter: str
    street: str
    at: ps.EventTime
    litres: int


class Count(ps.Record, frozen=True):
    """A state."""

    readings: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=4)
by_street = ps.Category("by_street", Reading, key="street", event_time="at", buckets=4)
others = ps.Category("others", Reading, key="meter", event_time="at", buckets=4)


class Totals(ps.Stateful):
    """Sums readings."""

    reads, writes, state = readings, (), int

    def process(self, event: Reading, state: Any, context: ps.Context) -> tuple[Any, Iterable[ps.Record]]:
        return (state or 0) + event.litres, ()


class Hours(ps.Aggregator):
    """Sums readings by hour."""

    reads = readings
    monoid: ClassVar[Any] = ps.monoids.Sum()
    window: ClassVar[Any] = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Reading) -> int:
        return event.litres


class Large(ps.Stateless):
    """Has no state."""

    reads, writes = readings, others

    def process(self, event: Reading) -> Iterable[Reading]:
        return [event]


def changed(processor: type[Processor], **attributes: Any) -> type[Processor]:
    """Return a processor of the same name with other attributes."""
    return type(processor.__name__, (processor,), {"name": processor.name, **attributes})


def test_a_partially_stored_version_does_not_exist(tmp_path: Path) -> None:
    """The remains of an interrupted command are ignored, and the next version gets the number."""
    files = stored_versions(tmp_path, 1)
    (files.code(2)).mkdir(parents=True)
    (files.code(2) / "half.py").write_text("half")
    assert files.version_numbers() == [1]
    again = stored_versions(tmp_path, 2)

    assert again.version_numbers() == [1, 2]
    assert again.version(2) == version_of(tmp_path, 2)
    assert [path.name for path in again.code(2).iterdir()] == ["app.py"]


def test_a_processor_without_workers_is_not_deployed(tmp_path: Path) -> None:
    """The error lists the deployed processors."""
    files = stored_versions(tmp_path, 1)
    assert all_deployments(tmp_path) == []
    files.save_desired_state(DesiredState(1, (1, 1)))
    [deployment] = all_deployments(tmp_path)
    assert (deployment.name, deployment.workers, deployment.target) == ("totals", 2, Target.LOCAL)
    with pytest.raises(NotDeployed, match=r"scorer is not deployed.*Deployed are: totals"):
        find_deployment(tmp_path, "scorer")
    files.save_desired_state(DesiredState(1, ()))

    with pytest.raises(NotDeployed, match=r"totals is not deployed.*Deploy with"):
        find_deployment(tmp_path, "totals")


def test_the_deployments_of_an_app_are_found_without_its_code(tmp_path: Path) -> None:
    """Deployments of a clone, of another app and of a server are left out. An app without deployments is an error."""
    own: dict[str, dict[str, Any]] = {"totals": {}, "hours": {}}
    others: dict[str, dict[str, Any]] = {
        "staging.totals": {"clone": "staging"},
        "other": {"app": str(tmp_path / "b.py")},
        "laser.top.0": {"server": DeployedServer(("laser",), (), (), has_worker=True)},
    }
    for name, different in {**own, **others}.items():
        files = DeploymentFiles(tmp_path, name)
        files.add_version(replace(version_of(tmp_path, 1, name=name), **different), Contents({}))
        files.save_desired_state(DesiredState(1, (1,)))

    assert [each.name for each in deployments_of(tmp_path, AppName(tmp_path / "app.py"))] == ["hours", "totals"]
    assert [each.name for each in deployments_of(tmp_path, AppName(tmp_path / "app.py", None, "staging"))] == [
        "staging.totals"
    ]
    with pytest.raises(NotDeployed, match=r"c\.py is not deployed"):
        deployments_of(tmp_path, AppName(tmp_path / "c.py"))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """The error states the consequence for the workers."""
    files = stored_versions(tmp_path, 1)
    (files.folder / "desired.json").write_text("{")

    with pytest.raises(DeployError, match=r"Cannot read .*desired\.json.*Running workers are not affected"):
        all_deployments(tmp_path)


@settings(max_examples=30)
@given(
    st.text(
        st.characters(blacklist_characters="\n\r\0\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", blacklist_categories=["Cs"]),
        min_size=1,
    )
)
def test_values_of_variables_are_read_back_unchanged(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    """A password may contain any character of one line."""
    path = tmp_path_factory.mktemp("stored") / "environment"
    save_variables(path, {"PENSTOCK_STORE": value, "OTHER": "plain"})

    assert load_variables(path) == {"PENSTOCK_STORE": value, "OTHER": "plain"}


def test_only_the_owner_can_read_values(tmp_path: Path) -> None:
    """An unset variable is an error before any change."""
    path = tmp_path / "environment"
    save_variables(path, variable_values(["A"], {"A": "secret"}, "Totals"))
    with pytest.raises(DeployError, match=r"Totals needs B, which is not set here\. Nothing was deployed"):
        variable_values(["A", "B"], {"A": "secret"}, "Totals")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def check(
    processor: type[Processor], folder: Path, last: VersionShape | None, maintenance: MaintenanceOperation | None = None
) -> None:
    """Check a processor against the saved state."""
    version = None if last is None else replace(version_of(folder, 1), name=processor.name, shape=last)
    target, store = f"app.py:{processor.__name__}", LocalFileStore(folder / "backups")
    expect_compatible(processor, target, version, folder / "state", store, progress=print, maintenance=maintenance)


INCOMPATIBLE: dict[str, tuple[type[Processor], dict[str, Any]]] = {
    "another state type": (Totals, {"state": float}),
    "another key": (Totals, {"reads": by_street}),
    "other inputs": (Totals, {"reads": others}),
    "another window": (Hours, {"window": ps.windows.Tumbling(timedelta(hours=2))}),
    "another monoid": (Hours, {"monoid": ps.monoids.Max()}),
}


@pytest.mark.parametrize("change", INCOMPATIBLE)
def test_an_incompatible_declaration_is_rejected_with_alternatives(tmp_path: Path, change: str) -> None:
    """The error names the running version."""
    processor, attributes = INCOMPATIBLE[change]
    check(processor, tmp_path, VersionShape.of(processor))
    with pytest.raises(IncompatibleState) as refused:
        check(changed(processor, **attributes), tmp_path, VersionShape.of(processor))

    message = str(refused.value)
    assert f"{processor.name}@1" in message
    assert f'`name = "{processor.name}_2"`' in message
    assert f"penstock bootstrap app.py:{processor.__name__}" in message
    command = f"`penstock state migrate app.py:Totals --by FILE:FUNCTION --dir {tmp_path} --backup {tmp_path}/backups`"
    assert (f"`penstock undeploy totals`, {command}" in message) == (change == "another state type")


def test_a_changed_query_with_the_same_state_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The state is kept, so the report says what it contains and how to recompute it. Spaces do not count."""
    old = changed(Hours, sql_query="SELECT count(*)\n  FROM readings")
    check(old, tmp_path, VersionShape.of(changed(Hours, sql_query="SELECT count(*) FROM readings")))
    assert capsys.readouterr().out == ""
    check(changed(Hours, sql_query="SELECT count(*) FROM readings WHERE value > 5"), tmp_path, VersionShape.of(old))

    reported = capsys.readouterr().out
    assert "The query of hours has changed since hours@1, and its saved state still fits" in reported
    assert "`penstock bootstrap app.py:Hours --overwrite`" in reported


def test_a_query_with_another_state_is_renamed_by_its_table(tmp_path: Path) -> None:
    """In SQL, a processor has no class to give a name to."""
    old, new = (changed(Hours, sql_query=f"SELECT {call} FROM readings") for call in ("count(*)", "max(litres)"))
    with pytest.raises(IncompatibleState, match=r"under a new name \(`CREATE TABLE hours_2`\)"):
        check(changed(new, monoid=ps.monoids.Max()), tmp_path, VersionShape.of(old))


def test_after_a_migration_the_old_version_is_compatible(tmp_path: Path) -> None:
    """It is compatible only if the saved state has the declared type."""
    new, old = changed(Totals, state=float), VersionShape.of(Totals)
    migrated = MaintenanceOperation(
        "totals",
        Migration("float by meter"),
        0,
        StateLineage({0: 1}, converted=ConvertedType("float by meter", {0: 1})),
        is_done=True,
    )
    check(new, tmp_path, old, migrated)
    with pytest.raises(IncompatibleState):
        check(changed(Totals, state=str), tmp_path, old, migrated)
    state = RocksStateFolder(tmp_path / "state").open(ShardIdentity("totals", 0, "float by meter"))
    state.save({b"m1": msgspec.msgpack.encode(1.5)})
    state.close()
    check(new, tmp_path, old, migrated)
    with pytest.raises(IncompatibleState, match=r"contains float by meter.*`penstock state migrate"):
        check(Totals, tmp_path, old, migrated)


def test_a_stateless_processor_may_change_its_inputs(tmp_path: Path) -> None:
    """It has no state that depends on them."""
    check(changed(Large, reads=by_street), tmp_path, VersionShape.of(Large))


def test_local_state_is_checked_before_the_first_deployment(tmp_path: Path) -> None:
    """`penstock run` may have written it. Changed fields of a record are detected although its name is the same."""
    counting = changed(Totals, state=Count)
    state = RocksStateFolder(tmp_path / "state").open(ShardIdentity("totals", 0, plan_of(counting).state_shape or ""))
    state.save({b"m1": msgspec.msgpack.encode(Count(3))})
    state.close()
    check(counting, tmp_path, None)
    with pytest.raises(IncompatibleState, match=r"totals, bucket 0.*contains Count by meter.*int by meter"):
        check(Totals, tmp_path, None)
    other = msgspec.defstruct("Count", [("meters", int)], bases=(ps.Record,), frozen=True)
    with pytest.raises(IncompatibleState, match=r"cannot be decoded.*stop its workers, `penstock state migrate"):
        check(changed(Totals, state=other), tmp_path, None)
    more = msgspec.defstruct("Count", [("readings", int), ("meters", int, 0)], bases=(ps.Record,), frozen=True)

    check(changed(Totals, state=more), tmp_path, None)


def bus() -> MemoryBus:
    """Return a bus with the categories."""
    bus = MemoryBus()
    for name in ("readings", "others", "by_street"):
        bus.catalog.create(CategorySpec(name, 4))
    return bus


def request(folder: Path, *, take_over: bool = False, workers: int | None = None, **settings: Any) -> DeploymentRequest:
    """Return a request to deploy the totals."""
    app = folder / "app.py"
    folder.mkdir(exist_ok=True)
    app.touch()
    return DeploymentRequest(
        AppName(app),
        Totals,
        DeploymentSettings("broker:9092", str(folder.parent / "d"), str(folder), **settings),
        workers,
        take_over,
    )


def test_an_unchanged_deployment_is_not_updated(tmp_path: Path) -> None:
    """The same code with the same settings is the same version; other code or settings are a new one."""
    first = plan_deployment(request(tmp_path / "a", workers=2), bus(), {}, print)
    files = DeploymentFiles(tmp_path / "d", "totals")
    files.add_version(first.version, first.code)
    files.save_desired_state(DesiredState(1, (1, 1)))
    again = plan_deployment(request(tmp_path / "a"), bus(), {}, print)
    assert (again.is_new, again.version.number, again.workers) == (False, 1, 2)
    assert "deployed already" in again.summary
    assert (
        plan_deployment(request(tmp_path / "a", backup="hdfs://h:1/b", workers=3), bus(), {}, print).version.number == 2
    )
    (tmp_path / "a" / "app.py").write_text("# changed")
    changed_code = plan_deployment(request(tmp_path / "a", workers=3), bus(), {}, print)

    assert (changed_code.is_new, changed_code.version.number) == (True, 2)
    assert "3 workers instead of 2" in changed_code.summary


def test_workers_receive_the_variables_of_their_version(tmp_path: Path) -> None:
    """On Kubernetes, Secrets contain them; units read them from files. Elsewhere, an unset variable is an error."""
    with_variable = request(tmp_path / "a", variables=("KAFKA_PASSWORD",))
    on_cluster = request(
        tmp_path / "a", variables=("KAFKA_PASSWORD",), target=Target.KUBERNETES, pods=PodSettings("image")
    )
    of_units = request(tmp_path / "a", variables=("KAFKA_PASSWORD",), target=Target.SYSTEMD)

    assert plan_deployment(with_variable, bus(), {"KAFKA_PASSWORD": "x", "OTHER": "y"}, print).values == {
        "KAFKA_PASSWORD": "x"
    }
    assert plan_deployment(on_cluster, bus(), {}, print).values == {}
    assert plan_deployment(of_units, bus(), {}, print).values == {}
    with pytest.raises(DeployError, match="Totals needs KAFKA_PASSWORD, which is not set"):
        plan_deployment(with_variable, bus(), {}, print)


def on_cluster(folder: Path, namespace: str | None) -> DeploymentRequest:
    """Return a request for Kubernetes."""
    return request(folder, target=Target.KUBERNETES, pods=PodSettings("image", namespace))


def test_a_deployment_stays_in_its_namespace(tmp_path: Path) -> None:
    """In another one it would run a second time, as the same processor."""
    first = plan_deployment(on_cluster(tmp_path / "a", "streams"), bus(), {}, print)
    files = DeploymentFiles(tmp_path / "d", "totals")
    files.add_version(first.version, first.code)
    files.save_desired_state(DesiredState(1, (1,)))
    plan_deployment(on_cluster(tmp_path / "a", "streams"), bus(), {}, print)
    for other in ("others", None):
        with pytest.raises(DeployError, match=r"is deployed in namespace streams.*penstock undeploy totals"):
            plan_deployment(on_cluster(tmp_path / "a", other), bus(), {}, print)


def test_deployments_of_a_cluster_have_different_objects(tmp_path: Path) -> None:
    """Names that differ in signs only would replace each other's workers, also in one command. In another namespace, they do not meet."""
    first, second = (
        replace_request(on_cluster(tmp_path / "a", "streams"), processor=changed(Totals, name=name))
        for name in ("small.totals", "small-totals")
    )
    with pytest.raises(DeployError, match=r"small-totals and small\.totals .*penstock-small-totals"):
        plan_deployments([first, second], bus(), {}, print)
    [plan] = plan_deployments([first], bus(), {}, print)
    files = DeploymentFiles(tmp_path / "d", "small.totals")
    files.add_version(plan.version, plan.code)
    files.save_desired_state(DesiredState(1, (1,)))
    with pytest.raises(DeployError, match="would replace each other"):
        plan_deployments([second], bus(), {}, print)

    plan_deployments([first], bus(), {}, print)
    elsewhere = replace_request(second, settings=on_cluster(tmp_path / "a", "others").settings)
    plan_deployments([elsewhere], bus(), {}, print)


def test_a_processor_of_the_same_name_in_another_app_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names both app files. An app that has moved can take over. The status says whose figures it shows."""
    first = plan_deployment(request(tmp_path / "a"), bus(), {}, print)
    files = DeploymentFiles(tmp_path / "d", "totals")
    files.add_version(first.version, first.code)
    files.save_desired_state(DesiredState(1, (1,)))
    with pytest.raises(NameTaken, match=r"a/app\.py, and .*b/app\.py"):
        plan_deployment(request(tmp_path / "b"), bus(), {}, print)
    for target in (Target.SYSTEMD, Target.KUBERNETES):
        with pytest.raises(
            DeployError, match=rf"deployed with --target local.*undeploy totals.*--target {target.value}"
        ):
            plan_deployment(request(tmp_path / "a", target=target), bus(), {}, print)

    assert plan_deployment(request(tmp_path / "b", take_over=True), bus(), {}, print).is_new
    for app in "ab":
        (tmp_path / app / "app.py").write_text(Path(__file__).read_text())
    observer_factory(f"{tmp_path}/a/app.py:Totals", tmp_path / "d")
    assert not capsys.readouterr().err
    observer_factory(f"{tmp_path}/b/app.py:Totals", tmp_path / "d")
    assert f"totals is deployed from {tmp_path}/a/app.py, not from {tmp_path}/b/app.py" in capsys.readouterr().err


def test_a_purge_removes_the_maintenance_log(tmp_path: Path) -> None:
    """A processor of the same name starts from the beginning."""
    stored_versions(tmp_path, 1).save_desired_state(DesiredState(1, ()))
    memory_bus = bus()
    record_maintenance(
        memory_bus,
        MaintenanceOperation("totals", Resize(6), 0, StateLineage({0: 1}, is_rebuildable=False), is_done=True),
    )
    purge(plan_purge(tmp_path, "totals", memory_bus), memory_bus)

    assert newest_maintenance(memory_bus, "totals") is None


def test_a_purge_removes_what_penstock_run_left(tmp_path: Path) -> None:
    """Its name and its state are free again. An unknown name is refused."""
    memory_bus, state = bus(), tmp_path / "state" / "totals"
    create_missing_categories(memory_bus, PROCESSORS)
    register_inputs(memory_bus, "totals", {"readings": 4})
    state.mkdir(parents=True)
    with pytest.raises(NotDeployed, match="no processor counts"):
        plan_purge(tmp_path, "counts", memory_bus)
    plan = plan_purge(tmp_path, "totals", memory_bus)
    assert any("--backup" in item for item in plan.out_of_reach)
    purge(plan, memory_bus)

    assert not state.exists()
    with pytest.raises(NotDeployed):
        plan_purge(tmp_path, "totals", memory_bus)
