"""Monitoring: the status of processors, their findings and metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry
from support.outages import FailingBus
from support.statuses import NODE, NOW_MS, cluster_status, processor_status, report, shard_status, worker_status

import penstock as ps
from penstock.ops.kernel import REPORTS, Node, OutageTracker, Report, node_of
from penstock.ops.kernel.process.identity import count_restart
from penstock.ops.kernel.telemetry.exposition import COUNTERS, GAUGES, HISTOGRAMS
from penstock.ops.kernel.telemetry.reports import report_message
from penstock.ops.status import ClusterStatus, Observer, ProcessorStatus, status_to_json
from penstock.ops.status.bus_figures import REGISTRATIONS_INTERVAL_MS
from penstock.ops.status.finding import Severity
from penstock.ops.status.findings import findings_of
from penstock.ops.status.graph import GraphFormat, draw_graph
from penstock.ops.status.metrics import (
    BUCKET_METRICS,
    PROCESSOR_METRICS,
    SERVER_METRICS,
    WORKER_METRICS,
    MetricDefinition,
)
from penstock.ops.status.observer import upstream_first
from penstock.ops.status.prometheus import StatusCollector
from penstock.processors import PROCESSOR_ROWS, Counts
from penstock.transport import (
    Bucket,
    BusError,
    BusUnreachable,
    CategorySpec,
    Outgoing,
    Position,
    create_missing_categories,
)
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import PROCESSORS, ShardRecord, record_shards, register_inputs

DOCS = Path(__file__).parents[2] / "docs"


def replace_node(**given: Any) -> Node:
    return msgspec.structs.replace(NODE, **given)


class World:
    """A memory bus with a steered clock, and the input of a processor: two buckets, a retention of one hour."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.bus = FailingBus(lambda: self.now_ms)
        create_missing_categories(self.bus, REPORTS, PROCESSORS)
        register_inputs(self.bus, NODE.name, {"enriched": 2})
        self.bus.catalog.create(CategorySpec("enriched", 2, timedelta(hours=1)))

    def send(self, bucket: int, count: int) -> None:
        self._write("enriched", [Outgoing(b"k", b"v", bucket)] * count)

    def report(self, *reports: Report, clock_error_s: float = 0.0) -> None:
        now_ms = self.now_ms
        for each in reports:
            self.now_ms = each.at_ms - int(clock_error_s * 1000)
            self._write(REPORTS.name, [report_message(each)])
        self.now_ms = now_ms

    def _write(self, category: str, messages: Any) -> None:
        with closing(self.bus.writer()) as writer:
            writer.send(category, messages)
            writer.flush()

    def commit(self, bucket: int, offset: int) -> None:
        self.bus.catalog.set_committed(NODE.name, [Position(Bucket("enriched", bucket), offset)])

    @contextmanager
    def observer(self) -> Iterator[Observer]:
        with closing(Observer.open(self.bus, [NODE], now_ms=lambda: self.now_ms)) as observer:
            yield observer

    def observe(self) -> ProcessorStatus:
        with self.observer() as observer:
            return observer.observe().processors[0]


def test_backlog_and_lag_follow_from_committed_offsets() -> None:
    """They are correct also without workers."""
    world = World()
    world.send(0, 5)
    world.now_ms += 30_000
    world.send(0, 5)
    world.send(1, 3)
    world.commit(0, 4)
    world.now_ms += 60_000
    status = world.observe()

    assert [(shard.bucket, shard.backlog_events, shard.lag_s, shard.owner) for shard in status.shards] == [
        (0, 6, 90.0, ""),
        (1, 3, 60.0, ""),
    ]
    assert [shard.retention_remaining_s for shard in status.shards] == [3_600 - 90, 3_600 - 60]
    assert (status.backlog_events, status.lag_s, status.backlog_bytes, status.workers) == (9, 90.0, None, ())


def test_a_bucket_with_an_open_transaction_is_blocked() -> None:
    """Its lag is the age of the transaction, and a finding and a metric name the cause; a reader before it is only late."""
    world = World()
    for bucket in (0, 1):
        world.send(bucket, 3)
    writer = world.bus.transactional_writer("foreign", None, 900, ["enriched"])
    writer.send("enriched", [Outgoing(b"k", b"v", 0), Outgoing(b"k", b"v", 1)])
    writer.flush()
    world.commit(0, 3)
    world.commit(1, 1)
    world.now_ms += 40_000
    world.report(report(world.now_ms, 0))
    status = world.observe()
    [finding] = [found for found in findings_of([status]) if found.kind in {"blocked", "lag", "skew"}]
    writer.abort()

    assert [bool(shard.blocked_by) for shard in status.shards] == [True, False]
    assert [shard.lag_s for shard in status.shards] == [40.0, 40.0]
    assert finding.message.startswith(
        "It waits. enriched/0 cannot be read from offset 3 on: a transaction has been open there for 40 s."
    )
    assert PROCESSOR_METRICS["buckets_blocked"].of(status) == 1
    assert not any(shard.blocked_by for shard in world.observe().shards)


OTHER = msgspec.structs.replace(NODE, name="other")


_QUERIES = {"names", "describe", "describe_all", "committed", "committed_of", "waiting_since"}


class FailingCatalog:
    """A bus whose catalog fails for some queries: `fails` decides by the method's name and its first argument."""

    def __init__(self, bus: MemoryBus, fails: Callable[[str, object], bool]) -> None:
        self._bus = bus
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._bus, name)
        if name == "catalog":
            return self

        def query(*arguments: object) -> object:
            first = arguments[0] if arguments else None
            asked = [(name, first)]
            if name == "describe_all":
                asked = [("describe", each) for each in cast("list[str]", first)]
            elif name == "committed_of":
                asked = [("committed", group) for group, _ in cast("list[tuple[str, str]]", first)]
            if any(self._fails(*each) for each in asked):
                raise BusError(f"{name} failed.")
            return found(*arguments)

        return query if name in _QUERIES else found


def observe_two(world: World, fails: Callable[[str, object], bool]) -> ClusterStatus:
    """Return the status of two processors with different committed offsets in one bucket."""
    world.send(0, 10)
    world.commit(0, 4)
    world.bus.catalog.set_committed("other", [Position(Bucket("enriched", 0), 7)])
    world.now_ms += 60_000
    with closing(
        Observer.open(FailingCatalog(world.bus, fails), [NODE, OTHER], now_ms=lambda: world.now_ms)
    ) as observer:
        return observer.observe()


def test_processors_with_different_offsets_in_one_bucket_have_their_own_lag() -> None:
    """Committed offsets belong to one processor."""
    status = observe_two(World(), lambda _name, _argument: False).processors

    assert [(status.node.name, status.backlog_events, status.lag_s, status.failed_queries) for status in status] == [
        ("other", 3, 60.0, ()),
        ("scorer", 6, 60.0, ()),
    ]


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        pytest.param(lambda name, argument: (name, argument) == ("committed", "other"), (None, None), id="positions"),
        pytest.param(lambda name, _: name == "waiting_since", (3, None), id="waiting"),
    ],
)
def test_a_failed_query_affects_no_other_figure(
    fails: Callable[[str, object], bool], expected: tuple[int | None, float | None]
) -> None:
    """The figure is unknown, and a finding names the query; other problems are found."""
    cluster = observe_two(World(), fails)
    other, scorer = cluster.processors

    assert (other.backlog_events, other.lag_s) == expected
    assert scorer.backlog_events == 6
    assert "other" in {finding.processor for finding in cluster.findings if finding.kind == "unknown"}
    assert "scorer" in {finding.processor for finding in cluster.findings if finding.kind == "not running"}
    assert "unknown" in draw_graph([other], GraphFormat.TEXT)


def test_dead_letters_are_counted_although_a_category_with_a_longer_name_is_unknown() -> None:
    """The processor has no dead letters yet; the failed query concerns an input whose name contains theirs."""
    world = World()
    node = replace_node(inputs=("enriched", f"{NODE.dead_letters}-copies"))
    world.bus.catalog.create(CategorySpec(node.inputs[1], 2))
    failing = FailingCatalog(world.bus, lambda name, argument: (name, argument) == ("describe", node.inputs[1]))
    with closing(Observer.open(failing, [node], now_ms=lambda: world.now_ms)) as observer:
        status = observer.observe().processors[0]

    assert (len(status.failed_queries), status.dead_letters) == (1, 0)


def test_unreadable_dead_letters_are_unknown() -> None:
    """Their number is not reported as zero."""
    world = World()
    world.bus.catalog.create(CategorySpec(NODE.dead_letters, 2))
    cluster = observe_two(world, lambda name, argument: (name, argument) == ("describe", NODE.dead_letters))

    assert [status.dead_letters for status in cluster.processors if status.node.name == NODE.name] == [None]


def test_an_unreadable_category_is_not_reported_as_missing() -> None:
    """The figures of its readers are unknown."""
    cluster = observe_two(World(), lambda name, argument: (name, argument) == ("describe", "enriched"))

    assert [(status.backlog_events, status.lag_s) for status in cluster.processors] == [(None, None), (None, None)]
    assert {finding.kind for finding in cluster.findings} == {"unknown"}


def test_an_outage_of_kafka_fails_the_observation() -> None:
    """The observer raises the error instead of a status in which every figure is unknown."""
    with pytest.raises(BusError):
        observe_two(World(), lambda name, _: name == "names")


def test_the_lag_follows_the_committed_offset() -> None:
    """The cached arrival time of one position is not used for another."""
    world = World()
    world.send(0, 5)
    world.now_ms += 30_000
    world.send(0, 5)
    with world.observer() as observer:
        lags_s = [observer.observe().processors[0].lag_s]
        world.commit(0, 5)
        lags_s.append(observer.observe().processors[0].lag_s)
        world.commit(0, 10)
        lags_s.append(observer.observe().processors[0].lag_s)

    assert lags_s == [30.0, 0.0, 0.0]


def test_owners_and_throughput_follow_from_reports() -> None:
    """A rate is the difference between the first and the last report of one process within a minute."""
    world = World()
    world.send(0, 10)
    world.report(report(NOW_MS - 70_000, 0), report(NOW_MS - 10_000, 1_000), report(NOW_MS, 1_500))
    status = world.observe()

    assert [shard.owner for shard in status.shards] == ["one", ""]
    assert status.per_s.events_in == status.shards[0].events_in_per_s == 50.0
    assert (status.per_s.bytes_in, status.per_s.events_out) == (5_000.0, 25.0)
    assert status.backlog_bytes == 1_000


def test_a_recreated_input_is_reported_until_the_processor_registers_the_new_topic() -> None:
    """The report needs no worker, because a worker would only idle."""
    world = World()
    catalog = world.bus.catalog
    record_shards(world.bus, NODE.name, {0: ShardRecord({"enriched": catalog.describe("enriched").topic_id})})
    with world.observer() as observer:
        before = observer.observe()
        catalog.delete("enriched")
        catalog.create(CategorySpec("enriched", 2))
        recreated = observer.observe()
        record_shards(world.bus, NODE.name, {0: ShardRecord({"enriched": catalog.describe("enriched").topic_id})})
        world.now_ms += REGISTRATIONS_INTERVAL_MS
        after = observer.observe()

    assert [finding.kind for finding in (*before.findings, *after.findings)] == []
    [finding] = recreated.findings
    assert (finding.kind, finding.severity) == ("recreated", Severity.CRITICAL)
    assert recreated.processors[0].backlog_events is None  # the positions are those of another topic
    assert "enriched was deleted and created again" in finding.message
    assert "penstock reset" in finding.message


WRITER = replace_node(local_outputs=NODE.outputs)


@pytest.mark.parametrize(
    ("failure", "kinds"),
    [
        ({}, ["no output"]),
        ({"end_reason": "1 message to scored not delivered."}, ["no output"]),
        ({"restarts_ms": (NOW_MS + 597_000, NOW_MS + 598_000, NOW_MS + 599_000)}, ["no output"]),
        ({"end_reason": "stopped"}, ["stopped"]),
        ({"node": NODE}, ["skew"]),  # the report of an earlier version
    ],
)
def test_a_deleted_output_is_one_finding(failure: dict[str, Any], kinds: list[str]) -> None:
    """The processor should run, so its failures and its lag are consequences."""
    world = World()
    world.send(0, 10)
    world.now_ms += 600_000
    world.bus.catalog.create(CategorySpec("scored", 1))
    world.report(report(world.now_ms, **{"node": WRITER, **failure}))
    with world.observer() as observer:
        before = observer.observe()
        world.bus.catalog.delete("scored")
        [finding] = after = observer.observe().findings

    assert "no output" not in [each.kind for each in before.findings]
    assert [each.kind for each in after] == kinds
    if kinds == ["no output"]:
        assert finding.severity == Severity.CRITICAL
        for words in ("output scored does not exist", "its backlog is 10 events", "`penstock category create`"):
            assert words in finding.message


def test_outputs_on_other_clusters_are_not_missing() -> None:
    """The observer reads the cluster of the inputs only."""

    class Click(ps.Record, frozen=True):
        user: str
        at: ps.EventTime

    class Copies(ps.Stateless):
        reads = ps.Category("clicks", Click, key="user", event_time="at")
        writes = (
            ps.Category("copied", Click, key="user", event_time="at"),
            ps.Category("billed", Click, key="user", event_time="at", cluster="billing"),
        )

        def process(self, event: Click) -> list[Click]:
            return [event]

    assert (node_of(Copies).outputs, node_of(Copies).local_outputs) == (("copied", "billed"), ("copied",))


def test_a_restarted_process_counts_from_zero() -> None:
    """A rate never spans two processes."""
    world = World()
    world.report(
        report(NOW_MS - 20_000, 9_000),
        *(report(NOW_MS - ms, 100 - ms // 100, started_ms=NOW_MS - 9_000) for ms in (8_000, 0)),
    )

    assert world.observe().per_s.events_in == 80 / 8


def test_rates_cover_the_configured_window() -> None:
    """A shorter window shows the effect of a recent change."""
    world = World()
    ends = ((20_000, 0), (4_000, 16), (2_000, 116), (0, 216))
    world.report(*(report(NOW_MS - before_ms, events) for before_ms, events in ends))
    with closing(Observer.open(world.bus, [NODE], now_ms=lambda: world.now_ms, rate_window_s=3.0)) as observer:
        recent = observer.observe().processors[0].per_s.events_in

    assert recent == 100 / 2
    assert world.observe().per_s.events_in == 216 / 20


def test_a_worker_is_busy_idle_or_blocked() -> None:
    """These are shares of the time between its reports, and are unknown after a single one."""
    world = World()
    world.report(report(NOW_MS - 10_000, idle_s=1.0, blocked_s=2.0))
    [started] = world.observe().workers
    world.report(report(NOW_MS, idle_s=4.0, blocked_s=4.0))
    [worker] = world.observe().workers

    assert (started.idle_share, started.blocked_share, started.busy_share) == (None, None, None)
    assert (worker.idle_share, worker.blocked_share, worker.busy_share) == pytest.approx((0.3, 0.2, 0.5))


def test_programs_get_what_follows_from_the_figures_of_a_worker() -> None:
    """They get whether it is silent, so neither they nor the page compute this again."""
    running, silent = (
        worker_status(idle_share=0.25, busy_share=0.5),
        worker_status("two", report_age_s=2_000.0, outage_s=1_900.0),
    )
    [processor] = status_to_json(cluster_status(processor_status(shard_status(), workers=(running, silent))))[
        "processors"
    ]

    assert [(worker["busy_share"], worker["is_silent"]) for worker in processor["workers"]] == [
        (0.5, False),
        (None, True),
    ]


def test_a_silent_worker_owns_no_bucket_and_has_no_throughput() -> None:
    """It may not have reported its end."""
    world = World()
    world.report(report(NOW_MS - 4_000, 0), report(NOW_MS, 1_000))
    world.now_ms += 21_000
    status = world.observe()

    assert (status.running_workers, status.per_s.events_in, status.shards[0].owner) == ((), 0.0, "")
    assert [finding.kind for finding in findings_of([status])] == ["lost"]


@pytest.mark.parametrize("error_s", [-300.0, 300.0])
def test_a_wrong_clock_of_a_worker_changes_nothing(error_s: float) -> None:
    """The bus's time of arrival decides whether it is silent; its own times are relative to its reports."""
    right, wrong = World(), World()
    for world, clock_error_s in ((right, 0.0), (wrong, error_s)):
        now_ms = NOW_MS + int(clock_error_s * 1000)
        times: dict[str, Any] = {
            "started_ms": now_ms - 90_000,
            "last_checkpoint_ms": now_ms - 8_000,
            "restarts_ms": (now_ms - 95_000,),
        }
        world.report(report(now_ms - 7_000, **times), clock_error_s=clock_error_s)

    assert wrong.observe().workers == right.observe().workers
    assert right.observe().running_workers


@contextmanager
def outage(world: World) -> Iterator[None]:
    """Let the bus not answer within the context, which lasts a minute."""
    world.bus.error = BusUnreachable("No broker answers.")
    yield
    world.bus.error = None
    world.now_ms += 60_000


def test_an_outage_is_no_silence() -> None:
    """A worker cannot report meanwhile. It is silent if it does not report after it, or did not before."""
    world = World()
    world.report(report(NOW_MS - 30_000, worker="killed"), report(NOW_MS))
    with world.observer() as observer:
        observer.observe()
        with outage(world), pytest.raises(BusUnreachable):
            observer.observe()
        after = observer.observe().processors[0]
        world.now_ms += 21_000
        later = observer.observe().processors[0]

    assert [(worker.worker, worker.is_silent) for worker in after.workers] == [("killed", True), ("one", False)]
    assert after.shards[0].owner == "one"
    assert [worker.is_silent for worker in later.workers] == [True, True]


def test_an_outage_before_the_first_observation_is_no_silence() -> None:
    """A command that has waited for Kafka reports no lost worker."""
    world = World()
    world.report(report(NOW_MS))
    outages = OutageTracker()

    def open_observer() -> Observer:
        return Observer.open(world.bus, [NODE], now_ms=lambda: world.now_ms, outages=outages)

    with outage(world), pytest.raises(BusUnreachable):
        open_observer()
    with closing(open_observer()) as observer:
        after = observer.observe().processors[0]

    assert len(after.running_workers) == 1
    assert world.observe().running_workers == ()


@pytest.mark.parametrize("reports_again", [True, False])
def test_a_single_observation_after_an_outage_waits_for_a_report(reports_again: bool) -> None:
    """If a worker reports, the others were silent for the same reason. Otherwise they are lost."""
    world = World()
    world.report(
        report(NOW_MS, worker="one"), report(NOW_MS - 2_000, worker="two"), report(NOW_MS - 90_000, worker="killed")
    )
    world.now_ms += 600_000

    def pause(seconds: float) -> None:
        world.now_ms += int(seconds * 1000)
        if reports_again:
            world.report(report(world.now_ms, worker="one"))

    with world.observer() as observer:
        [status] = observer.observe_once(pause).processors

    silent = [worker.worker for worker in status.workers if worker.is_silent]
    expected = ("running", ["killed"]) if reports_again else ("lost", ["one", "two", "killed"])
    assert (status.state.value, silent) == expected


def test_a_single_observation_does_not_wait_while_a_worker_reports() -> None:
    """The report of any processor shows that Kafka has answered, so a silent worker is silent."""
    world = World()
    world.report(report(NOW_MS), report(NOW_MS + 600_000, node=OTHER))
    world.now_ms += 601_000
    waited_s: list[float] = []
    with closing(Observer.open(world.bus, now_ms=lambda: world.now_ms)) as observer:
        states = {status.node.name: status.state.value for status in observer.observe_once(waited_s.append).processors}

    assert waited_s == []
    assert states == {"scorer": "lost", "other": "running"}


def test_a_worker_without_a_report_for_an_hour_is_omitted() -> None:
    """An observer that has already read its reports omits it, too."""
    world = World()
    world.report(report(NOW_MS, end_reason="No space left."))
    with world.observer() as observer:
        before = observer.observe().processors[0].workers
        world.now_ms += 3_601_000
        after = observer.observe().processors[0].workers

    assert ([worker.end_reason for worker in before], after) == (["No space left."], ())


def test_a_watermark_stall_is_measured_only_during_a_backlog() -> None:
    """It is measured from one observation to the next."""
    world = World()
    stalls_s = []
    with world.observer() as observer:
        for sent, passed_ms in ((0, 60_000), (5, 60_000), (0, 60_000)):
            world.send(0, sent)
            stalls_s.append(observer.observe().processors[0].watermark_stall_s)
            world.now_ms += passed_ms
        stalls_s.append(observer.observe().processors[0].watermark_stall_s)

    assert stalls_s == [0.0, 0.0, 60.0, 120.0]


def test_without_an_app_all_reporting_processors_are_observed() -> None:
    """Upstream ones come first. With an app, only its processors are observed."""
    world = World()
    downstream = replace_node(name="a", inputs=("scored",), outputs=("ranked",))
    world.report(report(NOW_MS, node=downstream), report(NOW_MS))
    with closing(Observer.open(world.bus, now_ms=lambda: world.now_ms)) as of_all:
        all_names = [status.node.name for status in of_all.observe().processors]
    with closing(Observer.open(world.bus, [NODE], include_others=False, now_ms=lambda: world.now_ms)) as of_app:
        app_names = [status.node.name for status in of_app.observe().processors]

    assert (all_names, app_names) == (["scorer", "a"], ["scorer"])


def test_processors_in_a_cycle_are_ordered_by_name() -> None:
    """Two processors that read each other's outputs have no upstream order."""
    first, second = (
        replace_node(name="b", inputs=("x",), outputs=("y",)),
        replace_node(name="a", inputs=("y",), outputs=("x",)),
    )

    assert upstream_first([first, second]) == [second, first]


BACKLOG: dict[str, Any] = {"backlog_events": 1_200, "backlog_bytes": 5_000_000, "lag_s": 600.0}


@pytest.mark.parametrize(
    ("status", "kind", "severity", "words"),
    [
        (
            processor_status(shard_status(**BACKLOG, owner=""), workers=()),
            "not running",
            Severity.CRITICAL,
            "its backlog is 1,200 events (about 5.0 MB)",
        ),
        (processor_status(workers=()), "no input", Severity.CRITICAL, "enriched"),
        (
            processor_status(shard_status(), workers=(worker_status(end_reason="No space left."),)),
            "failed",
            Severity.CRITICAL,
            "failed 1 s ago: No space left.",
        ),
        (
            processor_status(shard_status(), workers=(worker_status(), worker_status("two", report_age_s=60, pid=7))),
            "silent",
            Severity.CRITICAL,
            "process 7",
        ),
        (
            processor_status(shard_status(), shard_status(1, owner="", backlog_events=3, lag_s=1.0)),
            "without owner",
            Severity.WARNING,
            "bucket 1",
        ),
        (
            processor_status(shard_status(**BACKLOG)),
            "lag",
            Severity.WARNING,
            "Its backlog is 1,200 events (about 5.0 MB); its lag is 10 min (bucket 0); it reads nothing",
        ),
        (
            processor_status(
                shard_status(backlog_events=600, lag_s=40.0), workers=(worker_status(per_s=Counts(events_in=1.5)),)
            ),
            "lag",
            Severity.WARNING,
            "its lag is 40 s (bucket 0); its throughput is 1.5 events/s",
        ),
        (
            processor_status(
                shard_status(backlog_events=8, lag_s=9.0, owner=""),
                workers=(worker_status(), worker_status("two", report_age_s=60, deployment="s@1")),
            ),
            "silent",
            Severity.CRITICAL,
            (
                "No worker owns bucket 0 with a backlog of 8 events; others take over when the session times out. If the process still exists, end it "
                "with `kill -9 7` on here, and its supervisor restarts it."
            ),
        ),
        (
            processor_status(shard_status(), workers=(worker_status(restarts=1),)),
            "restarted",
            Severity.NOTE,
            "worker one (1 time)",
        ),
        (
            processor_status(
                shard_status(backlog_events=1, lag_s=200, retention_remaining_s=100.0),
                workers=(worker_status(per_s=Counts(events_in=1.0)),),
            ),
            "retention",
            Severity.CRITICAL,
            "in 100 s",
        ),
        (
            processor_status(
                shard_status(backlog_events=1, lag_s=80.0),
                workers=(worker_status(per_s=Counts(events_in=5.0), checkpoint_age_s=90.0),),
            ),
            "checkpoint",
            Severity.WARNING,
            "no checkpoint for 80 s",
        ),
        (
            processor_status(shard_status(held_by="filterer/1", low_watermark_ms=NOW_MS - 3_600_000)),
            "held back",
            Severity.NOTE,
            "filterer/1",
        ),
        (
            processor_status(
                shard_status(held_by="readings/0, which has had 3 of the 8 events", low_watermark_ms=None),
                workers=(worker_status(started_ms=NOW_MS - 61_000),),
            ),
            "no watermark",
            Severity.NOTE,
            "held back by readings/0, which has had 3 of the 8 events",
        ),
        (
            processor_status(shard_status(backup_age_s=400.0), workers=(worker_status(backup_interval_s=60.0),)),
            "backup",
            Severity.WARNING,
            "no new backup for 6 min",
        ),
        (
            processor_status(shard_status(), shard_status(1), shard_status(2, **BACKLOG)),
            "skew",
            Severity.WARNING,
            "Bucket 2, owned by worker one, lags 10 min",
        ),
        (
            processor_status(shard_status(), workers=(worker_status(per_s=Counts(dead_letters=0.5)),), dead_letters=9),
            "dead letters",
            Severity.WARNING,
            "30 events per minute; 9 dead letters are pending",
        ),
        (
            processor_status(
                shard_status(), workers=(worker_status(per_s=Counts(dead_letters=0.5, events_in=2.0)),), dead_letters=9
            ),
            "dead letters",
            Severity.WARNING,
            "30 events per minute, 25.0% of its input; 9 dead letters are pending",
        ),
        (
            processor_status(shard_status(), dead_letters=50_000),
            "dead letters",
            Severity.NOTE,
            "50,000 dead letters of this processor are pending",
        ),
        (
            processor_status(shard_status(), workers=(worker_status(restarts=3, crash_loop_since_ms=NOW_MS - 60_000),)),
            "crash-looping",
            Severity.CRITICAL,
            "3 times in 60 s",
        ),
        (
            processor_status(
                shard_status(), workers=(worker_status(deployment="s@1"), worker_status("two", deployment="s@2"))
            ),
            "versions",
            Severity.NOTE,
            "s@1, s@2",
        ),
    ],
)
def test_each_problem_has_one_finding_with_its_figures(
    status: ProcessorStatus, kind: str, severity: Severity, words: str
) -> None:
    """The kind and the severity are stable; the message contains the figures."""
    [finding] = findings_of([status])

    assert (finding.kind, finding.severity) == (kind, severity)
    assert words in finding.message


def test_a_recreated_input_is_one_incident() -> None:
    """Its workers may also fail for that reason."""
    looping = (worker_status(restarts=3, crash_loop_since_ms=NOW_MS - 60_000, end_reason="another topic"),)
    status = processor_status(shard_status(backlog_events=None), workers=looping, recreated_inputs=("enriched",))

    assert [finding.kind for finding in findings_of([status])] == ["recreated"]


def test_a_bucket_that_waits_for_an_owner_is_one_incident() -> None:
    """More workers would not help, for example just after an outage."""
    status = processor_status(shard_status(), shard_status(1, **{**BACKLOG, "owner": ""}), shard_status(2, **BACKLOG))

    assert [finding.kind for finding in findings_of([status])] == ["without owner"]


def test_processors_without_problems_have_no_findings() -> None:
    """A new worker, an old checkpoint without a backlog, and an event in the first half of a short retention are no problems."""
    well = processor_status(
        shard_status(backlog_events=10, lag_s=2.0, retention_remaining_s=58.0),
        shard_status(1, idle=True, low_watermark_ms=0, held_by="x"),
    )
    stopped = processor_status(
        shard_status(),
        workers=(
            worker_status(checkpoint_age_s=9_000.0),
            worker_status("two", end_reason="stopped", report_age_s=3_000.0),
        ),
    )

    saved = processor_status(
        shard_status(),
        shard_status(1, backlog_events=4, lag_s=0.5),
        workers=(worker_status(per_s=Counts(events_in=9.0), checkpoint_age_s=55.0),),
    )
    begun = processor_status(
        shard_status(held_by="x has had none", low_watermark_ms=None),
        workers=(worker_status(started_ms=NOW_MS - 1_000),),
    )

    assert findings_of([well, stopped, saved, begun]) == ()


def test_findings_are_ordered_by_severity() -> None:
    """Processors of the same severity are ordered by name."""
    warning, critical = (
        processor_status(shard_status(**BACKLOG)),
        processor_status(shard_status(**BACKLOG, owner=""), workers=()),
    )
    critical = replace(critical, node=replace_node(name="z"))

    assert [(finding.severity, finding.processor) for finding in findings_of([warning, critical])] == [
        (Severity.CRITICAL, "z"),
        (Severity.WARNING, "scorer"),
    ]


def test_only_restarts_after_failures_count(tmp_path: Path) -> None:
    """The next start detects a crash or a kill."""
    starts = tmp_path / "0.starts"
    counts = []
    for crashes in (False, True, False, True, False):
        with suppress(RuntimeError), count_restart(starts) as restarts_ms:
            counts.append(len(restarts_ms))
            if crashes:
                raise RuntimeError
    starts.write_bytes(b"torn")
    with count_restart(starts) as restarts_ms:
        counts.append(len(restarts_ms))

    assert counts == [0, 0, 1, 1, 2, 0]


def test_crashes_of_another_version_do_not_count(tmp_path: Path) -> None:
    """After a rollback, the restored version is in no crash loop."""
    starts, counts = tmp_path / "0.starts", []
    for deployment in ("s@1", "s@2", "s@2", "s@2", "s@1"):
        with suppress(RuntimeError), count_restart(starts, deployment) as restarts_ms:
            counts.append(len(restarts_ms))
            if deployment == "s@2":
                raise RuntimeError

    assert counts == [0, 0, 1, 2, 0]


def test_prometheus_gets_every_known_metric() -> None:
    """Metrics have labels for the processor, bucket and worker. An unknown metric is absent, not zero."""
    world = World()
    world.send(1, 5)
    world.report(report(NOW_MS - 10_000, 0), report(NOW_MS, 500))
    registry = CollectorRegistry()
    with world.observer() as observer:
        registry.register(StatusCollector(observer))
        scraped = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(generate_latest(registry).decode())
            for sample in family.samples
        }

    assert scraped["penstock_backlog_events", "scorer"] == 5
    assert scraped["penstock_events_in_per_second", "scorer"] == 50
    assert scraped["penstock_bucket_backlog_events", "1", "scorer"] == 5
    assert scraped["penstock_worker_events_in_per_second", "one", "scorer"] == 50
    assert not [name for name, *_ in scraped if name == "penstock_backup_age_seconds"]


def test_metrics_have_values_for_a_processor_without_problems() -> None:
    """Only metrics that do not apply lack a value; of the figures of workers, each that may be unknown."""
    status = processor_status(shard_status(), shard_status(1))
    values = {name: metric.of(status) for name, metric in PROCESSOR_METRICS.items()}
    unknown = {row.metric for row in PROCESSOR_ROWS if row.of(processor_status(workers=())) is None}

    assert {name for name, value in values.items() if value is None} - unknown == {
        "retention_remaining_share",
        "backup_late",
        "lookup_table_rows",
        "lookup_table_bytes",
        "lookup_table_unread",
    }
    assert "state_bytes" in unknown
    assert values["workers"] == 1


@pytest.mark.parametrize(
    ("graph_format", "lines"),
    [
        (
            GraphFormat.TEXT,
            ["enriched", "└─ [scorer]  1 worker, 0 in/s, 0 out/s, backlog 1,200 events, lag 10 min", "   scored"],
        ),
        (GraphFormat.MERMAID, ["    c_enriched([enriched]) --> p0", "    p0 --> c_scored([scored])"]),
        (GraphFormat.DOT, ['    "enriched" -> p0;', '    p0 -> "scored";']),
    ],
)
def test_a_graph_shows_categories_and_backlogs(graph_format: GraphFormat, lines: list[str]) -> None:
    """Each format shows them."""
    drawing = draw_graph([processor_status(shard_status(**BACKLOG))], graph_format).splitlines()

    assert [line for line in lines if line not in drawing] == []


def test_the_documentation_lists_each_metric() -> None:
    """It has the same description. The Grafana dashboard uses no other metrics."""
    monitoring = (DOCS / "monitoring.md").read_text(encoding="utf-8")
    used = set(re.findall(r"penstock_(\w+)", (DOCS / "grafana" / "penstock.json").read_text(encoding="utf-8")))
    metrics: dict[str, MetricDefinition[Any]] = {
        **PROCESSOR_METRICS,
        **BUCKET_METRICS,
        **WORKER_METRICS,
        **SERVER_METRICS,
    }

    rows = [line for line in monitoring.splitlines() if line.startswith("| `")]
    assert [
        name
        for name, metric in metrics.items()
        if not any(f"| `{name}` |" in row and f"| {metric.description}" in row for row in rows)
    ] == []
    own = [
        *(f"{name}_total" for name in COUNTERS),
        *GAUGES,
        *(f"{name}_seconds" for name in HISTOGRAMS),
    ]
    assert [name for name in own if not re.search(rf"`(penstock_worker)?_{name}`", monitoring)] == []
    assert used <= {
        *metrics,
        *(f"worker_{name}_seconds_bucket" for name in HISTOGRAMS),
        *(f"worker_{name}_total" for name in COUNTERS),
    }


@pytest.mark.parametrize(("dropped", "is_found"), [(0, False), (15, False), (25, True)])
def test_events_that_are_dropped_as_too_late_are_a_finding(dropped: int, *, is_found: bool) -> None:
    """Their share must exceed a limit: the default watermark expects one late event in a hundred."""
    status = processor_status(shard_status(), workers=(worker_status(counts=Counts(events_in=1_000, dropped=dropped)),))
    found = [finding for finding in findings_of([status]) if finding.kind == "late events"]

    assert [finding.message.partition(" were ")[0] for finding in found] == [
        "25 events of 1,000 read since its workers started"
    ] * is_found
