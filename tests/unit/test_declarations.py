"""Mistakes in declarations are found before the first event, with an error that states the correction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.processors import AppFileError, DeclarationError
from penstock.processors.apps import App, AppName
from penstock.processors.declare import plan_of


class Event(ps.Record, frozen=True):
    """An event."""

    key: str
    number: int
    at: ps.EventTime
    maybe: str | None = None
    seconds: float = 0.0


class Other(ps.Record, frozen=True):
    """Another event."""

    key: str
    at: ps.EventTime


def category(name: Any = "events", record: Any = Event, key: Any = "key", event_time: Any = "at", **more: Any) -> Any:
    return ps.Category(name, record, key=key, event_time=event_time, **more)


class Plain:
    """A class that is no record."""


events, others = category(), category("others", Other)


def stateless(**attributes: Any) -> Any:
    def process(self: Any, event: Event) -> Iterable[Event]:
        return [event]

    return type("Subject", (ps.Stateless,), {"process": process, **attributes})


def stateful(**attributes: Any) -> Any:
    def process(self: Any, event: Event, state: Any, context: ps.Context) -> tuple[Any, list[Event]]:
        return state, [event]

    return type("Subject", (ps.Stateful,), {"process": process, "reads": events, **attributes})


def aggregator(**attributes: Any) -> Any:
    return type("Subject", (ps.Aggregator,), {"reads": events, "monoid": ps.monoids.Count(), **attributes})


def lookup(**attributes: Any) -> Any:
    methods = {"key_of": lambda self, event: event.key, "join": lambda self, event, row: [event]}
    return type(
        "Subject", (ps.LookupJoin,), {"reads": events, "source": ps.lookups.MemoryTable({}), **methods, **attributes}
    )


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: category("with space"), "only letters, digits"),
        (lambda: category(buckets=0), "at least 1"),
        (lambda: category(codec="xml"), "Use 'json' or 'avro'"),
        (
            lambda: category(event_time="when"),
            "`event_time='when'` is not a field of Event, which has only the fields key, number",
        ),
        (lambda: category(event_time="maybe"), "the event time 'maybe' of Event has the wrong type"),
        (lambda: category(event_time="seconds"), "whole milliseconds since 1970"),
        (lambda: category(key="nokey"), "`key='nokey'` is not a field of Event"),
        (lambda: category(key="maybe"), "must be a str or an int, without None"),
        (lambda: category(record=dict), "Derive it from penstock.Record"),
        (lambda: ps.windows.Tumbling(timedelta(0)), "a whole number of milliseconds, at least 1"),
        (lambda: ps.windows.Tumbling(timedelta(microseconds=1500)), "a whole number of milliseconds"),
        (lambda: ps.CheckpointInterval(events=0), "greater than zero"),
        (lambda: plan_of(stateless()).check(), "has no input"),
        (
            lambda: plan_of(stateless(reads=events, name="orders/eu")).check(),
            "its name 'orders/eu' cannot be part of the names",
        ),
        (lambda: plan_of(stateless(reads=events, name="..")).check(), "cannot be part of the names"),
        (lambda: plan_of(stateless(reads=events, name="")).check(), "cannot be part of the names"),
        (lambda: plan_of(stateless(reads=events, name="n" * 232)).check(), "at most 231"),
        (
            lambda: plan_of(stateful(state=int, window=ps.windows.Tumbling(timedelta(hours=1)))).check(),
            "its kind has no windows",
        ),
        (
            lambda: plan_of(stateful(state=int, concurrency=4)).check(),
            "`concurrency`, but its kind processes one event after the other",
        ),
        (lambda: plan_of(stateless(reads=events, state=int)).check(), "`state`, but its kind keeps no state"),
        (
            lambda: plan_of(stateless(reads=events, ordered=True)).check(),
            "`ordered`, but its kind processes events as they arrive",
        ),
        (
            lambda: plan_of(stateless(reads=events, monoid=ps.monoids.Sum())).check(),
            "`monoid`, but its kind combines no observations",
        ),
        (
            lambda: plan_of(stateful(state=int, emit=ps.AtWatermark())).check(),
            "`emit`, but its kind writes outputs when",
        ),
        (
            lambda: plan_of(stateful(state=int, two_phase=ps.TwoPhase(key="number"))).check(),
            "`two_phase`, but its kind combines",
        ),
        (lambda: plan_of(stateful(state=int, store=ps.RemoteStore())).check(), "`store`, but its kind has no choice"),
        (
            lambda: plan_of(stateless(reads=events, late=ps.OnLate.DROP)).check(),
            "`late`, but for its kind no event is late",
        ),
        (lambda: plan_of(aggregator(tombstones=True)).check(), "`tombstones`, but its kind receives no tombstones"),
        (lambda: plan_of(stateless(reads=events, concurrency=10)).check(), "its `process` is no `async def`"),
        (
            lambda: plan_of(type("Bare", (ps.Processor,), {"reads": events})).check(),
            "derived from penstock.Processor, which is the base of all kinds",
        ),
        (lambda: plan_of(stateless(reads="events")).check(), "'events' is not a category"),
        (lambda: plan_of(stateless(reads=Event)).check(), "Event is not a category"),
        (
            lambda: plan_of(stateless(reads=events, writes=ps.sinks.PostgresSink)).check(),
            "Did you mean an object, `PostgresSink(…)`",
        ),
        (lambda: category(key=Event.key), 'Did you mean `key="key"`'),
        (lambda: category(key=lambda event, bucket: event.key), "key=lambda … has the wrong type"),
        (lambda: category(event_time=ps.EventTime), "has the wrong type. Declare the name of a field"),
        (lambda: category(codec=ps.codecs.Csv), "Did you mean an object, `Csv(…)`"),
        (lambda: category(codec="JSON"), "Did you mean `json`"),
        (lambda: category("__consumer_offsets"), "a topic of Kafka itself"),
        (lambda: category(Event, "events"), "Category Event: name=Event has the wrong type"),
        (lambda: plan_of(aggregator(monoid=sum)).check(), "`monoid = <built-in function sum>`, which is no monoid"),
        (
            lambda: plan_of(aggregator(emit=ps.AtWatermark)).check(),
            "Declare an AtCheckpoint or an AtWatermark. Did you mean an object",
        ),
        (lambda: plan_of(aggregator(window=ps.windows.Tumbling)).check(), "`window = Tumbling` has the wrong type"),
        (lambda: plan_of(lookup(source=ps.lookups.MemoryTable)).check(), "`source = MemoryTable` is no source of rows"),
        (
            lambda: plan_of(lookup(cache=60)).check(),
            "`cache = 60` has the wrong type. Nothing was read. Declare a Cached or None",
        ),
        (lambda: ps.Alert("slow", "lag_seconds", above="60"), "`above='60'` has the wrong type"),  # type: ignore[arg-type]  # the fault under test
        (
            lambda: plan_of(stateless(reads=(events, category("more", buckets=3)))).check(),
            "events has 8 buckets, more has 3 buckets",
        ),
        (lambda: plan_of(stateless(reads=events, writes=(category("a"), category("a")))).check(), "an output twice"),
        (
            lambda: plan_of(stateful(state=int, late=category("a"), ordered=True, writes=events)).check(),
            "the same record type",
        ),
        (lambda: plan_of(stateful()).check(), "Declare `state"),
        (lambda: plan_of(stateful(state=0.0)).check(), "`state = 0.0` is no type"),
        (lambda: plan_of(stateful(state="float")).check(), "`state = 'float'` is no type"),
        (lambda: plan_of(stateful(state=None)).check(), "`state = None` is no type"),
        (lambda: plan_of(stateful(state=lambda: 0)).check(), "`state = lambda …` is no type"),
        (lambda: plan_of(stateful(state=object())).check(), "is no type"),
        (lambda: plan_of(stateful(state=Plain)).check(), "Plain is neither a record nor a plain type"),
        (
            lambda: plan_of(stateful(state=tuple[int, dict[str, Plain]])).check(),
            "Plain is neither a record nor a plain type",
        ),
        (lambda: category(partitioner="murmur2"), "Did you mean `penstock.Partitioner.MURMUR2`"),
        (lambda: category(key_codec="int64"), "Did you mean `penstock.KeyCodec.INT64`"),
        (lambda: category(codec=ps.codecs.Debezium(values="avro")), "Declare penstock.codecs.Json"),  # type: ignore[arg-type]  # the fault under test
        (lambda: plan_of(stateless(reads=events, writes=[others])).check(), "as a tuple, with parentheses"),
        (lambda: plan_of(stateful(state=int, checkpoint=5)).check(), "such as penstock.CheckpointInterval"),
        (lambda: plan_of(type("A", (ps.Aggregator,), {"reads": events})).check(), "Declare such as `monoid"),
        (
            lambda: plan_of(type("A", (ps.Aggregator,), {"reads": events, "monoid": ps.monoids.Sum})).check(),
            "declares the class Sum, not a monoid",
        ),
        (
            lambda: plan_of(
                type("A", (ps.Aggregator,), {"reads": events, "writes": others, "monoid": ps.monoids.Count()})
            ).check(),
            "has no result. Define `result",
        ),
    ],
)
def test_an_invalid_declaration_is_refused(declare: Any, message: str) -> None:
    """The error states the mistake and the correction."""
    with pytest.raises(DeclarationError, match=re.escape(message)) as caught:
        declare()
    assert not [internal for internal in ("<class", " object at 0x", "<function") if internal in str(caught.value)]


def test_keys_may_be_fields_or_functions() -> None:
    """A text is used as it is, and a whole number as digits. Anything else needs a function."""
    given = [Event("a", 7, 1), Event("ü", -8, 2)]

    assert category().keys_of(given) == ["a", "ü"]
    assert category(key="number").keys_of(given) == ["7", "-8"]
    assert category(key=lambda event: event.key * 2).keys_of(given) == ["aa", "üü"]


def test_a_key_function_that_fails_names_the_category_and_the_event() -> None:
    """The program has to change, so no event becomes a dead letter."""
    with pytest.raises(DeclarationError, match=r"Category events: its key function raised KeyError.*Event\("):
        category(key=lambda event: {}[event.key]).keys_of([Event("a", 1, 1)])
    with pytest.raises(DeclarationError, match="returned 1 for"):
        category(key=lambda event: event.number).keys_of([Event("a", 1, 1)])


def test_names_on_the_bus_follow_from_the_class() -> None:
    """They are in snake_case, unless the class declares another name."""

    class HTTPErrorCounter2(ps.Stateless):
        reads = events

        def process(self, event: Event) -> Iterable[Event]:
            return ()

    class Named(HTTPErrorCounter2):
        name = "errors"

    assert HTTPErrorCounter2.name == "http_error_counter2"
    assert Named.name == "errors"


def processor(name: str, reads: Any, writes: Any) -> Any:
    return type(name, (stateless(),), {"reads": reads, "writes": writes, "name": name.lower()})


def test_an_app_is_ordered_along_the_stream() -> None:
    """Upstream processors come first, in any order of the classes in the file."""
    a, b, c = (category(name) for name in "abc")
    second, first = processor("Second", b, c), processor("First", a, b)
    app = App.of("app", [second, first])

    assert [p.__name__ for p in app.processors] == ["First", "Second"]
    assert [c.name for c in app.categories()] == ["a", "b", "c"]


def test_a_cycle_of_processors_is_refused() -> None:
    """The error lists the processors of the cycle."""
    a, b = category("a"), category("b")
    with pytest.raises(DeclarationError, match="form a cycle"):
        App.of("app", [processor("One", a, b), processor("Two", b, a)])


def test_two_declarations_of_one_category_must_agree() -> None:
    """The same name with another record type is refused; a second, equal declaration is not."""
    with pytest.raises(DeclarationError, match="declared twice"):
        App.of("app", [processor("One", category("a"), ()), processor("Two", category("a", Other), ())])

    assert (
        len(App.of("app", [processor("One", category("a"), ()), processor("Two", category("a"), ())]).processors) == 2
    )


def test_two_processors_of_one_name_are_refused() -> None:
    """They would share their positions on the bus."""
    a = category("a")
    with pytest.raises(DeclarationError, match="the same name 'one'"):
        App.of("app", [processor("One", a, ()), type("Again", (processor("One", a, ()),), {"name": "one"})])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("import nothing_of_that_name", "line 1: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = 1\ndef broken(:\n", "line 2: SyntaxError"),
        ("x = 1\n\nraise SystemExit(3)", "line 3: SystemExit: 3"),
        ("x = 1\n", "declares no processor"),
    ],
)
def test_an_app_file_that_cannot_be_used_is_explained(content: str | None, message: str, tmp_path: Path) -> None:
    """The error names the file, the line and the mistake."""
    path = tmp_path / "app.py"
    if content is not None:
        path.write_text(content)

    with pytest.raises(AppFileError, match=message) as caught:
        AppName.parse(str(path)).load()
    assert str(path) in str(caught.value)


INCOMPLETE = """
import penstock as ps
class E(ps.Record, frozen=True):
    key: str
    at: ps.EventTime
a, b = (ps.Category(name, E, key='key', event_time='at') for name in 'ab')
class Keep(ps.Stateless):
    reads = a
    def process(self, event): return ()
class Base(ps.Stateless):
    reads, writes = a, b
"""


def test_a_processor_without_its_method_is_not_skipped(tmp_path: Path) -> None:
    """Complete processors beside it do not hide it. A base class of others may lack the method."""
    path = tmp_path / "app.py"
    path.write_text(INCOMPLETE)
    with pytest.raises(
        DeclarationError, match=r"Processor Base does not define `process`\. Nothing was read\. Define it"
    ):
        AppName.parse(str(path)).load()
    path.write_text(f"{INCOMPLETE}class Both(Base):\n    def process(self, event): return ()\n")

    assert {found.__name__ for found in AppName.parse(str(path)).load().processors} == {"Keep", "Both"}


def test_an_unknown_processor_is_an_error_that_lists_the_apps_processors(tmp_path: Path) -> None:
    """The user can recognise a typo."""
    path = tmp_path / "app.py"
    path.write_text(
        "import penstock as ps\n"
        "class E(ps.Record, frozen=True):\n    key: str\n    at: ps.EventTime\n"
        "c = ps.Category('c', E, key='key', event_time='at')\n"
        "class Keep(ps.Stateless):\n    reads = c\n    def process(self, event): return ()\n"
    )
    with pytest.raises(AppFileError, match=r"App app has no processor 'Kepe'. It has: Keep\. Did you mean `Keep`"):
        AppName.parse(f"{path}:Kepe").load()

    assert [p.__name__ for p in AppName.parse(f"{path}:Keep").load().processors] == ["Keep"]
