"""`penstock category send`: lines are written while they arrive, with bounded memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from io import BufferedIOBase, BytesIO
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.categories.commands.category_send import LineSender, LinesRefused, line_batches
from penstock.transport import CategorySpec
from penstock.transport.memory import MemoryBus


class Sale(ps.Record, frozen=True):
    """A sale of a shop."""

    shop: str
    at: ps.EventTime


sales = ps.Category("sales", Sale, key="shop", event_time="at", buckets=1)


class Chunks(BufferedIOBase):
    """A stream that returns its chunks one by one."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = list(chunks)

    def read1(self, size: int = -1, /) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""


def line(shop: str) -> bytes:
    return b'{"shop": "%s", "at": 1}\n' % shop.encode()


@pytest.fixture
def bus() -> MemoryBus:
    """A bus with the category."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec.of(sales))
    return bus


def sender(bus: MemoryBus, *, tombstones: bool = False) -> LineSender:
    return LineSender(sales, bus, tombstones=tombstones)


def count(bus: MemoryBus) -> int:
    return bus.catalog.describe("sales").ends[0]


def test_lines_are_written_before_the_stream_ends(bus: MemoryBus, wait_until: Callable[..., None]) -> None:
    """A program that keeps its end of the pipe open sees its records at once."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as program:
        thread = Thread(target=sender(bus).send, args=(source,))
        thread.start()
        for number in (1, 2):
            program.write(line("a"))
            wait_until(lambda number=number: count(bus) == number)
        program.close()
        thread.join(timeout=120)

    assert not thread.is_alive()


@given(text=st.text("ab\n\r", max_size=60), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_batches_have_all_lines_with_their_numbers(text: str, cuts: list[int]) -> None:
    """The stream may be cut at any place, as long as no chunk is empty."""
    content, places = text.encode(), sorted({*cuts, 0, len(text)})
    chunks = [content[begin:end] for begin, end in itertools.pairwise(places) if content[begin:end]]
    batches = list(line_batches(Chunks(chunks)))

    lines = [each for batch in batches for each in batch.lines]
    whole = content.split(b"\n")
    expected = [each.removesuffix(b"\r") for each in whole[:-1]] + [whole[-1]] * bool(whole[-1])
    assert lines == expected
    assert [batch.first for batch in batches] == [
        1 + sum(len(batch.lines) for batch in batches[:at]) for at in range(len(batches))
    ]


def test_an_error_names_its_line_and_where_to_continue(bus: MemoryBus) -> None:
    """All lines before its batch are written, and no later lines."""
    chunks = [line("a") + line("b"), line("c") + b'{"shop": 7}\n' + line("d"), line("e")]
    with pytest.raises(LinesRefused, match=r"Line 4 is not a Sale: .* Written: 2 records, before line 3.*tail -n \+3"):
        sender(bus).send(Chunks(chunks))

    assert count(bus) == 2


def test_an_error_in_the_first_lines_writes_nothing(bus: MemoryBus) -> None:
    """The error says that nothing was written."""
    with pytest.raises(LinesRefused, match=r"Line 2 is not a Sale: .* Nothing was written\."):
        sender(bus).send(BytesIO(line("a") + b"{}\n"))

    assert count(bus) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"shop": "a", "at": 99999999999999999999}', "Line 2 is not a Sale: `at` is 99999999999999999999, which is"),
        (b'{"shop": "", "at": 1}', "Line 2: Category firsts: its key function raised IndexError"),
    ],
)
def test_a_line_without_a_message_is_named(bus: MemoryBus, content: bytes, message: str) -> None:
    """JSON that decodes may have a number that no message carries, or no key."""
    firsts = replace(sales, name="firsts", key=lambda sale: sale.shop[0])
    bus.catalog.create(CategorySpec.of(firsts))
    with pytest.raises(LinesRefused, match=rf"{message}.*Nothing was written\."):
        LineSender(firsts, bus, tombstones=False).send(BytesIO(line("a") + content + b"\n"))

    assert bus.catalog.describe("firsts").ends[0] == 0


def test_a_check_writes_nothing(bus: MemoryBus) -> None:
    """It finds an error in any batch."""
    with pytest.raises(LinesRefused, match=r"Line 2 is not a Sale.* Nothing was written"):
        sender(bus).check(Chunks([line("a"), b"{}\n"]))

    assert count(bus) == 0


def test_a_line_that_no_message_can_contain_is_refused(bus: MemoryBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command does not read all of it into memory."""
    monkeypatch.setattr("penstock.ops.categories.commands.category_send.LINE_LIMIT_BYTES", 4 << 20)
    source = Chunks([b"x" * (1 << 20)] * 100)
    with pytest.raises(LinesRefused, match=r"Line 1 has more than 4 MiB.* Nothing was written"):
        sender(bus).send(source)

    assert len(source.chunks) == 95


def test_tombstones_are_keys(bus: MemoryBus) -> None:
    """Each line contains one key, and an empty line is refused."""
    sent = sender(bus, tombstones=True)
    sent.send(BytesIO(b"a\r\nb"))

    assert (sent.written, count(bus)) == (2, 2)
    with pytest.raises(LinesRefused, match="Line 2 is empty"):
        sender(bus, tombstones=True).send(BytesIO(b"a\n\n"))


@pytest.mark.parametrize(("at", "warns"), [(1_700_000_000, True), (1_700_000_000_000, False)])
def test_times_in_seconds_are_warned_of(
    bus: MemoryBus, capsys: pytest.CaptureFixture[str], *, at: int, warns: bool
) -> None:
    """A worker would stop at them, far from the mistake."""
    sender(bus).send(Chunks([b'{"shop": "a", "at": %d}\n' % at]))

    assert ("Warning:" in capsys.readouterr().err) is warns
    assert count(bus) == 1


@given(st.lists(st.sampled_from([b"\n", b"  \n", b"\r\n", line("a"), line("b")]), max_size=12))
def test_blank_lines_contain_no_record(lines: list[bytes]) -> None:
    """`JsonLines()` skips them, too. The number of a wrong line counts them."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec.of(sales))
    sender = LineSender(sales, bus, tombstones=False)
    sender.send(Chunks([b"".join(lines)] if lines else []))

    assert sender.written == sum(b"shop" in each for each in lines)
    with pytest.raises(LinesRefused, match=f"Line {len(lines) + 1} is not"):
        sender.check(Chunks([*lines, b"x\n"]) if not lines else Chunks([b"".join([*lines, b"x\n"])]))
