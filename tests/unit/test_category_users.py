"""The running readers and writers of a category, before it is deleted."""

from __future__ import annotations

from pathlib import Path

from support.statuses import NODE, cluster_status, processor_status

from penstock.ops.categories.commands.category_users import running_users, users_in
from penstock.ops.deploy import DeployedProcessor
from penstock.ops.kernel import Node
from penstock.transport.memory import MemoryBus


def test_running_and_deployed_processors_are_named() -> None:
    """Stopped processors are not named, and a category without users needs no warning."""
    reader = Node("reader", "stateless", ("scored",), (), "reader.dead_letters", 1.0)
    crashed = Node("crashed", "stateless", ("scored",), (), "crashed.dead_letters", 1.0)
    stopped = Node("stopped", "stateless", ("scored",), (), "stopped.dead_letters", 1.0)
    cluster = cluster_status(
        processor_status(node=NODE),
        processor_status(node=reader),
        processor_status(node=crashed, workers=(), deployed=DeployedProcessor("crashed@1", 1)),
        processor_status(node=stopped, workers=(), deployed=DeployedProcessor("", 0)),
    )

    assert users_in(cluster, "scored") == (
        "scored is read by reader, crashed and written by scorer, which run and will fail without it."
    )
    assert users_in(cluster, "enriched") == "enriched is read by scorer, which runs and will fail without it."
    assert not users_in(cluster, "others")


def test_a_cluster_on_which_nothing_has_run_stays_as_it_is(tmp_path: Path) -> None:
    """No category of reports is created to find that out."""
    bus = MemoryBus()

    assert not running_users(bus, tmp_path, "clicks")
    assert not bus.names()
