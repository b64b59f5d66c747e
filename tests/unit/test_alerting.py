"""Who is told of what, and when."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pictures import NODE, NOW_MS, picture, report, shard, standing, worker

import penstock as ps
from penstock.ops.alerting.alert_evaluator import AlertEvaluator
from penstock.ops.alerting.alert_loop import AlertLoop
from penstock.ops.alerting.alert_states import (
    ALERTS,
    ActiveAlert,
    Alerts,
    SilencedAlert,
    alerts_on,
    keep,
    silence_message,
    unsilence_message,
)
from penstock.ops.alerting.evaluation import LEAST_SETTLING_MS, judged
from penstock.ops.alerting.notifications import (
    GIVEN_UP_AFTER_S,
    CategoryOfAlerts,
    Command,
    Delivery,
    Notification,
    NotificationFailed,
    Recipient,
    Webhook,
)
from penstock.ops.alerting.rules import DEFAULTS, Alerting, Rule, RulesUnfit, rules_of
from penstock.ops.monitoring.observer import Observer
from penstock.ops.monitoring.reports import REPORTS, outgoing
from penstock.processors.declare.apps import AppName
from penstock.processors.errors import DeclarationError, PenstockError
from penstock.transport.category_spec import CategorySpec, CategoryState
from penstock.transport.errors import BusError, BusUnreachable, OffsetOutOfRange
from penstock.transport.internal_topics import create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket, Outgoing, Position

LAG = ps.Alert("lag", "behind_seconds", above=300)
LOOK_MS = 10_000
NOTICE = Notification("firing", "lag", "scorer", "behind_seconds", "above 300", 400.0, NOW_MS, NOW_MS, "It is late.")


def looked(waits: list[bool], rule: ps.Alert = LAG) -> list[str]:
    """Look every ten seconds at a processor that is behind or not; what changed at each look, in a word."""
    alerts, told = Alerts(), []
    for number, behind in enumerate(waits):
        seen = standing(shard(behind_s=400.0 if behind else 1.0))
        word = "-"
        for subject, now, before in judged([rule], picture(seen, at_ms=NOW_MS + number * LOOK_MS), alerts):
            if now is None:
                del alerts.raised[subject]
            else:
                alerts.raised[subject] = now
            word = word_of(now, before)
        told.append(word)
    return told


def word_of(now: ActiveAlert | None, before: ActiveAlert | None) -> str:
    """Return what became of an alert, where people are to hear of it."""
    was, fires = before is not None and before.firing, now is not None and now.firing
    return "firing" if fires and not was else "resolved" if was and not fires else "-"


def test_a_limit_has_to_be_crossed_for_a_while() -> None:
    """Two minutes here; and as long again before it is called resolved."""
    told = looked([True] * 20 + [False] * 20)

    assert [(number, word) for number, word in enumerate(told) if word != "-"] == [(12, "firing"), (32, "resolved")]


def test_what_comes_and_goes_is_not_told() -> None:
    """Neither that it is beyond the limit for a minute, nor, once it fires, that it is within for a minute."""
    assert set(looked([True, False] * 30)) == {"-"}
    assert [
        word for word in looked([True] * 13 + [False] * 6 + [True] * 6 + [False] * 6 + [True] * 6) if word != "-"
    ] == ["firing"]


@given(st.lists(st.booleans(), max_size=120), st.sampled_from([0, 20, 60, 120]))
def test_people_hear_of_it_in_turns_and_never_for_less_than_they_asked(waits: list[bool], lasting_s: int) -> None:
    """Firing and resolved alternate; before each of them the figure was beyond, or within, for all of its time."""
    told = looked(waits, ps.Alert("lag", "behind_seconds", above=300, duration=timedelta(seconds=lasting_s)))
    heard = [(number, word) for number, word in enumerate(told) if word != "-"]

    assert [word for _, word in heard] == ["firing", "resolved"] * (len(heard) // 2) + ["firing"] * (len(heard) % 2)
    for number, word in heard:
        looks = lasting_s // 10 if word == "firing" else max(lasting_s * 1000, LEAST_SETTLING_MS) // LOOK_MS
        assert waits[number - looks : number + 1] == [word == "firing"] * (looks + 1)


def test_an_alert_says_the_figure_and_what_is_wrong() -> None:
    """So that whoever is woken need not look it up."""
    change = judged([LAG], picture(standing(shard(behind=5, behind_s=400.0))), Alerts())[0]

    assert change.now is not None
    assert change.now.says.startswith("behind_seconds of scorer is 400, above 300. Its backlog is 5 events")


def test_a_rule_is_about_the_processors_that_it_names() -> None:
    """By a pattern."""
    late = picture(standing(shard(behind_s=400.0)))
    found = [
        bool(judged([ps.Alert("lag", "behind_seconds", above=300, processors=name)], late, Alerts()))
        for name in ("*", "sc*", "ranker")
    ]

    assert found == [True, True, False]


def test_the_alert_of_a_rule_that_is_gone_is_over() -> None:
    """Nobody would ever end it."""
    alerts = Alerts(
        {("lag", "scorer"): ActiveAlert("lag", "scorer", "behind_seconds", "above 300", 400.0, NOW_MS, firing=True)}
    )

    assert [change.now for change in judged([], picture(standing(shard(behind_s=400.0))), alerts)] == [None]


def test_a_figure_that_is_not_known_is_no_reason() -> None:
    """Neither above nor below."""
    assert not ps.Alert("a", "backup_age_seconds", above=-1).is_beyond(None)
    assert not ps.Alert("a", "backup_age_seconds", below=1).is_beyond(None)


@pytest.mark.parametrize("limits", [{}, {"above": 1, "below": 2}, {"above": 1, "duration": timedelta(seconds=-1)}])
def test_an_alert_that_cannot_be_meant_is_refused(limits: dict[str, Any]) -> None:
    """Where it is declared."""
    with pytest.raises(DeclarationError, match="'lag'"):
        ps.Alert("lag", "behind_seconds", **limits)


def test_rules_of_one_name_replace_one_another() -> None:
    """An app's those that hold everywhere."""
    own = ps.Alert("lag", "behind_events", above=10)
    found = {rule.name: rule for rule in rules_of([own])}

    assert found["lag"] == own
    assert len(found) == len(DEFAULTS)


def test_a_figure_that_there_is_not_is_told_with_the_nearest() -> None:
    """Before anything is watched."""
    with pytest.raises(RulesUnfit, match="did you mean 'behind_seconds'"):
        rules_of([ps.Alert("x", "behind_secnds", above=1)])


def test_rules_come_from_the_configuration() -> None:
    """With their time in seconds."""
    rule = Rule(name="slow", measure="in_per_second", below=5, duration_s=60, processors="s*")

    assert Alerting((rule,)).alerts() == [
        ps.Alert("slow", "in_per_second", below=5, duration=timedelta(minutes=1), processors="s*")
    ]


def test_an_app_declares_alerts(tmp_path: Path) -> None:
    """At the top level of its file, by themselves or in a list."""
    path = tmp_path / "app.py"
    path.write_text(
        "import penstock as ps\n"
        "class R(ps.Record, frozen=True):\n    k: str\n    at: ps.EventTime\n"
        "a = ps.Category('a', R, key='k', event_time='at', buckets=1)\n"
        "b = ps.Category('b', R, key='k', event_time='at', buckets=1)\n"
        "class P(ps.Stateless):\n    reads, writes = a, b\n    def process(self, event): return []\n"
        "one = ps.Alert('one', 'workers', below=1)\nothers = [ps.Alert('two', 'behind_events', above=5)]\n"
    )

    assert [alert.name for alert in AppName(path).load().alerts] == ["one", "two"]


class Remembering:
    """Remembers what it is told, or fails."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.fails = False

    def tell(self, notice: Notification) -> None:
        if self.fails:
            raise NotificationFailed("Nobody is there.")
        self.told.append((notice.status, notice.rule))


class Watch:
    """A processor that nobody runs, watched in steered time."""

    def __init__(self, bus: Callable[[Callable[[], int]], MemoryBus] = MemoryBus) -> None:
        self.now_ms = NOW_MS
        self.bus = bus(lambda: self.now_ms)
        create_missing_categories(self.bus, REPORTS)
        self.bus.catalog.create(CategorySpec("enriched", 1))
        self.recipient = Remembering()

    def send(self) -> None:
        self._write("enriched", [Outgoing(b"k", b"v")])

    def _write(self, category: str, messages: list[Outgoing]) -> None:
        with closing(self.bus.writer()) as writer:
            writer.send(category, messages)
            writer.flush()

    def run_it(self) -> None:
        end = self.bus.catalog.ends("enriched")[0]
        self.bus.catalog.set_committed(NODE.name, [Position(Bucket("enriched", 0), end)])
        self._write(REPORTS.name, [outgoing(report(self.now_ms))])

    def watchman(self) -> tuple[Observer, AlertEvaluator]:
        observer = Observer(self.bus, [NODE], now_ms=lambda: self.now_ms)
        return observer, AlertEvaluator(
            self.bus, observer, [rule for rule in DEFAULTS if rule.name == "not running"], Delivery([self.recipient])
        )

    def turns(self, watchman: AlertEvaluator | AlertLoop, count: int) -> None:
        for _ in range(count):
            watchman.turn()
            self.now_ms += LOOK_MS


@pytest.fixture
def watch() -> Iterator[tuple[Watch, AlertEvaluator]]:
    """A watch, and who has it."""
    watch = Watch()
    observer, watchman = watch.watchman()
    with closing(observer), closing(watchman):
        yield watch, watchman


def test_it_is_told_once_when_it_is_wrong_and_once_when_it_is_over(watch: tuple[Watch, AlertEvaluator]) -> None:
    """However often it is looked at."""
    it, watchman = watch
    it.send()
    it.turns(watchman, 12)
    it.run_it()
    it.turns(watchman, 12)

    assert it.recipient.told == [("firing", "not running"), ("resolved", "not running")]
    assert alerts_on(it.bus).raised == {}


def test_who_could_not_be_told_is_told_later(
    watch: tuple[Watch, AlertEvaluator], caplog: pytest.LogCaptureFixture
) -> None:
    """Also that it is over; and that he was not told is logged."""
    it, watchman = watch
    it.send()
    it.recipient.fails = True
    it.turns(watchman, 10)
    it.recipient.fails = False
    it.turns(watchman, 2)
    it.run_it()
    it.recipient.fails = True
    it.turns(watchman, 12)
    it.recipient.fails = False
    it.turns(watchman, 1)

    assert it.recipient.told == [("firing", "not running"), ("resolved", "not running")]
    assert "Nobody is there. Not told yet: not running of scorer is firing." in caplog.text


def test_whoever_watches_next_goes_on_with_what_was_told(watch: tuple[Watch, AlertEvaluator]) -> None:
    """It is not told anew; that it is over is."""
    it, watchman = watch
    it.send()
    it.turns(watchman, 12)
    observer, second = it.watchman()
    with closing(observer), closing(second):
        it.turns(second, 1)
        waits = not second.on_watch
        watchman.close()
        it.turns(second, 5)
        it.run_it()
        it.turns(second, 12)

    assert waits
    assert it.recipient.told == [("firing", "not running"), ("resolved", "not running")]


def test_what_is_silenced_is_told_afterwards_if_it_still_fires(watch: tuple[Watch, AlertEvaluator]) -> None:
    """A silence ends by itself, or when somebody ends it."""
    it, watchman = watch
    keep(it.bus, [silence_message(SilencedAlert("s", "not*", "*", it.now_ms + 10 * LOOK_MS))])
    it.send()
    it.turns(watchman, 10)
    silenced = list(it.recipient.told)
    it.turns(watchman, 2)

    assert (silenced, it.recipient.told) == ([], [("firing", "not running")])
    assert alerts_on(it.bus).silences == {}


def test_a_silence_that_is_ended_is_over(watch: tuple[Watch, AlertEvaluator]) -> None:
    """At the next look."""
    it, watchman = watch
    keep(it.bus, [silence_message(SilencedAlert("s", "*", "scorer", it.now_ms + 10**9))])
    it.send()
    it.turns(watchman, 10)
    silenced = list(it.recipient.told)
    keep(it.bus, [unsilence_message("s")])
    it.turns(watchman, 1)

    assert (silenced, it.recipient.told) == ([], [("firing", "not running")])


class Late(MemoryBus):
    """Gives notes of alerts one at a time."""

    def scanner(self, positions: Sequence[Position]) -> Any:
        scanner = super().scanner(positions)
        if positions[0].bucket.category == ALERTS.name:
            scanner.at_most = 1
        return scanner


def test_notes_that_come_back_late_change_nothing() -> None:
    """Whoever has the watch knows better what he told: he tells it once."""
    it = Watch(Late)
    _, watchman = it.watchman()
    with closing(watchman):
        it.send()
        it.turns(watchman, 20)
        it.run_it()
        it.turns(watchman, 20)

    assert it.recipient.told == [("firing", "not running"), ("resolved", "not running")]
    assert alerts_on(it.bus).raised == {}


class Leaving(MemoryBus):
    """Does not answer while there is a reason."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.away: BusError | None = None

    def names(self) -> list[str]:
        if self.away is not None:
            raise self.away
        return super().names()

    def describe(self, name: str) -> CategoryState:
        self.names()
        return super().describe(name)


class Outage:
    """A processor that is watched on a bus that comes and goes."""

    def __init__(self) -> None:
        self.bus: Leaving
        self.watch = Watch(self._bus)
        self.opened: list[AlertEvaluator] = []
        self.vigil = AlertLoop(
            self.bus,
            self._watchman,
            Delivery([self.watch.recipient]),
            away_after_s=30,
            now_ms=lambda: self.watch.now_ms,
        )
        self.watch.turns(self.vigil, 1)

    def _bus(self, now_ms: Callable[[], int]) -> Leaving:
        self.bus = Leaving(now_ms)
        return self.bus

    def _watchman(self) -> AlertEvaluator:
        self.opened.append(self.watch.watchman()[1])
        return self.opened[-1]

    def lasting(self, looks: int, why: BusError | None = None) -> None:
        """Let it be away for so many looks, ten seconds each."""
        self.bus.away = why or BusUnreachable("Nobody is there.")
        self.watch.turns(self.vigil, looks)
        self.bus.away = None

    @property
    def told(self) -> list[tuple[str, str]]:
        return self.watch.recipient.told


@pytest.fixture
def outage() -> Iterator[Outage]:
    """A watch that is kept, and nothing wrong yet."""
    it = Outage()
    with closing(it.vigil):
        yield it


AWAY_AND_BACK = [("firing", "bus away"), ("resolved", "bus away")]


def test_a_watch_outlives_the_bus(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """That it does not answer is told once, and that it does again; then all is watched as before."""
    outage.lasting(10)
    outage.watch.turns(outage.vigil, 1)
    outage.watch.send()
    outage.watch.turns(outage.vigil, 12)

    assert outage.told == [*AWAY_AND_BACK, ("firing", "not running")]
    assert len(outage.opened) == 1
    assert caplog.text.count("The bus cannot be asked") == caplog.text.count("The bus answers again") == 1
    assert "answers again, after 100 s" in caplog.text


def test_a_bus_that_is_back_soon_is_logged_and_not_told(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """A broker was started again."""
    for _ in range(3):
        outage.lasting(3)
        outage.watch.turns(outage.vigil, 1)

    assert outage.told == []
    assert caplog.text.count("The bus answers again") == 3


def test_only_who_has_the_watch_tells_that_the_bus_is_away(outage: Outage) -> None:
    """The others hold their peace."""
    second = AlertLoop(
        outage.bus,
        lambda: outage.watch.watchman()[1],
        Delivery([outage.watch.recipient]),
        away_after_s=0,
        now_ms=lambda: outage.watch.now_ms,
    )
    with closing(second):
        outage.watch.turns(second, 1)
        outage.bus.away = BusUnreachable("Nobody is there.")
        outage.watch.turns(second, 5)

    assert outage.told == []


def test_a_bus_that_is_away_may_be_silenced(outage: Outage) -> None:
    """As long as it was there to keep that."""
    keep(outage.bus, [silence_message(SilencedAlert("s", "bus*", "*", outage.watch.now_ms + 10**9))])
    outage.watch.turns(outage.vigil, 1)
    outage.lasting(10)

    assert outage.told == []


def test_who_cannot_be_told_that_the_bus_is_away_is_told_later(outage: Outage) -> None:
    """First that it went, then that it came."""
    outage.watch.recipient.fails = True
    outage.lasting(10)
    outage.watch.turns(outage.vigil, 3)
    outage.watch.recipient.fails = False
    outage.watch.turns(outage.vigil, 1)

    assert outage.told == AWAY_AND_BACK


def test_a_watchman_who_cannot_go_on_is_replaced(outage: Outage) -> None:
    """As where the bus was made anew: what he goes by is no more."""
    outage.lasting(2, OffsetOutOfRange("The position is not on the bus."))
    outage.watch.send()
    outage.watch.turns(outage.vigil, 12)

    assert len(outage.opened) == 2
    assert outage.told == [("firing", "not running")]


def test_one_that_cannot_be_told_does_not_keep_others_from_it() -> None:
    """Nor are those told twice; after an hour it is given up."""
    now_s = [0.0]
    deaf, hears = Remembering(), Remembering()
    deaf.fails = True
    delivery = Delivery([deaf, hears], lambda: now_s[0])
    tries = []
    for _ in range(3):
        tries.append(delivery.tell(NOTICE))
        now_s[0] += GIVEN_UP_AFTER_S / 2

    assert tries == [False, False, True]
    assert hears.told == [("firing", "lag")]


class Receiver:
    """A real HTTP server that remembers what it was sent, and answers as it is told to."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.answer = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(outer.answer)
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
    """A receiver of this test's own."""
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()


def test_a_webhook_is_sent_all_that_is_known(receiver: Receiver) -> None:
    """As JSON."""
    Webhook(receiver.url).tell(NOTICE)

    assert receiver.bodies == [{name: getattr(NOTICE, name) for name in Notification.__struct_fields__}]


def test_a_webhook_that_does_not_take_it_is_told_without_its_secret(receiver: Receiver) -> None:
    """Whether it answers something else, or not at all."""
    receiver.answer = 503
    with pytest.raises(NotificationFailed, match=r"127\.0\.0\.1 answered 503") as refused:
        Webhook(receiver.url).tell(NOTICE)
    receiver.server.shutdown()
    receiver.server.server_close()
    with pytest.raises(NotificationFailed, match="does not answer") as absent:
        Webhook(receiver.url).tell(NOTICE)

    assert "SECRET" not in str(refused.value) + str(absent.value)


def test_what_is_no_address_is_refused_before_anything_is_watched() -> None:
    """Also files."""
    for url in ("file:///etc/passwd", "example.org/hook", "http://"):
        with pytest.raises(PenstockError, match="no address of the web"):
            Webhook(url)


def test_a_command_is_given_the_notice(tmp_path: Path) -> None:
    """On its standard input; it has to end well."""
    program, told = tmp_path / "p.py", tmp_path / "told"
    program.write_text("import sys; open(sys.argv[1], 'w').write(sys.stdin.read())")
    Command(f"{sys.executable} {program} {told}").tell(NOTICE)

    assert json.loads(told.read_text())["status"] == "firing"
    with pytest.raises(NotificationFailed, match=r"ended with 3: it is full"):
        Command(f"""{sys.executable} -c 'import sys; print("it is full", file=sys.stderr); sys.exit(3)'""").tell(NOTICE)
    with pytest.raises(NotificationFailed, match="No such file"):
        Command("no-such-program").tell(NOTICE)


def test_a_category_is_written_each_notice() -> None:
    """By rule and processor."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec("told", 1))
    recipient: Recipient = CategoryOfAlerts(bus, "told")
    recipient.tell(NOTICE)
    message = bus.scanner([Position(Bucket("told", 0), 0)]).poll(0).batches[0].messages[0]

    assert (message.key(), json.loads(message.value() or b"")["says"]) == (b"lag/scorer", "It is late.")


def test_default_rules_say_nothing_of_what_is_well(caplog: pytest.LogCaptureFixture) -> None:
    """A processor that works, and one that was stopped when all was read."""
    caplog.set_level(logging.WARNING)
    reads, waits = worker(rate_in=100.0), worker("two", saved_s=9_000.0)
    well = standing(shard(behind=5, behind_s=2.0, expires_s=600.0), workers=(reads, waits))
    stopped = standing(shard(), workers=(worker(ended="stopped", silent_s=100.0),))

    assert judged(rules_of(), picture(well, stopped), Alerts()) == []
