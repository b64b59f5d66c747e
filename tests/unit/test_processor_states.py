"""The states of processors: each one, each transition, and the finding and the alert metrics that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import msgspec
import pytest
from support.statuses import NODE, NOW_MS, cluster_status, processor_status, report, shard_status, worker_status

from penstock.ops.deploy import DeployedProcessor, crash_loop_since
from penstock.ops.kernel import REPORTS, STOPPED, Report
from penstock.ops.kernel.telemetry.reports import report_message
from penstock.ops.status import Alerts, Observer, ProcessorState, ProcessorStatus
from penstock.ops.status.alerts.evaluation import evaluate
from penstock.ops.status.alerts.rules import DEFAULTS
from penstock.ops.status.findings import findings_of
from penstock.ops.status.metrics import PROCESSOR_METRICS
from penstock.transport import CategorySpec, Outgoing, create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import PROCESSORS, forget_registration, register_inputs

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
TWO_WORKERS = DeployedProcessor("scorer@3", 2, up_s=500.0, deployed_ms=NOW_MS - 5 * MINUTE_MS, earlier_version=2)
UNDEPLOYED = DeployedProcessor("", 0)
RUNNING, SILENT = worker_status(), worker_status(report_age_s=60.0)
FAILED, ENDED = worker_status(end_reason="No space left."), worker_status(end_reason=STOPPED)
FAILED_BEFORE = worker_status(end_reason="Bad code.", deployment="scorer@3")
LOOPING = worker_status(end_reason="Bad code.", restarts=4, crash_loop_since_ms=NOW_MS - 2 * MINUTE_MS)
BACKLOG: dict[str, Any] = {"backlog_events": 1_200, "lag_s": 30.0, "owner": ""}


def deployed(**fields: Any) -> DeployedProcessor:
    """Return a deployment of two workers, with other fields."""
    return DeployedProcessor(
        **{**{name: getattr(TWO_WORKERS, name) for name in TWO_WORKERS.__dataclass_fields__}, **fields}
    )


@pytest.mark.parametrize(
    ("workers", "deployment", "state"),
    [
        ((), None, ProcessorState.NOT_RUNNING),
        ((RUNNING,), None, ProcessorState.RUNNING),
        ((SILENT,), None, ProcessorState.LOST),
        ((FAILED,), None, ProcessorState.FAILED),
        ((ENDED,), None, ProcessorState.STOPPED),
        ((LOOPING,), None, ProcessorState.CRASH_LOOPING),
        ((ENDED, SILENT), None, ProcessorState.LOST),
        ((RUNNING, SILENT, FAILED), None, ProcessorState.RUNNING),
        ((RUNNING,), deployed(), ProcessorState.RUNNING),
        ((RUNNING,), deployed(unsupervised=2), ProcessorState.UNSUPERVISED),
        ((RUNNING,), deployed(unsupervised=1), ProcessorState.UNSUPERVISED),
        ((SILENT,), deployed(unsupervised=2), ProcessorState.LOST),
        ((ENDED,), deployed(unsupervised=2), ProcessorState.LOST),
        ((LOOPING,), deployed(unsupervised=2, up_s=None), ProcessorState.LOST),
        ((), deployed(up_s=5.0), ProcessorState.STARTING),
        ((ENDED,), deployed(up_s=5.0), ProcessorState.STARTING),
        ((), deployed(), ProcessorState.LOST),
        ((FAILED,), deployed(), ProcessorState.STARTING),
        ((SILENT, FAILED), deployed(), ProcessorState.STARTING),
        ((worker_status(end_reason="Bad code.", report_age_s=300.0),), deployed(), ProcessorState.FAILED),
        ((), deployed(restarting=1), ProcessorState.CRASH_LOOPING),
        ((LOOPING,), deployed(up_s=1.0), ProcessorState.CRASH_LOOPING),
        ((FAILED_BEFORE,), UNDEPLOYED, ProcessorState.STOPPED),
        ((worker_status(report_age_s=60.0, deployment="scorer@3"),), UNDEPLOYED, ProcessorState.STOPPED),
        ((), UNDEPLOYED, ProcessorState.STOPPED),
        ((FAILED,), UNDEPLOYED, ProcessorState.FAILED),
        ((SILENT,), UNDEPLOYED, ProcessorState.LOST),
        ((ENDED,), UNDEPLOYED, ProcessorState.STOPPED),
        (
            (
                worker_status(end_reason="Bad code.", report_age_s=90.0),
                worker_status(deployment="scorer@3", end_reason=STOPPED),
            ),
            UNDEPLOYED,
            ProcessorState.STOPPED,
        ),
    ],
)
def test_the_state_follows_from_the_deployment_and_the_reports(
    workers: tuple[Any, ...], deployment: DeployedProcessor | None, state: ProcessorState
) -> None:
    """The state does not depend on the backlog."""
    idle = processor_status(shard_status(), workers=workers, deployed=deployment, is_registered=True)
    loaded = processor_status(shard_status(**BACKLOG), workers=workers, deployed=deployment, is_registered=True)

    assert (idle.state, loaded.state) == (state, state)


@pytest.mark.parametrize(
    ("workers", "deployment"),
    [
        ((), None),
        ((SILENT, worker_status("two", report_age_s=61.0)), deployed(unsupervised=2)),
        ((FAILED, worker_status("two", end_reason="No space left.")), None),
        ((ENDED,), UNDEPLOYED),
        ((LOOPING, worker_status("two", end_reason="Bad code.", restarts=3)), deployed(restarting=2)),
    ],
)
def test_an_incident_has_one_finding_with_its_impact(
    workers: tuple[Any, ...], deployment: DeployedProcessor | None
) -> None:
    """The number of workers does not matter. The impact is the events and seconds behind, and the categories that receive nothing."""
    shards = shard_status(**BACKLOG), shard_status(1, **BACKLOG)
    [finding] = findings_of([processor_status(*shards, workers=workers, deployed=deployment, is_registered=True)])

    assert "its backlog is 2,400 events" in finding.message
    assert "its lag 30 s" in finding.message
    assert "scored receives no new records" in finding.message


def test_a_restart_names_the_error_before_it() -> None:
    """A worker that fails before its first report has only the error of the one before. Errors of earlier versions do not count."""
    worker = worker_status(end_reason="No category large.", report_age_s=30.0)
    since, before = (deployed(up_s=1.0, deployed_ms=NOW_MS - ago_s * 1000) for ago_s in (300, 10))
    [restarted] = findings_of([processor_status(shard_status(**BACKLOG), workers=(worker,), deployed=since)])
    [started] = findings_of([processor_status(shard_status(**BACKLOG), workers=(worker,), deployed=before)])

    assert (restarted.kind, restarted.severity.name) == ("starting", "WARNING")
    assert "failed 30 s ago: No category large. Its supervisor restarts it" in restarted.message
    assert "`penstock logs scorer`" in restarted.message
    assert (started.kind, started.severity.name) == ("starting", "NOTE")


@pytest.mark.parametrize("counts", [{"unsupervised": 2}, {"restarting": 2}])
def test_a_full_disk_is_the_cause(counts: dict[str, int]) -> None:
    """The supervisor has ended, or workers cannot start."""
    full, free = (deployed(**counts, disk_free_share=share) for share in (0.0, 0.5))
    messages = [
        findings_of([processor_status(shard_status(**BACKLOG), workers=(), deployed=each)])[0].message
        for each in (full, free)
    ]

    assert ["(--dir) has 0.0% free: free space first." in message for message in messages] == [True, False]


def test_stopped_processors_are_named() -> None:
    """They are named even if no event waits."""
    [finding] = findings_of([processor_status(shard_status(), workers=(ENDED,))])

    assert (finding.kind, finding.severity.name) == ("stopped", "NOTE")


def test_a_rollback_is_suggested_if_the_trouble_began_after_the_deploy() -> None:
    """Older trouble gets no such suggestion, and neither does a processor without an earlier version."""
    after, without = deployed(restarting=2), deployed(restarting=2, earlier_version=None)
    before = deployed(restarting=2, deployed_ms=NOW_MS - MINUTE_MS)
    messages = [
        findings_of([processor_status(shard_status(**BACKLOG), workers=(LOOPING,), deployed=each)])[0].message
        for each in (after, without, before)
    ]

    assert "3 min after scorer@3 was deployed: `penstock rollback scorer` returns to version 2." in messages[0]
    assert ["rollback" in message for message in messages] == [True, False, False]


@pytest.mark.parametrize(
    ("seconds", "age_s", "since_s"),
    [
        ((0, 5), 1, None),
        ((0, 5, 12), 1, 0),
        ((0, 5, 12), 59, 0),
        ((0, 5, 12), 61, None),
        ((0, 600, 1_200), 1_100, 0),
        ((0, 600, 1_200), 1_201, None),
        ((0, 3_000, 3_005, 3_010), 61, None),
    ],
)
def test_a_crash_loop_ends_after_a_repair(seconds: tuple[int, ...], age_s: int, since_s: int | None) -> None:
    """It ends after a minute and twice the last pause between restarts, so that a slow loop still counts between two crashes."""
    restarts_ms = [NOW_MS + second * 1000 for second in seconds]
    since_ms = crash_loop_since(restarts_ms, restarts_ms[-1] + age_s * 1000)

    assert since_ms == (None if since_s is None else NOW_MS + since_s * 1000)


@pytest.mark.parametrize("workers", [(), (RUNNING,)], ids=["none reports", "another one reports"])
def test_a_worker_that_crashes_before_its_first_report_is_in_a_crash_loop(workers: tuple[Any, ...]) -> None:
    """Its machine has recorded the restarts. Two restarts are not a loop, and an ended loop does not count."""
    recent, ended = ([NOW_MS - second * 1000 for second in seconds] for seconds in ((50, 30, 10), (900, 890, 880)))
    statuses = [
        processor_status(
            shard_status(**BACKLOG), workers=workers, deployed=deployed(up_s=1.0, restarts_ms=((), tuple(restarts_ms)))
        )
        for restarts_ms in (recent, recent[:2], ended)
    ]

    assert [status.state is ProcessorState.CRASH_LOOPING for status in statuses] == [True, False, False]
    assert "crash loop" in violated(statuses[0])
    assert "failed and restarted 3 times in 50 s" in findings_of(statuses[:1])[0].message


def violated(status: ProcessorStatus) -> set[str]:
    """Return the built-in rules that a status violates."""
    return {key[0] for key, after, _ in evaluate(DEFAULTS, cluster_status(status), Alerts({}, {})) if after is not None}


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({"workers": (LOOPING,), "deployed": deployed(restarting=2)}, {"crash loop"}),
        ({"workers": (RUNNING,), "deployed": deployed(unsupervised=2)}, {"unsupervised"}),
        ({"workers": (SILENT,), "deployed": deployed(unsupervised=2)}, {"lost"}),
        ({"workers": (FAILED,)}, {"not running"}),
        ({"workers": ()}, {"not running"}),
        ({"workers": (RUNNING, SILENT, FAILED)}, {"worker silent", "worker failed"}),
        ({"workers": (FAILED_BEFORE,), "deployed": UNDEPLOYED}, set()),
        ({"workers": (FAILED, SILENT), "is_registered": False}, set()),
        ({"workers": (worker_status(restarts=9),)}, set()),
        ({"workers": (worker_status(checkpoint_duration_s=31.0),)}, {"checkpoint slow"}),
        ({"workers": (RUNNING, worker_status(disk_free_share=0.04))}, {"disk almost full"}),
        ({"workers": (worker_status(disk_free_share=None),)}, set()),
    ],
)
def test_alerts_follow_from_the_state(fields: Mapping[str, Any], rules: set[str]) -> None:
    """Each incident has one alert. A processor that a user stopped, purged or repaired has no alert."""
    assert violated(processor_status(shard_status(**BACKLOG), **fields)) == rules


class World:
    """A memory bus with a steered clock, a registered processor, and its deployment."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.bus = MemoryBus(lambda: self.now_ms)
        self.deployed: dict[str, DeployedProcessor] = {}
        create_missing_categories(self.bus, REPORTS, PROCESSORS)
        self.bus.catalog.create(CategorySpec("enriched", 2))
        register_inputs(self.bus, NODE.name, {"enriched": 2})

    def write(self, category: str, *messages: Outgoing) -> None:
        with closing(self.bus.writer()) as writer:
            writer.send(category, messages)
            writer.flush()

    def report(self, *reports: Report) -> None:
        self.write(REPORTS.name, *map(report_message, reports))

    @contextmanager
    def observer(self) -> Iterator[Observer]:
        with closing(Observer.open(self.bus, now_ms=lambda: self.now_ms, deployed=lambda: self.deployed)) as observer:
            yield observer


def test_states_change_with_the_life_of_a_deployment() -> None:
    """One observer sees all of them, from the first start to the purge."""
    world, states = World(), list[str]()
    with world.observer() as observer:

        def observe(deployment: DeployedProcessor | None, *reports: Report) -> None:
            world.deployed = {} if deployment is None else {NODE.name: deployment}
            world.report(*reports)
            states.append(observer.observe().processors[0].state.value)

        def present(**fields: Any) -> Report:
            return msgspec.structs.replace(report(world.now_ms), **fields)

        observe(deployed(up_s=1.0))
        observe(deployed(up_s=3.0), present())
        world.now_ms += MINUTE_MS
        crashes = tuple(world.now_ms - age for age in (9_000, 6_000, 3_000))
        observe(deployed(restarting=2), present(end_reason="Bad code.", restarts_ms=crashes))
        observe(deployed(up_s=1.0), present(restarts_ms=crashes))
        world.now_ms += MINUTE_MS
        observe(deployed(up_s=60.0), present(restarts_ms=crashes))
        observe(deployed(unsupervised=2), present(restarts_ms=crashes))
        world.now_ms += MINUTE_MS
        observe(deployed(unsupervised=2))
        observe(deployed(up_s=1.0))
        observe(UNDEPLOYED, present(end_reason=STOPPED))
        forget_registration(world.bus, NODE.name)
        world.now_ms += 10_000
        observe(None)

    assert states == [
        "starting",
        "running",
        "crash-looping",
        "crash-looping",
        "running",
        "unsupervised",
        "lost",
        "starting",
        "stopped",
        "purged",
    ]


def test_a_dead_processor_stays_visible_with_its_backlog() -> None:
    """Hours after its last report, a new observer without its app still shows it, and its alert remains."""
    world = World()
    world.report(report(NOW_MS))
    world.write("enriched", *[Outgoing(b"k", b"v", 0)] * 7)
    world.now_ms += 5 * HOUR_MS
    with world.observer() as observer:
        [status] = observer.observe().processors

    assert (status.state, status.backlog_events) == (ProcessorState.NOT_RUNNING, 7)
    assert "not running" in violated(status)


def test_purged_processors_have_no_findings() -> None:
    """Their last reports are retained, and their input has events."""
    world = World()
    world.report(report(NOW_MS), msgspec.structs.replace(report(NOW_MS, end_reason="Bad code."), worker="two"))
    world.write("enriched", *[Outgoing(b"k", b"v", 0)] * 7)
    forget_registration(world.bus, NODE.name)
    world.now_ms += MINUTE_MS
    with world.observer() as observer:
        cluster = observer.observe()

    assert [status.state for status in cluster.processors] == [ProcessorState.PURGED]
    assert cluster.findings == ()


def test_a_registration_without_inputs_is_not_shown() -> None:
    """A processor of deleted categories can never read again."""
    world = World()
    register_inputs(world.bus, "former", {"deleted": 4})
    with world.observer() as observer:
        names = [status.node.name for status in observer.observe().processors]

    assert names == [NODE.name]


def test_each_state_has_its_metric() -> None:
    """Exactly one of the metrics of bad states is 1."""
    names = ("crash_looping", "unsupervised", "lost")
    statuses = [
        processor_status(shard_status(), workers=(LOOPING,)),
        processor_status(shard_status(), deployed=deployed(unsupervised=2)),
        processor_status(shard_status(), workers=(SILENT,)),
        processor_status(shard_status()),
    ]
    values = [[PROCESSOR_METRICS[name].of(status) for name in names] for status in statuses]

    assert values == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_a_deleted_output_is_missing_while_workers_need_it() -> None:
    """A stopped processor needs no outputs, which may have been deleted on purpose."""
    ends = [RUNNING, LOOPING, FAILED, worker_status(end_reason="stopped")]
    statuses = [processor_status(shard_status(), workers=(end,), deleted_outputs=("scored",)) for end in ends]

    assert [PROCESSOR_METRICS["outputs_missing"].of(status) for status in statuses] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("lags_s", "skewed"),
    [((0.0, 0.0, 90.0), 2), ((95.0, 80.0, 90.0), None), ((0.0, 600.0), 1), ((600.0,), None), ((5.0, 4.0, 30.0), None)],
)
def test_a_skewed_bucket_is_found_by_its_lag(lags_s: tuple[float, ...], skewed: int | None) -> None:
    """Most other buckets must not lag. The bucket's alert fires before the alert about the whole processor."""
    status = processor_status(*(shard_status(n, backlog_events=9, lag_s=lag_s) for n, lag_s in enumerate(lags_s)))

    assert (None if status.skewed_shard is None else status.skewed_shard.bucket) == skewed
    assert ("skewed bucket" in violated(status)) == (skewed is not None)


@pytest.mark.parametrize(
    ("interval_s", "age_s", "late"), [(60.0, 400.0, True), (60.0, 70.0, False), (3_600.0, 400.0, False)]
)
def test_a_late_backup_follows_from_its_interval(interval_s: float, age_s: float, late: bool) -> None:
    """A fixed age would be wrong, because an hourly backup may be an hour old."""
    status = processor_status(shard_status(backup_age_s=age_s), workers=(worker_status(backup_interval_s=interval_s),))

    assert ("backup late" in violated(status)) == late
