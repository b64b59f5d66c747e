"""Events and outputs that are larger than a category accepts."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import ClassVar

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.ops.kernel import prepare
from penstock.ops.kernel.checkpoint.output_sizes import OutputTooLarge
from penstock.processors.declare import dead_letters_of, plan_of
from penstock.testing import Driver
from penstock.transport import MESSAGE_LIMIT, CategorySpec
from penstock.transport.memory import MemoryBus

LARGE = "10485760"
HALF = 600_000


class Document(ps.Record, frozen=True):
    """An event with a large text."""

    key: str
    at: ps.EventTime
    text: str


class Seen(ps.Record, frozen=True):
    """A small output."""

    key: str
    at: ps.EventTime


class Listed(ps.Record, frozen=True):
    """An output whose size grows with its lists."""

    key: str
    at: ps.EventTime
    texts: list[str]


DOCUMENTS = ps.Category(
    "documents", Document, key="key", event_time="at", buckets=1, settings={"max.message.bytes": LARGE}
)
SEEN = ps.Category("seen", Seen, key="key", event_time="at", buckets=1)
LISTED = ps.Category("listed", Listed, key="key", event_time="at", buckets=1)


class Remember(ps.Stateless):
    """Fails for some documents."""

    reads, writes = DOCUMENTS, SEEN
    on_error = ps.Retry(after=timedelta(seconds=1), attempts=2)
    failures: ClassVar[set[str]] = set()

    def process(self, event: Document) -> Iterable[Seen]:
        if event.text[:4] == "fail" and event.key not in self.failures:
            self.failures.add(event.key)
            raise TimeoutError("no answer")
        return [Seen(event.key, event.at)]


class Doubling(ps.Stateful):
    """Keeps the number of documents, and writes each one twice in one message."""

    reads, writes, state = DOCUMENTS, (LISTED, SEEN), int
    on_error: ClassVar[ps.ErrorPolicy | ps.Retry] = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Document, state: int | None, context: ps.Context) -> tuple[int, list[Listed | Seen]]:
        number = (state or 0) + 1
        return number, [Seen(event.key, number), Listed(event.key, event.at, [event.text] * 2)]


class Stopping(Doubling):
    """Stops at such a document."""

    on_error = ps.ErrorPolicy.STOP


class DoublingAlone(ps.Stateless):
    """Writes each document twice in one message, without a state."""

    reads, writes = DOCUMENTS, LISTED
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Document) -> list[Listed]:
        return [Listed(event.key, event.at, [event.text] * 2)]


class Longest(ps.Aggregator):
    """Joins the texts of a minute."""

    reads, writes = DOCUMENTS, LISTED
    window = ps.windows.Tumbling(timedelta(minutes=1))
    monoid = ps.monoids.Max[str]()
    watermark = ps.watermarks.BoundedOutOfOrderness()

    def observe(self, event: Document) -> str:
        return event.text

    def result(self, key: str, window: ps.windows.Window, value: str) -> Listed:
        return Listed(key, window.start, [value] * 2)


DOCUMENTS_SENT = [Document("a", 1, "x"), Document("b", 2, "y" * HALF), Document("c", 3, "z" * 20_000)]


def test_an_event_above_the_default_limit_is_retried_if_its_category_accepts_it() -> None:
    """The retry categories and the dead letters have the size limit of the input."""
    Remember.failures.clear()
    driver = Driver(Remember)
    driver.send(DOCUMENTS, [Document("a", 1, "fail" + "x" * 2_000_000), Document("b", 2, "")])
    driver.advance(1.1)

    assert [seen.key for seen in driver.read(SEEN)] == ["b", "a"]
    assert driver.metrics(Remember).retries == 1


def test_an_event_that_does_not_fit_its_retry_category_becomes_a_dead_letter() -> None:
    """Later events are processed, and the worker continues."""
    Remember.failures.clear()
    driver = Driver(Remember)
    driver.bus.cluster.topics["remember.retry_1"].spec = CategorySpec("remember.retry_1", 1)
    driver.send(DOCUMENTS, [Document("a", 1, "fail" + "x" * 2_000_000), Document("b", 2, "")])
    driver.advance(1.1)

    [letter] = driver.dead_letters(Remember)
    assert "not tried again, because it exceeds the 1,000,000 bytes that remember.retry_1 accepts" in letter.reason
    assert (letter.offset, len(letter.value or b"")) == (0, len(b'{"key":"a","at":1,"text":"fail"}') + 2_000_000)
    assert [seen.key for seen in driver.read(SEEN)] == ["b"]


@pytest.mark.parametrize("processor", [Doubling, DoublingAlone])
def test_an_event_with_an_oversized_output_becomes_a_dead_letter(processor: type[Doubling | DoublingAlone]) -> None:
    """The reason has the sizes, no output of the event is written, and its state is as before."""
    driver = Driver(processor)
    driver.send(DOCUMENTS, [*DOCUMENTS_SENT, Document("b", 4, "w")])

    [letter] = driver.dead_letters(processor)
    assert letter.offset == 1
    assert (
        f"{len(DOCUMENTS_SENT[1].text) * 2 + 35:,} bytes, and that category accepts {MESSAGE_LIMIT:,}" in letter.reason
    )
    assert [(one.key, one.at) for one in driver.read(LISTED)] == [("a", 1), ("c", 3), ("b", 4)]
    if processor is Doubling:
        assert {(one.key, one.at) for one in driver.read(SEEN)} == {("a", 1), ("c", 1), ("b", 1)}


def test_an_oversized_output_stops_a_worker_at_the_event_of_that_output() -> None:
    """The error names the event, the processor, the category, the size and the limit."""
    driver = Driver(Stopping)
    with pytest.raises(PenstockError) as stop:
        driver.send(DOCUMENTS, DOCUMENTS_SENT)

    assert str(stop.value).startswith(
        "documents/0 at offset 1: Stopping cannot write an output. A message for listed with key 'b' has 1,200,035 bytes, and that category accepts "
        "1,000,000."
    )
    assert "max.message.bytes" in str(stop.value)


def test_an_oversized_result_of_a_window_is_named() -> None:
    """No event causes it, so the error names the processor, the category and the key."""
    driver = Driver(Longest)
    with pytest.raises(
        OutputTooLarge, match=r"Longest cannot write an output\. A message for listed with key 'b' has 1,200"
    ):
        driver.send(DOCUMENTS, [DOCUMENTS_SENT[1]])


def test_derived_categories_are_made_for_the_messages_of_the_inputs(caplog: pytest.LogCaptureFixture) -> None:
    """Another program may have created the input with a larger limit. Smaller existing categories are named, with the command to run."""
    small = ps.Category("documents", Document, key="key", event_time="at", buckets=1)
    fetch = type("Fetch", (Remember,), {"reads": small, "name": "fetch"})
    bus = MemoryBus()
    for spec in (CategorySpec.of(DOCUMENTS), CategorySpec.of(SEEN), CategorySpec("fetch.retry_1", 1)):
        bus.create(spec)
    with caplog.at_level(logging.WARNING):
        prepare(fetch, bus)

    assert bus.message_limit("fetch.dead_letters") > int(LARGE)
    [line] = [record.getMessage() for record in caplog.records if "fetch.retry_1" in record.getMessage()]
    assert "--topic fetch.retry_1 --add-config max.message.bytes=10535760" in line
    declared = [CategorySpec.of(dead_letters_of(Remember)), *map(CategorySpec.of, plan_of(Remember).retry_categories)]
    assert all(int(spec.settings["max.message.bytes"]) > int(LARGE) for spec in declared)
