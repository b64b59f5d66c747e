"""What is seen of processors that run, and what is said to be wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry
from support.pictures import NODE, NOW_MS, report, shard, standing, worker

from penstock.ops.monitoring.finding import Severity
from penstock.ops.monitoring.findings import findings_of
from penstock.ops.monitoring.graph import Drawing, drawn
from penstock.ops.monitoring.measures import OF_PROCESSOR, OF_SHARD, OF_WORKER, Measure
from penstock.ops.monitoring.observer import REGISTRATIONS_EVERY_MS, Observer, in_order
from penstock.ops.monitoring.prometheus import Scraped
from penstock.ops.monitoring.reports import REPORTS, Node, Report, outgoing
from penstock.ops.monitoring.status import ClusterStatus, ProcessorStatus
from penstock.ops.worker.identity import count_restart
from penstock.transport.category_spec import CategorySpec
from penstock.transport.errors import BusError
from penstock.transport.internal_topics import create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket, Outgoing, Position
from penstock.transport.tables.registrations import ShardRecord, record_shards

DOCS = Path(__file__).parents[2] / "docs"


class World:
    """A bus in memory in steered time, with one processor's input of two buckets that is kept for an hour."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.bus = MemoryBus(lambda: self.now_ms)
        create_missing_categories(self.bus, REPORTS)
        self.bus.catalog.create(CategorySpec("enriched", 2, timedelta(hours=1)))

    def send(self, bucket: int, count: int) -> None:
        self._write("enriched", [Outgoing(b"k", b"v", bucket)] * count)

    def report(self, *reports: Report) -> None:
        self._write(REPORTS.name, map(outgoing, reports))

    def _write(self, category: str, messages: Any) -> None:
        with closing(self.bus.writer()) as writer:
            writer.send(category, messages)
            writer.flush()

    def commit(self, bucket: int, offset: int) -> None:
        self.bus.catalog.set_committed(NODE.name, [Position(Bucket("enriched", bucket), offset)])

    @contextmanager
    def observer(self) -> Iterator[Observer]:
        with closing(Observer(self.bus, [NODE], now_ms=lambda: self.now_ms)) as observer:
            yield observer

    def look(self) -> ProcessorStatus:
        with self.observer() as observer:
            return observer.look().standings[0]


def test_what_is_left_and_since_when_it_waits_comes_from_the_bus() -> None:
    """Also where nobody runs."""
    world = World()
    world.send(0, 5)
    world.now_ms += 30_000
    world.send(0, 5)
    world.send(1, 3)
    world.commit(0, 4)
    world.now_ms += 60_000
    seen = world.look()

    assert [(one.bucket, one.behind, one.behind_s, one.owner) for one in seen.shards] == [
        (0, 6, 90.0, ""),
        (1, 3, 60.0, ""),
    ]
    assert [one.expires_s for one in seen.shards] == [3_600 - 90, 3_600 - 60]
    assert (seen.behind, seen.behind_s, seen.behind_bytes, seen.workers) == (9, 90.0, None, ())


OTHER = msgspec.structs.replace(NODE, name="other")


class Refusing:
    """A bus whose catalog refuses some questions: those of which `refuses` says so, by the method's name and its first argument."""

    def __init__(self, bus: MemoryBus, refuses: Callable[[str, object], bool]) -> None:
        self._bus = bus
        self._refuses = refuses

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._bus, name)
        if name == "catalog":
            return self

        def asked(*about: object) -> object:
            if self._refuses(name, about[0] if about else None):
                raise BusError(f"{name} was refused.")
            return found(*about)

        return asked if name in {"names", "describe", "committed", "waiting_since"} else found


def looked_at_two(world: World, refuses: Callable[[str, object], bool]) -> ClusterStatus:
    """Return what is seen of two processors that lag in one bucket at different offsets."""
    world.send(0, 10)
    world.commit(0, 4)
    world.bus.catalog.set_committed("other", [Position(Bucket("enriched", 0), 7)])
    world.now_ms += 60_000
    with closing(Observer(Refusing(world.bus, refuses), [NODE, OTHER], now_ms=lambda: world.now_ms)) as observer:
        return observer.look()


def test_two_processors_may_lag_in_one_bucket_at_different_offsets() -> None:
    """Each has its own figures."""
    seen = looked_at_two(World(), lambda _name, _asked: False).standings

    assert [(it.node.name, it.behind, it.behind_s, it.unread) for it in seen] == [
        ("other", 3, 60.0, ()),
        ("scorer", 6, 60.0, ()),
    ]


@pytest.mark.parametrize(
    ("refuses", "left"),
    [
        pytest.param(lambda name, asked: (name, asked) == ("committed", "other"), (None, None), id="positions"),
        pytest.param(lambda name, _: name == "waiting_since", (3, None), id="waiting"),
    ],
)
def test_a_figure_that_cannot_be_read_hides_no_other(
    refuses: Callable[[str, object], bool], left: tuple[int | None, float | None]
) -> None:
    """It is shown as unknown, with a finding that names it; whatever else is wrong is found."""
    picture = looked_at_two(World(), refuses)
    other, scorer = picture.standings

    assert (other.behind, other.behind_s) == left
    assert scorer.behind == 6
    assert "other" in {finding.processor for finding in picture.findings if finding.kind == "unknown"}
    assert "scorer" in {finding.processor for finding in picture.findings if finding.kind == "not running"}
    assert "unknown" in drawn([other], Drawing.TEXT)


def test_dead_letters_are_counted_although_a_category_with_a_longer_name_is_unknown() -> None:
    """The processor has no dead letters yet; the failed query concerns an input whose name contains theirs."""
    world = World()
    node = replace_node(inputs=("enriched", f"{NODE.dead_letters}-copies"))
    world.bus.catalog.create(CategorySpec(node.inputs[1], 2))
    refusing = Refusing(world.bus, lambda name, asked: (name, asked) == ("describe", node.inputs[1]))
    with closing(Observer(refusing, [node], now_ms=lambda: world.now_ms)) as observer:
        status = observer.look().standings[0]

    assert (len(status.unread), status.dead_letters) == (1, 0)


def test_unreadable_dead_letters_are_unknown() -> None:
    """Their number is not reported as zero."""
    world = World()
    world.bus.catalog.create(CategorySpec(NODE.dead_letters, 2))
    picture = looked_at_two(world, lambda name, asked: (name, asked) == ("describe", NODE.dead_letters))

    assert [it.dead_letters for it in picture.standings if it.node.name == NODE.name] == [None]


def test_a_category_that_cannot_be_described_is_not_said_to_be_missing() -> None:
    """Its readers' figures are unknown."""
    picture = looked_at_two(World(), lambda name, asked: (name, asked) == ("describe", "enriched"))

    assert [(it.behind, it.behind_s) for it in picture.standings] == [(None, None), (None, None)]
    assert {finding.kind for finding in picture.findings} == {"unknown"}


def test_a_bus_that_answers_nothing_is_no_picture() -> None:
    """Who watches is told so, as of an outage, and not that each figure is unknown."""
    with pytest.raises(BusError):
        looked_at_two(World(), lambda name, _: name == "names")


def test_the_oldest_event_is_looked_for_anew_when_the_position_has_moved() -> None:
    """What was found for one position is not told of another."""
    world = World()
    world.send(0, 5)
    world.now_ms += 30_000
    world.send(0, 5)
    with world.observer() as observer:
        waits = [observer.look().standings[0].behind_s]
        world.commit(0, 5)
        waits.append(observer.look().standings[0].behind_s)
        world.commit(0, 10)
        waits.append(observer.look().standings[0].behind_s)

    assert waits == [30.0, 0.0, 0.0]


def test_who_runs_it_and_how_fast_comes_from_reports() -> None:
    """Rates are those between the first and the last report of one process within a minute."""
    world = World()
    world.send(0, 10)
    world.report(report(NOW_MS - 70_000, 0), report(NOW_MS - 10_000, 1_000), report(NOW_MS, 1_500))
    seen = world.look()

    assert [one.owner for one in seen.shards] == ["one", ""]
    assert seen.total("rate_in") == seen.shards[0].rate_in == 50.0
    assert (seen.total("bytes_in"), seen.total("rate_out")) == (5_000.0, 25.0)
    assert seen.behind_bytes == 1_000


def test_a_topic_that_was_created_again_is_seen() -> None:
    """Whether or not a worker runs, which would idle there; and until its positions are of the new one."""
    world = World()
    catalog = world.bus.catalog
    record_shards(world.bus, NODE.name, {0: ShardRecord({"enriched": catalog.describe("enriched").topic_id})})
    with world.observer() as observer:
        before = observer.look()
        catalog.delete("enriched")
        catalog.create(CategorySpec("enriched", 2))
        recreated = observer.look()
        record_shards(world.bus, NODE.name, {0: ShardRecord({"enriched": catalog.describe("enriched").topic_id})})
        world.now_ms += REGISTRATIONS_EVERY_MS
        after = observer.look()

    assert [one.kind for one in (*before.findings, *after.findings)] == []
    [wrong] = recreated.findings
    assert (wrong.kind, wrong.severity) == ("recreated", Severity.CRITICAL)
    assert "enriched was deleted and created again" in wrong.message
    assert "penstock reset" in wrong.message


def test_counts_of_a_process_that_was_started_again_begin_anew() -> None:
    """The rate is not that of two processes together."""
    world = World()
    world.report(
        report(NOW_MS - 20_000, 9_000),
        *(report(NOW_MS - ms, 100 - ms // 100, started_ms=NOW_MS - 9_000) for ms in (8_000, 0)),
    )

    assert world.look().total("rate_in") == 80 / 8


def test_rates_are_taken_over_as_long_as_is_asked_for() -> None:
    """Whoever has just changed something wants to see what it does since then."""
    world = World()
    ends = ((20_000, 0), (4_000, 16), (2_000, 116), (0, 216))
    world.report(*(report(NOW_MS - before_ms, events) for before_ms, events in ends))
    with closing(Observer(world.bus, [NODE], now_ms=lambda: world.now_ms, rates_over_s=3.0)) as observer:
        lately = observer.look().standings[0].total("rate_in")

    assert lately == 100 / 2
    assert world.look().total("rate_in") == 216 / 20


def test_a_worker_that_says_nothing_owns_nothing_and_does_nothing() -> None:
    """Though it has never said its end."""
    world = World()
    world.report(report(NOW_MS - 4_000, 0), report(NOW_MS, 1_000))
    world.now_ms += 21_000
    seen = world.look()

    assert (seen.running, seen.total("rate_in"), seen.shards[0].owner) == ((), 0.0, "")
    assert [finding.kind for finding in findings_of([seen])] == ["silent"]


def test_a_worker_that_has_been_silent_for_an_hour_is_forgotten() -> None:
    """Also by those who have watched all the time."""
    world = World()
    world.report(report(NOW_MS, ended="No room."))
    with world.observer() as observer:
        before = observer.look().standings[0].workers
        world.now_ms += 3_601_000
        after = observer.look().standings[0].workers

    assert ([one.ended for one in before], after) == (["No room."], ())


def test_event_time_that_stands_still_is_timed_only_while_events_wait() -> None:
    """By whoever looks, from one look to the next."""
    world = World()
    still = []
    with world.observer() as observer:
        for sent, passed_ms in ((0, 60_000), (5, 60_000), (0, 60_000)):
            world.send(0, sent)
            still.append(observer.look().standings[0].watermark_still_s)
            world.now_ms += passed_ms
        still.append(observer.look().standings[0].watermark_still_s)

    assert still == [0.0, 0.0, 60.0, 120.0]


def test_without_an_app_all_that_report_are_seen_upstream_first() -> None:
    """A processor that only others know of is not asked for."""
    world = World()
    downstream = replace_node(name="a", inputs=("scored",), outputs=("ranked",))
    world.report(report(NOW_MS, node=downstream), report(NOW_MS))
    with closing(Observer(world.bus, now_ms=lambda: world.now_ms)) as all_of_them:
        seen = [one.node.name for one in all_of_them.look().standings]
    with closing(Observer(world.bus, [NODE], others=False, now_ms=lambda: world.now_ms)) as one_of_them:
        asked = [one.node.name for one in one_of_them.look().standings]

    assert (seen, asked) == (["scorer", "a"], ["scorer"])


def replace_node(**given: Any) -> Node:
    return msgspec.structs.replace(NODE, **given)


def test_a_circle_is_listed_by_name() -> None:
    """Two that feed one another have no order."""
    there, back = (
        replace_node(name="b", inputs=("x",), outputs=("y",)),
        replace_node(name="a", inputs=("y",), outputs=("x",)),
    )

    assert in_order([there, back]) == [back, there]


WAITS: dict[str, Any] = {"behind": 1_200, "behind_bytes": 5_000_000, "behind_s": 600.0}


@pytest.mark.parametrize(
    ("seen", "kind", "severity", "words"),
    [
        (
            standing(shard(**WAITS, owner=""), workers=()),
            "not running",
            Severity.CRITICAL,
            "its backlog is 1,200 events (about 5.0 MB)",
        ),
        (standing(workers=()), "no input", Severity.CRITICAL, "enriched"),
        (
            standing(shard(), workers=(worker(ended="No room."),)),
            "failed",
            Severity.CRITICAL,
            "failed 1 s ago: No room.",
        ),
        (standing(shard(), workers=(worker(silent_s=60),)), "silent", Severity.CRITICAL, "process 7"),
        (standing(shard(), shard(1, owner="", behind=3, behind_s=1.0)), "without owner", Severity.WARNING, "bucket 1"),
        (
            standing(shard(**WAITS)),
            "lag",
            Severity.WARNING,
            "Its backlog is 1,200 events (about 5.0 MB); its lag is 10 min (bucket 0); it reads nothing",
        ),
        (standing(shard(behind=1, behind_s=200, expires_s=100.0)), "retention", Severity.CRITICAL, "in 100 s"),
        (
            standing(shard(behind=1, behind_s=80.0), workers=(worker(rate_in=5.0, saved_s=90.0),)),
            "checkpoint",
            Severity.WARNING,
            "no checkpoint for 80 s",
        ),
        (standing(shard(held_by="filterer/1", low_ms=NOW_MS - 3_600_000)), "held back", Severity.NOTE, "filterer/1"),
        (
            standing(
                shard(held_by="readings/0, which has had 3 of the 8 events", low_ms=None),
                workers=(worker(started_ms=NOW_MS - 61_000),),
            ),
            "no watermark",
            Severity.NOTE,
            "held back by readings/0, which has had 3 of the 8 events",
        ),
        (
            standing(shard(backup_age_s=400.0), workers=(worker(backup_every_s=60.0),)),
            "backup",
            Severity.WARNING,
            "6 min old",
        ),
        (
            standing(shard(), workers=(worker(letters_rate=0.5),), dead_letters=9),
            "dead letters",
            Severity.WARNING,
            "30 events per minute; Kafka stores 9 dead letters",
        ),
        (
            standing(shard(), workers=(worker(letters_rate=0.5, rate_in=2.0),), dead_letters=9),
            "dead letters",
            Severity.WARNING,
            "30 events per minute, 25.0% of its input; Kafka stores 9 dead letters",
        ),
        (
            standing(shard(), dead_letters=50_000),
            "dead letters",
            Severity.NOTE,
            "stores 50,000 dead letters",
        ),
        (standing(shard(), workers=(worker(restarts=3),)), "restarts", Severity.WARNING, "3 times"),
        (
            standing(shard(), workers=(worker(deployment="s@1"), worker("two", deployment="s@2"))),
            "versions",
            Severity.NOTE,
            "s@1, s@2",
        ),
    ],
)
def test_what_is_wrong_is_said_in_words(seen: ProcessorStatus, kind: str, severity: Severity, words: str) -> None:
    """One thing each, with its figures."""
    assert [(one.kind, one.severity) for one in findings_of([seen])] == [(kind, severity)]
    assert words in findings_of([seen])[0].message


def test_nothing_is_said_of_what_is_well() -> None:
    """Nor of a worker that was stopped or has just begun, an old checkpoint where all is saved, or a short life on the bus that has just begun."""
    well = standing(shard(behind=10, behind_s=2.0, expires_s=58.0), shard(1, idle=True, low_ms=0, held_by="x"))
    stopped = standing(shard(), workers=(worker(saved_s=9_000.0), worker("two", ended="stopped", silent_s=3_000.0)))

    saved = standing(shard(), shard(1, behind=4, behind_s=0.5), workers=(worker(rate_in=9.0, saved_s=55.0),))
    begun = standing(shard(held_by="x has had none", low_ms=None), workers=(worker(started_ms=NOW_MS - 1_000),))

    assert findings_of([well, stopped, saved, begun]) == ()


def test_the_worst_comes_first() -> None:
    """Whatever the processors' names."""
    fair, bad = standing(shard(**WAITS)), standing(shard(**WAITS, owner=""), workers=())
    bad = replace(bad, node=replace_node(name="z"))

    assert [(one.severity, one.processor) for one in findings_of([fair, bad])] == [
        (Severity.CRITICAL, "z"),
        (Severity.WARNING, "scorer"),
    ]


def test_restarts_count_only_ends_that_nobody_asked_for(tmp_path: Path) -> None:
    """A crash is known at the next start; so is a process that was killed without a word."""
    notes = tmp_path / "0.starts"
    counts = []
    for crashes in (False, True, False, True, False):
        with suppress(RuntimeError), count_restart(notes) as restarts_ms:
            counts.append(len(restarts_ms))
            if crashes:
                raise RuntimeError
    notes.write_bytes(b"torn")
    with count_restart(notes) as restarts_ms:
        counts.append(len(restarts_ms))

    assert counts == [0, 0, 1, 1, 2, 0]


def test_prometheus_is_given_every_figure_that_is_known() -> None:
    """By processor, bucket and worker; what nobody knows is left out, not zero."""
    world = World()
    world.send(1, 5)
    world.report(report(NOW_MS - 10_000, 0), report(NOW_MS, 500))
    registry = CollectorRegistry()
    with world.observer() as observer:
        registry.register(Scraped(observer))
        scraped = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(generate_latest(registry).decode())
            for sample in family.samples
        }

    assert scraped["penstock_behind_events", "scorer"] == 5
    assert scraped["penstock_in_per_second", "scorer"] == 50
    assert scraped["penstock_bucket_behind_events", "1", "scorer"] == 5
    assert scraped["penstock_worker_in_per_second", "one", "scorer"] == 50
    assert not [name for name, *_ in scraped if name == "penstock_backup_age_seconds"]


def test_figures_have_values_for_a_processor_that_does_well() -> None:
    """None of them fails on what it is about."""
    figures = {name: measure.of(standing(shard(), shard(1))) for name, measure in OF_PROCESSOR.items()}

    assert {name for name, figure in figures.items() if figure is None} == {
        "retention_left",
        "backup_age_seconds",
        "checkpoint_age_seconds",
    }
    assert figures["workers"] == 1


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        (
            Drawing.TEXT,
            ["enriched", "└─ [scorer]  1 worker, 0 in/s, 0 out/s, backlog 1,200 events, lag 10 min", "   scored"],
        ),
        (Drawing.MERMAID, ["    c_enriched([enriched]) --> p0", "    p0 --> c_scored([scored])"]),
        (Drawing.DOT, ['    "enriched" -> p0;', '    p0 -> "scored";']),
    ],
)
def test_a_graph_is_drawn_with_what_is_left(form: Drawing, lines: list[str]) -> None:
    """In each of its forms."""
    drawing = drawn([standing(shard(**WAITS))], form).splitlines()

    assert [line for line in lines if line not in drawing] == []


def test_the_documentation_lists_each_figure() -> None:
    """In its words; and the dashboard for Grafana asks for none that there is not."""
    operations = (DOCS / "operations.md").read_text(encoding="utf-8")
    asked = set(re.findall(r"penstock_(\w+)", (DOCS / "grafana" / "penstock.json").read_text(encoding="utf-8")))
    figures: dict[str, Measure[Any]] = {**OF_PROCESSOR, **OF_SHARD, **OF_WORKER}

    assert [name for name, figure in figures.items() if f"| `{name}` | {figure.description} |" not in operations] == []
    assert asked <= figures.keys()
