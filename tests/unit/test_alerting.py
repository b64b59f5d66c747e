"""Alerting: evaluation of rules, notifications, silences, takeover and outages of Kafka."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outages import FailingBus
from support.statuses import NODE, NOW_MS, cluster_status, processor_status, report, shard_status, worker_status

import penstock as ps
from penstock.ops.kernel import REPORTS, SILENT_AFTER_S, OutageTracker
from penstock.ops.kernel.telemetry.reports import report_message
from penstock.ops.status import ALERTS, Alerts, Observer
from penstock.ops.status.alerts.alert_evaluator import AlertEvaluator
from penstock.ops.status.alerts.alert_loop import UNREACHABLE_RULE, AlertLoop
from penstock.ops.status.alerts.alert_states import (
    ActiveAlert,
    Silence,
    read_alerts,
    silence_message,
    unsilence_message,
    write_alerts,
)
from penstock.ops.status.alerts.evaluation import MIN_RECOVERY_MS, evaluate
from penstock.ops.status.alerts.heartbeat import BEAT_EVERY_S, Heartbeat
from penstock.ops.status.alerts.notifications import (
    RETRY_LIMIT_S,
    CategoryRecipient,
    CommandRecipient,
    Notification,
    NotificationDelivery,
    NotificationFailed,
    Recipient,
    Webhook,
)
from penstock.ops.status.alerts.rules import DEFAULTS, Alerting, Rule, rules_of
from penstock.ops.status.alerts.webhook_formats import WebhookFormat
from penstock.ops.status.metrics import _PROCESSOR_VALUES, PROCESSOR_METRICS, SERVER_METRICS
from penstock.ops.status.status import WorkerStatus
from penstock.processors import Counts, DeclarationError, PenstockError
from penstock.processors.apps import AppName
from penstock.processors.declare import ALERT_METRICS, SERVER_ALERT_METRICS
from penstock.transport import (
    Bucket,
    Bus,
    BusError,
    BusUnreachable,
    CategorySpec,
    OffsetOutOfRange,
    Outgoing,
    Polled,
    Position,
    create_missing_categories,
)
from penstock.transport.bus import Scanner
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import register_inputs

LAG = ps.Alert("lag", "lag_seconds", above=300)
INTERVAL_MS = 10_000
NOTIFICATION = Notification(
    "firing", "lag", "scorer", "lag_seconds", "above 300", 400.0, NOW_MS, NOW_MS, "Its lag is long."
)


def statuses_of(lagging: list[bool], rule: ps.Alert = LAG) -> list[str]:
    """Evaluate a rule every ten seconds for a processor that lags or not; return the notification of each evaluation, or "-"."""
    alerts, statuses = Alerts(), []
    for number, lags in enumerate(lagging):
        status = processor_status(shard_status(lag_s=400.0 if lags else 1.0))
        notification = "-"
        for key, after, before in evaluate([rule], cluster_status(status, at_ms=NOW_MS + number * INTERVAL_MS), alerts):
            if after is None:
                del alerts.active[key]
            else:
                alerts.active[key] = after
            notification = notification_of(after, before)
        statuses.append(notification)
    return statuses


def notification_of(after: ActiveAlert | None, before: ActiveAlert | None) -> str:
    """Return the status of the notification about a change; "-" without one."""
    was_firing, is_firing = before is not None and before.firing, after is not None and after.firing
    return "firing" if is_firing and not was_firing else "resolved" if was_firing and not is_firing else "-"


def test_an_alert_fires_and_resolves_after_its_duration() -> None:
    """Both durations are two minutes by default."""
    statuses = statuses_of([True] * 20 + [False] * 20)

    assert [(number, status) for number, status in enumerate(statuses) if status != "-"] == [
        (12, "firing"),
        (32, "resolved"),
    ]


def test_short_excursions_send_no_notification() -> None:
    """A short violation does not fire an alert, and a short recovery does not resolve it."""
    firing = statuses_of([True] * 13 + [False] * 6 + [True] * 6 + [False] * 6 + [True] * 6)

    assert set(statuses_of([True, False] * 30)) == {"-"}
    assert [status for status in firing if status != "-"] == ["firing"]


@given(st.lists(st.booleans(), max_size=120), st.sampled_from([0, 20, 60, 120]))
def test_notifications_alternate_and_respect_the_duration(lagging: list[bool], duration_s: int) -> None:
    """Before each notification, the metric violated or respected its limit for the whole duration."""
    statuses = statuses_of(lagging, ps.Alert("lag", "lag_seconds", above=300, duration=timedelta(seconds=duration_s)))
    sent = [(number, status) for number, status in enumerate(statuses) if status != "-"]

    assert [status for _, status in sent] == ["firing", "resolved"] * (len(sent) // 2) + ["firing"] * (len(sent) % 2)
    for number, status in sent:
        recovery_intervals = max(duration_s * 1000, MIN_RECOVERY_MS) // INTERVAL_MS
        intervals = duration_s // 10 if status == "firing" else recovery_intervals
        assert lagging[number - intervals : number + 1] == [status == "firing"] * (intervals + 1)


def test_an_alert_contains_the_value_and_the_findings() -> None:
    """The recipient sees the problem without another command."""
    lagging = processor_status(shard_status(backlog_events=5, lag_s=400.0))
    [change] = evaluate([LAG], cluster_status(lagging), Alerts())

    assert change.after is not None
    assert change.after.message.startswith("lag_seconds of scorer is 400, above 300. Its backlog is 5 events")


def test_a_rule_applies_to_matching_processors() -> None:
    """The name may be a pattern."""
    lagging = cluster_status(processor_status(shard_status(lag_s=400.0)))
    fires = [
        bool(evaluate([ps.Alert("lag", "lag_seconds", above=300, processors=name)], lagging, Alerts()))
        for name in ("*", "sc*", "ranker")
    ]

    assert fires == [True, True, False]


def test_an_alert_without_a_rule_resolves() -> None:
    """Otherwise it would stay active forever."""
    alert = ActiveAlert("lag", "scorer", "lag_seconds", "above 300", 400.0, NOW_MS, firing=True)
    lagging = cluster_status(processor_status(shard_status(lag_s=400.0)))

    assert [change.after for change in evaluate([], lagging, Alerts({alert.key: alert}))] == [None]


@pytest.mark.parametrize("known", ["lag", "not running"])
def test_an_alert_neither_ends_nor_changes_while_its_metric_is_unknown(known: str) -> None:
    """Without the figure, it is not known to have resolved. An alert about the unknown figures fires beside it."""
    lagging = processor_status(shard_status(backlog_events=5, lag_s=400.0))
    unknown = processor_status(
        shard_status(backlog_events=None, lag_s=None), failed_queries=("its committed offsets in enriched (timeout)",)
    )
    lagging, unknown = replace(lagging, workers=()), replace(unknown, workers=())
    rules = [rule for rule in DEFAULTS if rule.name in {"figures unknown", known}]
    alerts = Alerts({}, {})
    active = []
    for minute in range(30):
        status = lagging if minute < 5 else unknown if minute < 20 else processor_status(shard_status())
        for key, after, _ in evaluate(rules, cluster_status(status, at_ms=NOW_MS + 60_000 * minute), alerts):
            alerts.active.pop(key, None)
            alerts.active.update({} if after is None else {key: after})
        active.append({key[0] for key, alert in alerts.active.items() if alert.firing})

    assert active[4] == {known}
    assert active[8] == active[19] == {known, "figures unknown"}
    assert active[29] == set()


def test_an_unknown_metric_violates_no_limit() -> None:
    """The metric violates neither an upper nor a lower limit."""
    assert not ps.Alert("a", "backup_age_seconds", above=-1).is_beyond(None)
    assert not ps.Alert("a", "backup_age_seconds", below=1).is_beyond(None)


@pytest.mark.parametrize("limits", [{}, {"above": 1, "below": 2}, {"above": 1, "duration": timedelta(seconds=-1)}])
def test_an_invalid_alert_is_refused(limits: dict[str, Any]) -> None:
    """Its declaration raises the error."""
    with pytest.raises(DeclarationError, match="'lag'"):
        ps.Alert("lag", "lag_seconds", **limits)


def test_a_rule_replaces_a_built_in_rule_of_the_same_name() -> None:
    """The other built-in rules stay."""
    own = ps.Alert("lag", "backlog_events", above=10)
    by_name = {rule.name: rule for rule in rules_of([own])}

    assert by_name["lag"] == own
    assert len(by_name) == len(DEFAULTS)


def test_an_unknown_metric_name_is_refused_with_a_suggestion() -> None:
    """The declaration raises the error, in an app and in the configuration."""
    with pytest.raises(DeclarationError, match=r"'lag_secnds'\. Did you mean `lag_seconds`\?"):
        ps.Alert("x", "lag_secnds", above=1)
    with pytest.raises(DeclarationError, match=r"'no_such'\. No rule was evaluated"):
        Rule(name="x", metric="no_such", above=1).alert()


def test_each_metric_that_rules_may_name_is_computed() -> None:
    """Their meanings name the limits of the computation."""
    assert ALERT_METRICS.keys() == PROCESSOR_METRICS.keys() == _PROCESSOR_VALUES.keys()
    assert SERVER_ALERT_METRICS.keys() == SERVER_METRICS.keys()
    assert f"for {SILENT_AFTER_S:g} s" in ALERT_METRICS["workers_silent"]


def test_rules_come_from_the_configuration() -> None:
    """The configuration states the duration in seconds."""
    rule = Rule(name="slow", metric="events_in_per_second", below=5, duration_s=60, processors="s*")

    assert Alerting((rule,)).alerts() == [
        ps.Alert("slow", "events_in_per_second", below=5, duration=timedelta(minutes=1), processors="s*")
    ]


def test_an_app_declares_alerts(tmp_path: Path) -> None:
    """Alerts are at the top level of the file, alone or in a list."""
    path = tmp_path / "app.py"
    path.write_text(
        "import penstock as ps\n"
        "class R(ps.Record, frozen=True):\n    k: str\n    at: ps.EventTime\n"
        "a = ps.Category('a', R, key='k', event_time='at', buckets=1)\n"
        "b = ps.Category('b', R, key='k', event_time='at', buckets=1)\n"
        "class P(ps.Stateless):\n    reads, writes = a, b\n    def process(self, event): return []\n"
        "one = ps.Alert('one', 'workers', below=1)\nothers = [ps.Alert('two', 'backlog_events', above=5)]\n"
    )

    assert [alert.name for alert in AppName(path).load().alerts] == ["one", "two"]


class RecordingRecipient:
    """Records notifications, or fails."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str]] = []
        self.fails = False

    def send(self, notification: Notification) -> None:
        if self.fails:
            raise NotificationFailed("The recipient fails.")
        self.received.append((notification.status, notification.rule))


class World:
    """A processor without a worker, on a bus with a steered clock, and a recipient of alerts."""

    def __init__(self, bus: Callable[[Callable[[], int]], MemoryBus] = MemoryBus, rule: str = "not running") -> None:
        self.now_ms = NOW_MS
        self.outages = OutageTracker()
        self.rules = [each for each in DEFAULTS if each.name == rule]
        self.bus = bus(lambda: self.now_ms)
        create_missing_categories(self.bus, REPORTS)
        self.bus.catalog.create(CategorySpec("enriched", 1))
        self.recipient = RecordingRecipient()

    @property
    def received(self) -> list[tuple[str, str]]:
        return self.recipient.received

    def send(self) -> None:
        """Add an event to the backlog."""
        self._write("enriched", [Outgoing(b"k", b"v")])

    def _write(self, category: str, messages: list[Outgoing]) -> None:
        with closing(self.bus.writer()) as writer:
            writer.send(category, messages)
            writer.flush()

    def process(self) -> None:
        """Process the backlog."""
        end = self.bus.catalog.ends("enriched")[0]
        self.bus.catalog.set_committed(NODE.name, [Position(Bucket("enriched", 0), end)])
        self._write(REPORTS.name, [report_message(report(self.now_ms))])

    def evaluator(self) -> AlertEvaluator:
        observer = Observer.open(self.bus, [NODE], now_ms=lambda: self.now_ms, outages=self.outages)
        return AlertEvaluator.open(self.bus, observer, self.rules, NotificationDelivery([self.recipient]))

    def run(self, evaluator: AlertEvaluator | AlertLoop, times: int) -> None:
        """Evaluate so many times, ten seconds apart."""
        for _ in range(times):
            evaluator.run_once()
            self.now_ms += INTERVAL_MS


@pytest.fixture
def world() -> World:
    """A world without problems."""
    return World()


@pytest.fixture
def evaluator(world: World) -> Iterator[AlertEvaluator]:
    """The active evaluator."""
    with closing(world.evaluator()) as evaluator:
        yield evaluator


FIRED_AND_RESOLVED = [("firing", "not running"), ("resolved", "not running")]


def test_an_alert_sends_one_notification_when_it_fires_and_one_when_it_resolves(
    world: World, evaluator: AlertEvaluator
) -> None:
    """The number of evaluations does not matter."""
    world.send()
    world.run(evaluator, 12)
    world.process()
    world.run(evaluator, 12)

    assert world.received == FIRED_AND_RESOLVED
    assert read_alerts(world.bus).active == {}


def test_a_failed_notification_is_retried(
    world: World, evaluator: AlertEvaluator, caplog: pytest.LogCaptureFixture
) -> None:
    """The notification of a resolved alert is retried, too. The failure is logged."""
    world.send()
    world.recipient.fails = True
    world.run(evaluator, 10)
    world.recipient.fails = False
    world.run(evaluator, 2)
    world.process()
    world.recipient.fails = True
    world.run(evaluator, 12)
    world.recipient.fails = False
    world.run(evaluator, 1)

    assert world.received == FIRED_AND_RESOLVED
    assert "The notification that not running of scorer is firing was not delivered. It is retried." in caplog.text


def test_another_evaluator_takes_over_active_alerts(world: World, evaluator: AlertEvaluator) -> None:
    """It does not repeat the first notification, and sends the second."""
    world.send()
    world.run(evaluator, 12)
    with closing(world.evaluator()) as second:
        world.run(second, 1)
        is_standby = not second.is_active
        evaluator.close()
        world.run(second, 5)
        world.process()
        world.run(second, 12)

    assert is_standby
    assert world.received == FIRED_AND_RESOLVED


def test_an_evaluator_that_becomes_active_expects_a_report_first() -> None:
    """After an outage, a standby may become active that has not noticed it. A worker that does not report then is lost."""
    world = World(rule="lost")
    register_inputs(world.bus, NODE.name, {"enriched": 1})
    world.process()
    world.now_ms += 60_000
    with closing(world.evaluator()) as evaluator:
        world.run(evaluator, 2)
        assert world.received == []

        world.run(evaluator, 5)
        assert world.received == [("firing", "lost")]


def test_an_alert_that_fires_after_its_silence_notifies_then(world: World, evaluator: AlertEvaluator) -> None:
    """A silence ends by itself."""
    write_alerts(world.bus, [silence_message(Silence("s", "not*", "*", world.now_ms + 10 * INTERVAL_MS))])
    world.send()
    world.run(evaluator, 10)
    during_silence = list(world.received)
    world.run(evaluator, 2)

    assert (during_silence, world.received) == ([], [("firing", "not running")])
    assert read_alerts(world.bus).silences == {}


def test_a_user_ends_a_silence(world: World, evaluator: AlertEvaluator) -> None:
    """It has an effect at the next evaluation."""
    write_alerts(world.bus, [silence_message(Silence("s", "*", "scorer", world.now_ms + 10**9))])
    world.send()
    world.run(evaluator, 10)
    during_silence = list(world.received)
    write_alerts(world.bus, [unsilence_message("s")])
    world.run(evaluator, 1)

    assert (during_silence, world.received) == ([], [("firing", "not running")])


class SlowAlerts(MemoryBus):
    """Returns alerts one at a time."""

    def scanner(self, positions: Sequence[Position]) -> Any:
        scanner = super().scanner(positions)
        if positions[0].bucket.category == ALERTS.name:
            scanner.poll_limit = 1
        return scanner


def test_stored_alerts_that_arrive_late_change_nothing() -> None:
    """The active evaluator keeps its own alerts, so it repeats no notification."""
    world = World(SlowAlerts)
    with closing(world.evaluator()) as evaluator:
        world.send()
        world.run(evaluator, 20)
        world.process()
        world.run(evaluator, 20)

    assert world.received == FIRED_AND_RESOLVED
    assert read_alerts(world.bus).active == {}


class Outage:
    """An alert loop on a bus with outages."""

    def __init__(self, rule: str = "not running") -> None:
        self.bus: FailingBus
        self.world = World(self._bus, rule)
        self.evaluators: list[AlertEvaluator] = []
        self.connections = 0
        self.loop = self.open_loop(30)
        self.run(1)

    def _bus(self, now_ms: Callable[[], int]) -> FailingBus:
        self.bus = FailingBus(now_ms)
        return self.bus

    def _connect(self) -> FailingBus:
        self.connections += 1
        return self.bus

    def _evaluator(self) -> AlertEvaluator:
        self.evaluators.append(self.world.evaluator())
        return self.evaluators[-1]

    def open_loop(self, unreachable_after_s: float) -> AlertLoop:
        return AlertLoop.open(
            self._connect,
            lambda _bus: self._evaluator(),
            NotificationDelivery([self.world.recipient]),
            unreachable_after_s=unreachable_after_s,
            now_ms=lambda: self.world.now_ms,
        )

    def run(self, times: int) -> None:
        self.world.run(self.loop, times)

    def fail(self, times: int, error: BusError | None = None) -> None:
        """Evaluate so many times during an outage, ten seconds apart."""
        self.bus.error = error or BusUnreachable("No broker answers.")
        self.run(times)
        self.bus.error = None


@pytest.fixture
def outage() -> Iterator[Outage]:
    """A loop that has evaluated once."""
    outage = Outage()
    with closing(outage.loop):
        yield outage


UNREACHABLE_AND_BACK = [("firing", "kafka unreachable"), ("resolved", "kafka unreachable")]


def test_alerting_survives_an_outage(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """One notification reports the outage, and one its end. Then the rules are evaluated again."""
    outage.fail(10)
    outage.run(1)
    outage.world.send()
    outage.run(12)

    assert outage.world.received == [*UNREACHABLE_AND_BACK, ("firing", "not running")]
    assert len(outage.evaluators) == 2
    assert caplog.text.count("Kafka does not answer") == caplog.text.count("Kafka answers again") == 1
    assert "answers again, after 100 s" in caplog.text


def test_the_notification_about_the_end_of_an_outage_says_how_long_it_was(outage: Outage) -> None:
    """It does not report the end of the outage as the problem."""
    outage.fail(10)
    [ended] = outage.loop.run_once()

    assert (ended.status, ended.message) == ("resolved", "Kafka answers again, after 100 s.")


def test_a_short_outage_is_logged_without_a_notification(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """The restart of a broker is such an outage."""
    for _ in range(3):
        outage.fail(3)
        outage.run(1)

    assert outage.world.received == []
    assert caplog.text.count("Kafka answers again") == 3


def test_an_outage_is_no_silence_of_workers() -> None:
    """Outages may follow each other. A worker that does not report after them is silent."""
    outage = Outage("lost")
    register_inputs(outage.bus, NODE.name, {"enriched": 1})
    with closing(outage.loop):
        outage.world.process()
        outage.run(1)
        for _ in range(3):
            outage.fail(3)
            outage.run(2)
        assert outage.world.received == []

        outage.run(5)
        assert outage.world.received == [("firing", "lost")]


class FailingClients(FailingBus):
    """Fails for one process only: other processes get an answer from the same cluster."""

    def __init__(self, cluster: MemoryBus) -> None:
        self._cluster = cluster
        self.error = None

    def __getattr__(self, name: str) -> Any:
        if self.error is not None:
            raise self.error
        return getattr(self._cluster, name)

    @property
    def catalog(self) -> FailingClients:
        return self

    def names(self) -> list[str]:
        if self.error is not None:
            raise self.error
        return self._cluster.names()


def test_a_process_whose_clients_fail_gives_up_and_returns_with_new_ones() -> None:
    """Another process takes over meanwhile: the cluster answers it all the time. The renewal precedes the notification about an outage."""
    world = World()
    broken = FailingClients(world.bus)
    buses: list[MemoryBus] = [broken, world.bus]

    def open_evaluator(bus: Bus) -> AlertEvaluator:
        observer = Observer.open(bus, [NODE], now_ms=lambda: world.now_ms)
        return AlertEvaluator.open(bus, observer, DEFAULTS, NotificationDelivery([world.recipient]))

    with (
        closing(
            AlertLoop.open(
                lambda: buses.pop(0),
                open_evaluator,
                NotificationDelivery([world.recipient]),
                unreachable_after_s=30,
                now_ms=lambda: world.now_ms,
            )
        ) as loop,
        closing(world.evaluator()) as other,
    ):
        world.run(loop, 1)
        broken.error = BusUnreachable("The client is broken.")
        world.run(loop, 2)
        was_active = other.run_once() is not None and other.is_active
        world.run(loop, 3)
        world.run(other, 1)
        is_taken_over = other.is_active and not loop.is_active

    assert (was_active, is_taken_over, buses) == (False, True, [])
    assert world.received == []


def test_rules_are_evaluated_only_while_kafka_answers(outage: Outage) -> None:
    """The heartbeat follows it: during an outage the process runs, but is blind."""
    before = outage.loop.is_evaluating
    outage.bus.error = BusUnreachable("No broker answers.")
    outage.run(1)
    during = outage.loop.is_evaluating
    outage.bus.error = None
    outage.run(2)

    assert (before, during, outage.loop.is_evaluating) == (True, False, True)


def test_only_the_active_process_notifies_about_an_outage(outage: Outage) -> None:
    """A standby process sends nothing."""
    with closing(outage.open_loop(0)) as standby:
        outage.world.run(standby, 1)
        outage.bus.error = BusUnreachable("No broker answers.")
        outage.world.run(standby, 5)

    assert outage.world.received == []


def test_outages_may_be_silenced(outage: Outage) -> None:
    """The silence began before the outage."""
    write_alerts(outage.bus, [silence_message(Silence("s", "kafka*", "*", outage.world.now_ms + 10**9))])
    outage.run(1)
    outage.fail(10)

    assert outage.world.received == []


def test_a_failed_notification_about_an_outage_is_retried(outage: Outage) -> None:
    """Both notifications arrive in their order."""
    outage.world.recipient.fails = True
    outage.fail(10)
    outage.run(3)
    outage.world.recipient.fails = False
    outage.run(1)

    assert outage.world.received == UNREACHABLE_AND_BACK


def test_an_evaluator_that_cannot_continue_is_replaced(outage: Outage) -> None:
    """For example, a recreated cluster no longer has the evaluator's positions."""
    outage.fail(2, OffsetOutOfRange("The position does not exist."))
    outage.world.send()
    outage.run(12)

    assert len(outage.evaluators) == 2
    assert outage.world.received == [("firing", "not running")]


class FailingGroups(MemoryBus):
    """Accepts no group member, and counts the open scanners."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.open_scanners = 0

    def scanner(self, positions: Sequence[Position]) -> Any:
        self.open_scanners += 1
        return CountedScanner(self, super().scanner(positions))

    def reader(self, *_: object, **__: object) -> Any:
        raise BusUnreachable("No broker answers.")


class CountedScanner:
    """A scanner of `FailingGroups`."""

    def __init__(self, bus: FailingGroups, scanner: Scanner) -> None:
        self._bus = bus
        self._scanner = scanner

    def poll(self, timeout_s: float) -> Polled:
        return self._scanner.poll(timeout_s)

    def close(self) -> None:
        self._bus.open_scanners -= 1
        self._scanner.close()


def test_an_evaluator_that_does_not_open_leaves_no_connection() -> None:
    """Its observer is closed, too: the caller retries with another."""
    bus = FailingGroups(lambda: NOW_MS)
    with pytest.raises(BusUnreachable):
        AlertEvaluator.open(bus, Observer.open(bus, [NODE]), [], NotificationDelivery([]))

    assert bus.open_scanners == 0


def test_a_failing_recipient_does_not_affect_others() -> None:
    """They get the notification once. After an hour, the failing recipient is no longer retried."""
    now_s = [0.0]
    failing, healthy = RecordingRecipient(), RecordingRecipient()
    failing.fails = True
    delivery = NotificationDelivery([failing, healthy], lambda: now_s[0])
    delivered = []
    for _ in range(3):
        delivered.append(delivery.deliver(NOTIFICATION))
        now_s[0] += RETRY_LIMIT_S / 2

    assert delivered == [False, False, True]
    assert healthy.received == [("firing", "lag")]


class Receiver:
    """A real HTTP server that records requests and answers with a given status."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.requested: list[str] = []
        self.status = 200
        self.location = "/login"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.answer()

            def do_GET(self) -> None:
                outer.requested.append(self.path)
                self.answer()

            def answer(self) -> None:
                self.send_response(outer.status)
                if outer.status // 100 == 3:
                    self.send_header("Location", outer.location)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/services/SECRET"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running receiver."""
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()


def test_a_webhook_receives_the_whole_notification(receiver: Receiver) -> None:
    """The body is JSON."""
    Webhook(receiver.url).send(NOTIFICATION)

    assert receiver.bodies == [{name: getattr(NOTIFICATION, name) for name in Notification.__struct_fields__}]


def test_a_heartbeat_is_sent_at_intervals(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Evaluations are more frequent. A failing receiver is logged once, without the secret in its address, and heartbeats continue."""
    now_s = [0.0]
    heartbeat = Heartbeat(receiver.url, lambda: now_s[0])

    def beat(times: int) -> None:
        for _ in range(times):
            heartbeat.beat_if_due()
            now_s[0] += BEAT_EVERY_S / 2

    beat(6)
    beats = len(receiver.requested)
    receiver.status = 500
    beat(4)

    assert (beats, len(receiver.requested)) == (3, 5)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "SECRET" not in caplog.text
    with pytest.raises(PenstockError, match="not a valid http"):
        Heartbeat("ftp://example.org", lambda: 0.0)


RESOLVED = Notification.of(
    ActiveAlert(
        "lag", "scorer", "lag_seconds", "above 300", 400.0, NOW_MS - 60_000, message="Its lag is <long> & more."
    ),
    "resolved",
    NOW_MS,
)
LINKED = msgspec.structs.replace(NOTIFICATION, severity="critical", runbook="https://example.org/runbooks/#lag")


def posted(receiver: Receiver, webhook_format: WebhookFormat, notification: Notification) -> Any:
    """Return the body that a real HTTP server receives."""
    Webhook(receiver.url, webhook_format, routing_key="R0").send(notification)
    return receiver.bodies[-1]


def test_a_resolved_notification_says_so() -> None:
    """The message says so before it names the problem."""
    assert RESOLVED.message == "Resolved after 60 s. It was: Its lag is <long> & more."


def test_slack_receives_severity_runbook_and_resolution(receiver: Receiver) -> None:
    """Its control characters are escaped, so that an error is neither a link nor a mention."""
    firing, resolved = (posted(receiver, WebhookFormat.SLACK, each) for each in (LINKED, RESOLVED))

    assert firing["text"] == "[CRITICAL] lag: scorer"
    assert firing["attachments"][0]["title_link"] == "https://example.org/runbooks/#lag"
    assert resolved["text"] == "[RESOLVED] lag: scorer"
    assert "&lt;long&gt; &amp; more" in resolved["attachments"][0]["text"]
    assert firing["attachments"][0]["color"] != resolved["attachments"][0]["color"]


def test_pagerduty_resolves_the_incident_that_it_triggered(receiver: Receiver) -> None:
    """Both requests have the same key. The incident has the severity and the link of the runbook."""
    long = msgspec.structs.replace(LINKED, message="x" * 5_000)
    firing, resolved = (posted(receiver, WebhookFormat.PAGERDUTY, each) for each in (long, RESOLVED))

    assert (firing["event_action"], resolved["event_action"]) == ("trigger", "resolve")
    assert firing["dedup_key"] == resolved["dedup_key"] == "penstock/lag/scorer"
    assert (firing["routing_key"], firing["payload"]["severity"]) == ("R0", "critical")
    assert len(firing["payload"]["summary"]) == 1024
    assert firing["links"] == [{"href": "https://example.org/runbooks/#lag", "text": "Runbook"}]


def test_alertmanager_keeps_an_alert_until_it_is_resolved(receiver: Receiver) -> None:
    """Both notifications have the same labels; the second one ends the alert, and the first does not."""
    [firing] = posted(receiver, WebhookFormat.ALERTMANAGER, NOTIFICATION)
    [resolved] = posted(receiver, WebhookFormat.ALERTMANAGER, RESOLVED)
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)

    assert firing["labels"] == resolved["labels"] == {"alertname": "lag", "processor": "scorer", "severity": "warning"}
    assert datetime.fromisoformat(firing["endsAt"]) > now + timedelta(days=1)
    assert datetime.fromisoformat(resolved["endsAt"]) == now
    assert datetime.fromisoformat(resolved["startsAt"]) == now - timedelta(seconds=60)


def test_pagerduty_needs_a_routing_key(receiver: Receiver) -> None:
    """It would reject each notification; the process refuses to start."""
    with pytest.raises(PenstockError, match="PENSTOCK_ALERTS_ROUTING_KEY"):
        Webhook(receiver.url, WebhookFormat.PAGERDUTY)


def test_each_built_in_rule_has_a_runbook() -> None:
    """A notification links to its heading."""
    page = (Path(__file__).parents[2] / "docs" / "runbooks.md").read_text(encoding="utf-8")
    received: list[Notification] = []

    class Keeping:
        def send(self, notification: Notification) -> None:
            received.append(notification)

    for rule in (*(rule.name for rule in DEFAULTS), UNREACHABLE_RULE):
        assert f"\n## {rule}\n" in page
    NotificationDelivery([Keeping()], runbooks="https://example.org/runbooks/").deliver(
        msgspec.structs.replace(NOTIFICATION, rule="many dead letters")
    )

    assert received[0].runbook == "https://example.org/runbooks/#many-dead-letters"


def test_a_rule_has_a_severity() -> None:
    """Built-in rules about lost events or stopped processing are critical; others warn."""
    severities = {rule.name: rule.severity for rule in DEFAULTS}

    assert {name for name, severity in severities.items() if severity == "critical"} == {
        "not running",
        "lost",
        "crash loop",
        "output missing",
        "blocked by a transaction",
        "events about to expire",
        "waiting",
    }
    with pytest.raises(DeclarationError, match="severity"):
        ps.Alert("x", "lag_seconds", above=1, severity="fatal")  # type: ignore[arg-type]  # refused at runtime, too


def test_errors_of_a_webhook_omit_its_secret(receiver: Receiver) -> None:
    """The receiver returns an error status, or does not answer."""
    receiver.status = 503
    with pytest.raises(NotificationFailed, match=r"127\.0\.0\.1 answered with status 503") as refused:
        Webhook(receiver.url).send(NOTIFICATION)
    receiver.server.shutdown()
    receiver.server.server_close()
    with pytest.raises(NotificationFailed, match="does not answer") as unreachable:
        Webhook(receiver.url).send(NOTIFICATION)

    assert "SECRET" not in str(refused.value) + str(unreachable.value)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirected_notification_is_not_delivered(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """A login page would answer the redirected request, without the notification or the heartbeat. The error names the other host."""
    receiver.status, receiver.location = status, "https://user:SECRET@login.example.org/SECRET"
    heartbeat = Heartbeat(receiver.url, lambda: 0.0)
    with pytest.raises(NotificationFailed, match=rf"status {status}, a redirect to https://login.example.org,"):
        Webhook(receiver.url).send(NOTIFICATION)
    heartbeat.beat_if_due()

    assert (len(receiver.bodies), len(receiver.requested)) == (1, 1)
    assert "a redirect to https://login.example.org," in caplog.text
    assert "SECRET" not in caplog.text


def test_an_invalid_webhook_is_refused_at_the_start() -> None:
    """A file URL is invalid, too."""
    for url in ("file:///etc/passwd", "example.org/hook", "http://"):
        with pytest.raises(PenstockError, match="not a valid http:// or https:// address"):
            Webhook(url)


def test_a_command_receives_the_notification(tmp_path: Path) -> None:
    """The command reads it from standard input. Every exit code except 0 is a failure."""
    program, received = tmp_path / "p.py", tmp_path / "received"
    program.write_text("import sys; open(sys.argv[1], 'w').write(sys.stdin.read())")
    CommandRecipient(f"{sys.executable} {program} {received}").send(NOTIFICATION)

    assert json.loads(received.read_text())["status"] == "firing"
    with pytest.raises(NotificationFailed, match=r"exited with 3: it is full"):
        CommandRecipient(
            f"""{sys.executable} -c 'import sys; print("it is full", file=sys.stderr); sys.exit(3)'"""
        ).send(NOTIFICATION)
    with pytest.raises(NotificationFailed, match="No such file"):
        CommandRecipient("no-such-program").send(NOTIFICATION)


def test_a_category_receives_each_notification() -> None:
    """Its key is the rule and the processor."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec("notifications", 1))
    recipient: Recipient = CategoryRecipient.open(bus, "notifications")
    recipient.send(NOTIFICATION)
    message = bus.scanner([Position(Bucket("notifications", 0), 0)]).poll(0).batches[0].messages[0]

    assert (message.key(), json.loads(message.value() or b"")["message"]) == (b"lag/scorer", NOTIFICATION.message)


@pytest.mark.parametrize(
    "worker",
    [worker_status(restarts=4, crash_loop_since_ms=NOW_MS - 60_000), worker_status(end_reason="no such category")],
)
def test_a_missing_output_is_one_incident(worker: WorkerStatus) -> None:
    """Workers that fail and restart for lack of it, or fail for good, raise no second alert."""
    others = worker_status("two", end_reason="no such category"), worker
    status = processor_status(shard_status(), workers=others, deleted_outputs=("scored",))
    rules = [change.key[0] for change in evaluate(rules_of(), cluster_status(status), Alerts())]

    assert (rules, [finding.kind for finding in cluster_status(status).findings]) == (["output missing"], ["no output"])


def test_a_missing_output_raises_no_alert_after_its_repair() -> None:
    """Its workers have failed repeatedly, but the incident lasts until its alert has resolved. A later crash loop is another one."""
    looping = processor_status(
        shard_status(), workers=(worker_status(restarts=4, crash_loop_since_ms=NOW_MS - 60_000),)
    )
    missing = replace(looping, deleted_outputs=("scored",))
    alerts, fired = Alerts(), []
    for number, status in enumerate([missing] * 12 + [looping] * 12):
        for key, after, before in evaluate(
            rules_of(), cluster_status(status, at_ms=NOW_MS + number * INTERVAL_MS), alerts
        ):
            if after is None:
                del alerts.active[key]
            else:
                alerts.active[key] = after
            if (notification := notification_of(after, before)) != "-":
                fired.append((key[0], notification))

    assert fired == [("output missing", "firing"), ("output missing", "resolved"), ("crash loop", "firing")]


@pytest.mark.parametrize(
    ("worker", "rule"),
    [
        (worker_status(restarts=4, crash_loop_since_ms=NOW_MS - 60_000), "crash loop"),
        (worker_status(report_age_s=300.0), "lost"),
        (worker_status(end_reason="Bad code."), "not running"),
        (worker_status(waits_for="the sink totals", waits_s=120.0), "waiting"),
    ],
)
def test_a_processor_without_progress_is_one_incident(worker: WorkerStatus, rule: str) -> None:
    """Its lag and its watermark follow from it; the message has the cause, and not what else is known about the processor."""
    shard = shard_status(backlog_events=5_000, lag_s=4_000.0)
    status = processor_status(shard, workers=(worker,), watermark_stall_s=4_000.0, dead_letters=7)
    alerts, fired = Alerts(), []
    for number in range(60):
        cluster = cluster_status(status, at_ms=NOW_MS + number * INTERVAL_MS)
        for key, after, before in evaluate(rules_of(), cluster, alerts):
            assert after is not None
            alerts.active[key] = after
            if notification_of(after, before) == "firing":
                fired.append(key[0])

    assert fired == [rule]
    assert "dead letters" not in alerts.active[(rule, "scorer")].message


def test_an_alert_that_fired_before_its_cause_does_not_resolve_by_it() -> None:
    """A notification that the lag has resolved would be wrong while nothing is processed."""
    shard = shard_status(backlog_events=5_000, lag_s=4_000.0)
    lagging = processor_status(shard, workers=(worker_status(per_s=Counts(events_in=1.0)),))
    lost = processor_status(shard, workers=(worker_status(report_age_s=300.0),))
    alerts, sent = Alerts(), []
    for number, status in enumerate([lagging] * 20 + [lost] * 60):
        cluster = cluster_status(status, at_ms=NOW_MS + number * INTERVAL_MS)
        for key, after, before in evaluate([LAG, *(rule for rule in DEFAULTS if rule.name == "lost")], cluster, alerts):
            alerts.active.pop(key, None)
            alerts.active.update({} if after is None else {key: after})
            if (notification := notification_of(after, before)) != "-":
                sent.append((key[0], notification))

    assert sent == [("lag", "firing"), ("lost", "firing")]


def test_a_slow_checkpoint_is_no_problem_for_ever() -> None:
    """Without events there is no further checkpoint, so the duration of the last one says nothing about the present."""
    rules = [rule for rule in DEFAULTS if rule.name == "checkpoint slow"]
    slow, idle = (
        processor_status(shard_status(), workers=(worker_status(checkpoint_duration_s=90.0, checkpoint_age_s=age_s),))
        for age_s in (100.0, 600.0)
    )

    assert [bool(evaluate(rules, cluster_status(status), Alerts())) for status in (slow, idle)] == [True, False]


def test_a_checkpoint_is_slow_while_it_hangs() -> None:
    """The alert does not wait for its end, even if the checkpoint before was quick. The finding says so, too."""
    rules = [rule for rule in DEFAULTS if rule.name == "checkpoint slow"]
    quick, hanging = (
        processor_status(
            shard_status(), workers=(worker_status(checkpoint_running_s=running_s, checkpoint_age_s=600.0),)
        )
        for running_s in (5.0, 95.0)
    )

    assert [bool(evaluate(rules, cluster_status(status), Alerts())) for status in (quick, hanging)] == [False, True]
    assert [[finding.kind for finding in cluster_status(status).findings] for status in (quick, hanging)] == [
        [],
        ["checkpoint"],
    ]


def test_built_in_rules_do_not_fire_without_a_problem() -> None:
    """One processor runs, and another was stopped without a backlog."""
    reading, idle = worker_status(per_s=Counts(events_in=100.0)), worker_status("two", checkpoint_age_s=9_000.0)
    shard = shard_status(backlog_events=5, lag_s=2.0, retention_remaining_s=600.0)
    running = processor_status(shard, workers=(reading, idle))
    stopped = processor_status(shard_status(), workers=(worker_status(end_reason="stopped", report_age_s=100.0),))

    assert evaluate(rules_of(), cluster_status(running, stopped), Alerts()) == []
