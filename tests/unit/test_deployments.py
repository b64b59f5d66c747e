"""What is kept of deployments: versions and their code, what each worker is to run, values that may be secrets; and what fits what."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.deployed import kept_versions, version_of

import penstock as ps
from penstock.ops.deploy.compatibility import expect_compatible
from penstock.ops.deploy.deployments import DeploymentRequest, plan_deployment
from penstock.ops.deploy.environment import load_variables, save_variables, variable_values
from penstock.ops.deploy.errors import DeployError, IncompatibleState, NameTaken, NotDeployed
from penstock.ops.deploy.purge import plan_purge, purge
from penstock.ops.deploy.registry import DeploymentFiles, DesiredState, all_deployments, find_deployment
from penstock.ops.deploy.version import DeploymentSettings, PodSettings, Shape, Target
from penstock.processors.declare.processor import Processor
from penstock.state.files.local_files import LocalFileStore
from penstock.state.local.folder import RocksStateFolder
from penstock.state.protocols import ShardIdentity
from penstock.transport.category_spec import CategorySpec
from penstock.transport.memory import MemoryBus
from penstock.transport.tables.maintenance_log import (
    ConvertedType,
    MaintenanceOperation,
    Migration,
    Resize,
    StateLineage,
    newest_maintenance,
    record_maintenance,
)


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    street: str
    at: ps.EventTime
    litres: int


class Seen(ps.Record, frozen=True):
    """A state."""

    readings: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=4)
by_street = ps.Category("by_street", Reading, key="street", event_time="at", buckets=4)
others = ps.Category("others", Reading, key="meter", event_time="at", buckets=4)


class Totals(ps.Stateful):
    """Adds up."""

    reads, writes, state = readings, (), int

    def process(self, event: Reading, state: Any, context: ps.Context) -> tuple[Any, Iterable[ps.Record]]:
        return (state or 0) + event.litres, ()


class Hours(ps.Aggregator):
    """Adds up by hour."""

    reads = readings
    monoid: ClassVar[Any] = ps.monoids.Sum()
    window: ClassVar[Any] = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Reading) -> int:
        return event.litres


class Large(ps.Stateless):
    """Keeps nothing."""

    reads, writes = readings, others

    def process(self, event: Reading) -> Iterable[Reading]:
        return [event]


def changed(processor: type[Processor], **attributes: Any) -> type[Processor]:
    """Return a processor of the same name, declared otherwise."""
    return type(processor.__name__, (processor,), {"name": processor.name, **attributes})


def test_a_version_is_there_when_it_is_whole(tmp_path: Path) -> None:
    """What a death left of one is not seen, and its number is taken by the next."""
    records = kept_versions(tmp_path, 1)
    (records.code(2)).mkdir(parents=True)
    (records.code(2) / "half.py").write_text("half")
    assert records.numbers() == [1]
    again = kept_versions(tmp_path, 2)

    assert again.numbers() == [1, 2]
    assert again.version(2) == version_of(tmp_path, 2)
    assert [path.name for path in again.code(2).iterdir()] == ["app.py"]


def test_what_has_no_workers_is_not_deployed(tmp_path: Path) -> None:
    """And is told from what is, by name."""
    records = kept_versions(tmp_path, 1)
    assert all_deployments(tmp_path) == []
    records.stand(DesiredState(1, (1, 1)))
    [deployment] = all_deployments(tmp_path)
    assert (deployment.name, deployment.workers, deployment.target) == ("totals", 2, Target.LOCAL)
    with pytest.raises(NotDeployed, match=r"scorer is not deployed.*What is: totals"):
        find_deployment(tmp_path, "scorer")
    records.stand(DesiredState(1, ()))

    with pytest.raises(NotDeployed, match="Nothing is"):
        find_deployment(tmp_path, "totals")


def test_a_file_that_was_damaged_is_named(tmp_path: Path) -> None:
    """With what it means for the workers."""
    records = kept_versions(tmp_path, 1)
    (records.folder / "standing.json").write_text("{")

    with pytest.raises(DeployError, match=r"standing\.json cannot be read.*Workers that run are not affected"):
        all_deployments(tmp_path)


@settings(max_examples=30)
@given(
    st.text(
        st.characters(blacklist_characters="\n\r\0\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", blacklist_categories=["Cs"]),
        min_size=1,
    )
)
def test_values_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    """Whatever a password is made of."""
    path = tmp_path_factory.mktemp("kept") / "environment"
    save_variables(path, {"PENSTOCK_STORE": value, "OTHER": "plain"})

    assert load_variables(path) == {"PENSTOCK_STORE": value, "OTHER": "plain"}


def test_values_are_their_owners_alone(tmp_path: Path) -> None:
    """And a missing one is named before anything is done."""
    path = tmp_path / "environment"
    save_variables(path, variable_values(["A"], {"A": "secret"}, "Totals"))
    with pytest.raises(DeployError, match=r"Totals needs B, which is not set here\. Nothing was deployed"):
        variable_values(["A", "B"], {"A": "secret"}, "Totals")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def fits(
    processor: type[Processor], folder: Path, last: Shape | None, move: MaintenanceOperation | None = None
) -> None:
    """Ask whether state fits a processor."""
    version = None if last is None else replace(version_of(folder, 1), name=processor.name, shape=last)
    target, place = f"app.py:{processor.__name__}", LocalFileStore(folder / "backups")
    expect_compatible(processor, target, version, folder / "state", place, say=print, move=move)


UNFIT: dict[str, tuple[type[Processor], dict[str, Any]]] = {
    "another state type": (Totals, {"state": float}),
    "another key": (Totals, {"reads": by_street}),
    "other inputs": (Totals, {"reads": others}),
    "another window": (Hours, {"window": ps.windows.Tumbling(timedelta(hours=2))}),
    "another monoid": (Hours, {"monoid": ps.monoids.Max()}),
}


@pytest.mark.parametrize("how", UNFIT)
def test_what_the_state_does_not_fit_is_refused_with_the_choices(tmp_path: Path, how: str) -> None:
    """Before anything is changed; the version that runs is named."""
    processor, attributes = UNFIT[how]
    fits(processor, tmp_path, Shape.of(processor))
    with pytest.raises(IncompatibleState) as refused:
        fits(changed(processor, **attributes), tmp_path, Shape.of(processor))

    said = str(refused.value)
    assert f"{processor.name}@1" in said
    assert f'`name = "{processor.name}_2"`' in said
    assert f"penstock bootstrap app.py:{processor.__name__}" in said
    command = f"`penstock state migrate app.py:Totals --by FILE:FUNCTION --dir {tmp_path} --backup {tmp_path}/backups`"
    assert (f"`penstock undeploy totals`, {command}" in said) == (how == "another state type")


def test_after_a_migration_the_version_of_before_stands_against_nothing(tmp_path: Path) -> None:
    """Where its states hold what is declared now; and only then."""
    now, before = changed(Totals, state=float), Shape.of(Totals)
    moved = MaintenanceOperation(
        "totals",
        Migration("float by meter"),
        0,
        StateLineage({0: 1}, converted=ConvertedType("float by meter", {0: 1})),
        is_done=True,
    )
    fits(now, tmp_path, before, moved)
    with pytest.raises(IncompatibleState):
        fits(changed(Totals, state=str), tmp_path, before, moved)
    state = RocksStateFolder(tmp_path / "state").open(ShardIdentity("totals", 0, "float by meter"))
    state.save({b"m1": msgspec.msgpack.encode(1.5)})
    state.close()
    fits(now, tmp_path, before, moved)
    with pytest.raises(IncompatibleState, match=r"holds float by meter.*`penstock state migrate"):
        fits(Totals, tmp_path, before, moved)


def test_what_keeps_nothing_may_read_anything(tmp_path: Path) -> None:
    """A stateless processor has nothing that other inputs would not fit."""
    fits(changed(Large, reads=by_street), tmp_path, Shape.of(Large))


def test_state_of_a_processor_that_was_never_deployed_is_looked_at(tmp_path: Path) -> None:
    """It may have been run by hand; also where only the fields of a record have changed, which its name does not tell."""
    counting = changed(Totals, state=Seen)
    state = RocksStateFolder(tmp_path / "state").open(ShardIdentity("totals", 0, counting.state_shape() or ""))
    state.save({b"m1": msgspec.msgpack.encode(Seen(3))})
    state.close()
    fits(counting, tmp_path, None)
    with pytest.raises(IncompatibleState, match=r"totals, bucket 0.*holds Seen by meter.*int by meter"):
        fits(Totals, tmp_path, None)
    other = msgspec.defstruct("Seen", [("meters", int)], bases=(ps.Record,), frozen=True)
    with pytest.raises(IncompatibleState, match=r"cannot be decoded.*stop its workers, `penstock state migrate"):
        fits(changed(Totals, state=other), tmp_path, None)
    more = msgspec.defstruct("Seen", [("readings", int), ("meters", int, 0)], bases=(ps.Record,), frozen=True)

    fits(changed(Totals, state=more), tmp_path, None)


def bus() -> MemoryBus:
    """Return a bus with the categories."""
    bus = MemoryBus()
    for name in ("readings", "others", "by_street"):
        bus.catalog.create(CategorySpec(name, 4))
    return bus


def wanted(folder: Path, *, takes_over: bool = False, workers: int | None = None, **how: Any) -> DeploymentRequest:
    """Return what deploys the totals."""
    app = folder / "app.py"
    folder.mkdir(exist_ok=True)
    app.touch()
    chosen = {"target": Target.SYSTEMD, **how}
    return DeploymentRequest(
        app,
        Totals,
        DeploymentSettings("broker:9092", str(folder.parent / "d"), str(folder), **chosen),
        workers,
        takes_over,
    )


def test_what_is_deployed_already_is_left_as_it_is(tmp_path: Path) -> None:
    """The same code under the same settings is no new version; other code or settings are."""
    first = plan_deployment(wanted(tmp_path / "a", workers=2), bus(), {}, print)
    records = DeploymentFiles(tmp_path / "d", "totals")
    records.add(first.version, first.code)
    records.stand(DesiredState(1, (1, 1)))
    again = plan_deployment(wanted(tmp_path / "a"), bus(), {}, print)
    assert (again.is_new, again.version.number, again.workers) == (False, 1, 2)
    assert "deployed already" in again.says
    assert (
        plan_deployment(wanted(tmp_path / "a", backup="hdfs://h:1/b", workers=3), bus(), {}, print).version.number == 2
    )
    (tmp_path / "a" / "app.py").write_text("# changed")
    changed_code = plan_deployment(wanted(tmp_path / "a", workers=3), bus(), {}, print)

    assert (changed_code.is_new, changed_code.version.number) == (True, 2)
    assert "3 workers instead of 2" in changed_code.says


def test_workers_are_given_the_variables_that_a_version_names(tmp_path: Path) -> None:
    """On a cluster Secrets have them; one that is not set is asked for."""
    with_variable = wanted(tmp_path / "a", variables=("KAFKA_PASSWORD",))
    on_cluster = wanted(
        tmp_path / "a", variables=("KAFKA_PASSWORD",), target=Target.KUBERNETES, pods=PodSettings("image")
    )

    assert plan_deployment(with_variable, bus(), {"KAFKA_PASSWORD": "x", "OTHER": "y"}, print).values == {
        "KAFKA_PASSWORD": "x"
    }
    assert plan_deployment(on_cluster, bus(), {}, print).values == {}
    with pytest.raises(DeployError, match="Totals needs KAFKA_PASSWORD, which is not set"):
        plan_deployment(with_variable, bus(), {}, print)


def test_another_apps_processor_of_that_name_is_a_clash(tmp_path: Path) -> None:
    """Both files are named; an app that has moved takes over."""
    first = plan_deployment(wanted(tmp_path / "a"), bus(), {}, print)
    records = DeploymentFiles(tmp_path / "d", "totals")
    records.add(first.version, first.code)
    records.stand(DesiredState(1, (1,)))
    with pytest.raises(NameTaken, match=r"a/app\.py, and .*b/app\.py"):
        plan_deployment(wanted(tmp_path / "b"), bus(), {}, print)
    with pytest.raises(DeployError, match=r"deployed with --target systemd.*undeploy totals"):
        plan_deployment(wanted(tmp_path / "a", target=Target.LOCAL), bus(), {}, print)

    assert plan_deployment(wanted(tmp_path / "b", takes_over=True), bus(), {}, print).is_new


def test_what_was_purged_was_never_moved(tmp_path: Path) -> None:
    """A processor of its name begins anew, whatever was done to its states."""
    kept_versions(tmp_path, 1).stand(DesiredState(1, ()))
    there = bus()
    record_maintenance(
        there, MaintenanceOperation("totals", Resize(6), 0, StateLineage({0: 1}, is_rebuildable=False), is_done=True)
    )
    purge(plan_purge(tmp_path, "totals", there), there)

    assert newest_maintenance(there, "totals") is None
