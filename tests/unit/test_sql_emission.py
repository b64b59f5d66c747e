"""When queries write the results of windows: EMIT EVERY and EMIT AFTER WATERMARK."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.processors.sql import SqlApp, SqlText, compile_app
from penstock.processors.sql.errors import SqlRefused
from penstock.testing import Driver

TABLE = (
    "CREATE CATEGORY events (seen bigint, name text, number bigint) WITH (key = 'name', time = 'seen', buckets = 1);"
)
MINUTE_MS = 60_000


def compiled(emit: str, group: str = "name, tumble(seen, interval '1 minute')") -> SqlApp:
    query = f"SELECT name, count(*) AS n FROM events GROUP BY {group} {emit}"
    return compile_app(
        SqlText(
            "app.sql", f"{TABLE}\nCREATE TABLE counts WITH (buckets = 1, out_of_orderness = '0 seconds') AS {query};"
        ),
        __name__,
    )


class Counts:
    """Sends events and returns the results that they cause."""

    def __init__(self, emit: str) -> None:
        self.app = compiled(emit)
        self._driver = Driver(self.app.processors, start_ms=10 * MINUTE_MS)
        self._read = 0

    def after(self, *seen: int) -> list[tuple[int, int]]:
        """Return the starts and counts of the windows that are written after events at these times."""
        events = self.app.relations["events"].category
        self._driver.send(events, [events.record(seen=each, name="ann", number=1) for each in seen])
        return self._new()

    def after_s(self, seconds: float) -> list[tuple[int, int]]:
        """Return the results that are written while time passes without events."""
        self._driver.advance(seconds)
        return self._new()

    def _new(self) -> list[tuple[int, int]]:
        written = self._driver.read(self.app.relations["counts"].category)
        new, self._read = written[self._read :], len(written)
        return [(each.window_start, each.n) for each in new]


def test_every_writes_changed_windows_at_an_interval_and_complete_ones() -> None:
    """Between two results, changes wait; a window without a change is not written again."""
    counts = Counts("EMIT EVERY interval '10 seconds'")

    assert counts.after(0, 1, 2) == []
    assert counts.after_s(11) == [(0, 3)]
    assert counts.after_s(11) == []
    assert counts.after(3) == []
    assert counts.after(MINUTE_MS + 5) == [(0, 4)]


@pytest.mark.parametrize(
    ("emit", "delay_ms"),
    [
        ("EMIT ON WINDOW CLOSE", 0),
        ("EMIT AFTER WATERMARK", 0),
        ("EMIT AFTER WATERMARK WITH DELAY interval '20 seconds'", 20_000),
    ],
)
def test_a_delay_accepts_late_events(emit: str, delay_ms: int) -> None:
    """The window is written once, when the watermark has passed its end by the delay; later events are dropped."""
    counts = Counts(emit)

    assert counts.after(0, 1) == []
    assert counts.after(MINUTE_MS + delay_ms - 2) == []  # without a delay, in the window itself
    assert counts.after(2) == []
    assert counts.after(MINUTE_MS + delay_ms + 1) == [(0, 3 if delay_ms else 4)]
    assert counts.after(3) == []


def test_early_results_leave_the_group_by_the_key_without_a_copy() -> None:
    """Only a delay needs a processor whose watermarks are later."""
    assert len(compiled("EMIT EVERY interval '1 minute'").processors) == 1
    assert len(compiled("EMIT AFTER WATERMARK").processors) == 1
    before, aggregator = compiled("EMIT AFTER WATERMARK WITH DELAY interval '1 minute'").processors
    assert before.max_output_delay.total_seconds() == 60
    assert issubclass(aggregator, ps.Aggregator)
    assert aggregator.max_output_delay.total_seconds() == 0


@pytest.mark.parametrize(
    ("emit", "group", "message"),
    [
        ("EMIT EVERY", "name, tumble(seen, interval '1 minute')", "An interval is expected"),
        ("EMIT EVERY 5", "name, tumble(seen, interval '1 minute')", "An interval is expected"),
        ("EMIT EVERY interval '0 seconds'", "name, tumble(seen, interval '1 minute')", "is not supported"),
        ("EMIT SOMETIMES", "name, tumble(seen, interval '1 minute')", "Write EMIT CHANGES, or EMIT ON WINDOW CLOSE"),
        ("EMIT AFTER WATERMARK DELAY", "name, tumble(seen, interval '1 minute')", "EMIT AFTER WATERMARK DELAY is not"),
        ("EMIT EVERY interval '1 second'", "name", "EMIT EVERY, and a query inside another one, needs a window"),
        ("EMIT EVERY interval '1 second'", "name, session(seen, interval '1 minute')", "known only at its end"),
    ],
)
def test_unsupported_clauses_are_refused_with_their_place(emit: str, group: str, message: str) -> None:
    """The place is line and column, and the error says what to write instead."""
    with pytest.raises(SqlRefused, match=r"app.sql, line 2, column \d+: ") as refused:
        compiled(emit, group)

    assert message in str(refused.value)
