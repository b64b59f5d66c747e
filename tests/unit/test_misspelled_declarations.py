"""Misspelled and mistyped attributes are found before the first event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock.processors import DeclarationError, PenstockError
from penstock.processors.declare import plan_of
from penstock.testing import Driver


class Event(ps.Record, frozen=True):
    """An event."""

    key: str
    at: ps.EventTime


class Result(Event, frozen=True):
    """The result of an event."""


events = ps.Category("events", Event, key="key", event_time="at")
results = ps.Category("results", Result, key="key", event_time="at")


class Plain(ps.Stateful):
    """A valid declaration with its own helpers."""

    reads, writes, state = events, results, int
    threshold = 3
    limit_s, pages, mode = 1.5, ("a",), "strict"

    def read(self) -> None:
        """Read something."""

    def closed(self) -> bool:
        """Return something."""
        return True

    def process(self, event: Event, state: int | None, context: ps.Context) -> tuple[int, list[Result]]:
        return 1, []


class Counting(ps.Aggregator):
    """Counts."""

    reads, monoid = events, ps.monoids.Count()


def test_a_valid_declaration_may_have_its_own_helpers() -> None:
    """Their names do not resemble any of the library's."""
    plan_of(Plain).check()
    plan_of(Counting).check()


@pytest.mark.parametrize(
    ("base", "name", "value", "words"),
    [
        (Plain, "on_error", "stop", r"on_error = 'stop'.*Did you mean .penstock.ErrorPolicy.STOP"),
        (Plain, "on_error", "dead letter", "penstock.ErrorPolicy.DEAD_LETTER"),
        (Plain, "on_undecodable", "stop", "penstock.ErrorPolicy.STOP"),
        (Plain, "on_undecodable", True, "ErrorPolicy"),
        (Plain, "state_semantics", "exactly_once", "penstock.Semantics.EXACTLY_ONCE"),
        (Plain, "output_semantics", 1, "Semantics"),
        (Plain, "deterministic", "no", "True or False"),
        (Plain, "ordered", 1, "True or False"),
        (Plain, "key_check", None, "True or False"),
        (Plain, "checkpoint", timedelta(seconds=1), "CheckpointInterval"),
        (Plain, "max_future", 60, r"timedelta\(seconds=60\)"),
        (Plain, "idle_after", 60, r"timedelta\(seconds=60\)"),
        (Plain, "watermark", timedelta(seconds=1), "BoundedOutOfOrderness"),
        (Plain, "watermark", ps.watermarks.UpstreamWatermark, "Did you mean an object"),
        (Plain, "watermark", {Plain.reads: timedelta(seconds=1)}, "the watermark of events is .*BoundedOutOfOrderness"),
        (Plain, "watermark", {Plain.writes: ps.watermarks.Confidence()}, "which is none of its inputs"),
        (
            Plain,
            "watermark",
            {"readings": ps.watermarks.Confidence()},
            "for 'readings', which is none of its inputs.*categories that it reads: events",
        ),
        (Plain, "dead_letter_limit", 0.5, "DeadLetterLimit"),
        (Plain, "late", "drop", "penstock.OnLate.DROP"),
        (Plain, "name", 5, "str"),
        (Counting, "window", timedelta(hours=1), "Declare windows, such as penstock.windows.Tumbling"),
        (Counting, "emit", "watermark", "AtWatermark"),
        (Counting, "store", "postgresql://", "Remote"),
        (Counting, "allowed_lateness", 5, r"timedelta\(seconds=5\)"),
    ],
)
def test_a_value_of_another_type_is_refused(base: type[ps.Processor], name: str, value: Any, words: str) -> None:
    """The error names the attribute, the value and the accepted types."""
    wrong: Any = type("Wrong", (base,), {name: value, "__module__": __name__})

    with pytest.raises(DeclarationError, match=rf"Wrong.*{words}") as caught:
        plan_of(wrong).check()

    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("output_semantic", "output_semantics"),
        ("determinstic", "deterministic"),
        ("on_undecodeable", "on_undecodable"),
        ("check_point", "checkpoint"),
        ("maxfuture", "max_future"),
        ("watermarks", "watermark"),
        ("dead_letters_limit", "dead_letter_limit"),
    ],
)
def test_a_misspelled_attribute_is_refused(name: str, meant: str) -> None:
    """The library would ignore it and use the default."""
    wrong: Any = type("Wrong", (Plain,), {name: 1, "__module__": __name__})

    with pytest.raises(DeclarationError, match=f"Wrong declares `{name}`.*did you mean `{meant}`"):
        plan_of(wrong).check()


def test_a_misspelled_method_is_refused() -> None:
    """The library would never call it."""
    wrong: Any = type("Wrong", (Plain,), {"on_timers": lambda self: None, "__module__": __name__})

    with pytest.raises(DeclarationError, match="did you mean `on_timer`"):
        plan_of(wrong).check()


@pytest.mark.parametrize(
    "made",
    [
        lambda: ps.CheckpointInterval(events="1000"),  # type: ignore[arg-type]  # the mistakes under test, here and below
        lambda: ps.CheckpointInterval(time=5),  # type: ignore[arg-type]
        lambda: ps.watermarks.BoundedOutOfOrderness(5),  # type: ignore[arg-type]
        lambda: ps.watermarks.Confidence("0.9"),  # type: ignore[arg-type]
        lambda: ps.windows.Tumbling(3600),  # type: ignore[arg-type]
        lambda: ps.windows.Session("1h"),  # type: ignore[arg-type]
        lambda: ps.DeadLetterLimit(share="half"),  # type: ignore[arg-type]
        lambda: ps.AtWatermark(early=5),  # type: ignore[arg-type]
        lambda: ps.AtCheckpoint(differences="yes"),  # type: ignore[arg-type]
        lambda: ps.Category("c", Event, key="key", event_time="at", buckets="8"),  # type: ignore[arg-type]
        lambda: ps.Category("c", Event, key="key", event_time="at", buckets=2.0),  # type: ignore[arg-type]
        lambda: ps.Category("c", Event, key="key", event_time="at", retention=7),  # type: ignore[arg-type]
        lambda: ps.Category("c", Event, key="key", event_time="at", retention=timedelta(0)),
        lambda: ps.Category("c", Event, key=5, event_time="at"),  # type: ignore[arg-type]
        lambda: ps.Category(5, Event, key="key", event_time="at"),  # type: ignore[arg-type]
        lambda: ps.Category("c", Event, key="key", event_time=None),  # type: ignore[arg-type]
    ],
)
def test_the_parts_of_a_declaration_are_checked(made: Callable[[], object]) -> None:
    """The error is readable, not an internal TypeError."""
    with pytest.raises(DeclarationError):
        made()


class Copying(ps.Stateless):
    """Copies."""

    reads, writes = events, results

    def process(self, event: Event) -> list[Result]:
        return [Result(event.key, event.at)]


@pytest.mark.parametrize("method", ["open", "__init__"])
@pytest.mark.parametrize(
    ("base", "name"),
    [
        (Plain, "open"),
        (Plain, "limit_outputs"),
        (Plain, "state"),
        (Plain, "name"),
        (Plain, "on_error"),
        (Copying, "for_batch"),
        (Copying, "concurrency"),
        (Counting, "group_keys"),
        (Counting, "monoid"),
        (Counting, "observe"),
    ],
)
def test_an_attribute_of_an_instance_that_penstock_uses_is_refused(
    base: type[ps.Processor], name: str, method: str
) -> None:
    """A cache would replace a method, which cannot be called then, or a declaration, which would change or do nothing."""

    def sets(self: ps.Processor) -> None:
        setattr(self, name, {})

    with pytest.raises(DeclarationError, match=rf"sets `self\.{name}`, which Penstock uses itself.*`self\.own_{name}`"):
        Driver(type("Caching", (base,), {"name": "caching", method: sets}))


def test_an_attribute_that_penstock_uses_is_refused_where_an_event_sets_it() -> None:
    """It would silently change the outputs of the running processor. The worker stops at the event, and the attribute is unchanged."""

    class Caching(Copying):
        name = "caching"

        def process(self, event: Event) -> list[Result]:
            self.writes = {event.key: event}  # type: ignore[misc, assignment]  # the mistake under test
            return super().process(event)

    driver = Driver(Caching)

    with pytest.raises(PenstockError, match=r"events/\d at offset 0.*sets `self\.writes`, which Penstock uses itself"):
        driver.send(events, [Event("a", 1)])
    assert driver.read(results) == []


def test_other_attributes_of_an_instance_are_the_users() -> None:
    """One of them is declared in the user's own class."""

    class Caching(Copying):
        cache: ClassVar[dict[str, int]] = {}

        def open(self) -> None:
            self.cache, self.client = {}, object()  # type: ignore[misc]

    driver = Driver(Caching)
    driver.send(events, [Event("a", 1)])

    assert driver.read(results) == [Result("a", 1)]


@pytest.mark.parametrize(
    ("name", "place"),
    [("Count", "penstock.monoids.Count"), ("Tumbling", "penstock.windows.Tumbling"), ("Statless", "Stateless")],
)
def test_a_missing_name_of_the_package_is_found_where_it_is(name: str, place: str) -> None:
    """A newcomer looks for each name in `penstock` first."""
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. .*`{place}`"):
        getattr(ps, name)
