"""Event time on a real broker: windows across two processors, the bucket that delays them, and watermarks set by hand."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Callable

import pytest
from support.cli import Cli
from support.plain import values

from penstock.processors.declare import bucket_of

MINUTE = 60_000
BEGIN = 1_700_000_000_000 // (60 * MINUTE) * 60 * MINUTE

APP = """
from datetime import timedelta
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int

class Minute(Reading, frozen=True):
    pass

class Hour(Reading, frozen=True):
    pass

readings = ps.Category("{prefix}.readings", Reading, key="meter", event_time="at", buckets=2)
minutes = ps.Category("{prefix}.minutes", Minute, key="meter", event_time="at", buckets=2)
hours = ps.Category("{prefix}.hours", Hour, key="meter", event_time="at", buckets=2)

class Summing:
    monoid = ps.monoids.Sum()
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP
    output_semantics = ps.Semantics.EXACTLY_ONCE
    checkpoint = ps.CheckpointInterval(time=timedelta(milliseconds=200))
    def observe(self, event):
        return event.litres

class Minutes(Summing, ps.Aggregator):
    name = "{prefix}.minutes"
    reads, writes = readings, minutes
    window = ps.windows.Tumbling(timedelta(minutes=1))
    watermark = {watermark}
    def result(self, key, window, value):
        return Minute(key, window.start, value)

class Hours(Summing, ps.Aggregator):
    name = "{prefix}.hours"
    reads, writes = minutes, hours
    window = ps.windows.Tumbling(timedelta(hours=1))
    watermark = ps.watermarks.UpstreamWatermark()
    def result(self, key, window, value):
        return Hour(key, window.start, value)
"""


def write_app(cli: Cli, prefix: str, watermark: str) -> None:
    """Write the app with the given watermark setting, and create its categories."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix).replace("{watermark}", watermark))
    cli.ok("category", "create", "app.py")


def send(cli: Cli, prefix: str, meters: list[str], minutes: range) -> Counter[tuple[str, int]]:
    """Send a reading per meter and minute; return the litres per meter and hour."""
    truth: Counter[tuple[str, int]] = Counter()
    lines = []
    for minute in minutes:
        for meter in meters:
            lines.append(json.dumps({"meter": meter, "at": BEGIN + minute * MINUTE, "litres": minute % 5 + 1}) + "\n")
            truth[meter, BEGIN + minute // 60 * 60 * MINUTE] += minute % 5 + 1
    cli.ok("category", "send", f"{prefix}.readings", "--app", "app.py", stdin="".join(lines))
    return truth


def hours(kafka: str, prefix: str) -> dict[tuple[str, int], int]:
    """Return the litres per meter and hour that were written, each once."""
    found = values(kafka, f"{prefix}.hours")
    assert len({(hour["meter"], hour["at"]) for hour in found}) == len(found)
    return {(hour["meter"], hour["at"]): hour["litres"] for hour in found}


def test_status_names_the_bucket_that_delays_windows_across_two_processors(
    cli: Cli, prefix: str, kafka: str, wait_until: Callable[..., None]
) -> None:
    """A window is written when the watermark of all upstream shards has passed it; until then `status` names the delaying one."""
    write_app(cli, prefix, "ps.watermarks.BoundedOutOfOrderness()")
    meters = {bucket_of(meter.encode(), 2): meter for meter in "abcdef"}
    slow, fast = meters[0], meters[1]
    truth = send(cli, prefix, [slow, fast], range(30)) + send(cli, prefix, [fast], range(30, 150))
    worker = cli.start("run", "app.py", "--json")

    def processor_status() -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(cli.ok("status", "app.py", "--json"))["processors"]
        return found

    wait_until(lambda: processor_status()[1]["low_watermark_ms"] == BEGIN + 29 * MINUTE)
    shown = cli("status", "app.py", "--buckets", COLUMNS="300").stdout
    assert hours(kafka, prefix) == {}
    truth += send(cli, prefix, [slow], range(30, 140))
    wait_until(lambda: processor_status()[1]["low_watermark_ms"] == BEGIN + 139 * MINUTE)
    wait_until(lambda: len(hours(kafka, prefix)) == 4)
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err

    assert re.search(rf"{prefix}.minutes +.*2023-11-14 22:29:00 +bucket 0", shown)
    assert re.search(rf"/0 .*  {prefix}.minutes/0", shown)
    assert hours(kafka, prefix) == {slot: litres for slot, litres in truth.items() if slot[1] < BEGIN + 120 * MINUTE}
    assert [json.loads(line)["late"] for line in out.splitlines()] == [0, 0]


def test_a_run_to_the_end_completes_windows_on_an_upstream_watermark(cli: Cli, prefix: str, kafka: str) -> None:
    """The second processor receives the first one's watermark before it ends."""
    write_app(cli, prefix, "ps.watermarks.BoundedOutOfOrderness()")
    meters = {bucket_of(meter.encode(), 2): meter for meter in "abcdef"}
    truth = send(cli, prefix, list(meters.values()), range(121))
    cli.ok("run", "app.py", "--until-end")

    assert hours(kafka, prefix) == {slot: litres for slot, litres in truth.items() if slot[1] < BEGIN + 120 * MINUTE}


def test_an_external_watermark_completes_windows(
    cli: Cli, prefix: str, kafka: str, wait_until: Callable[..., None]
) -> None:
    """An externally fed input waits for a watermark from its producer; the watermark persists and never goes back."""
    write_app(cli, prefix, "ps.watermarks.UpstreamWatermark()")
    truth = send(cli, prefix, ["a", "b"], range(60))
    worker = cli.start("run", "app.py")
    wait_until(lambda: "no processor publishes a watermark for it" in cli.ok("status", "app.py", "--json"))
    assert hours(kafka, prefix) == {}
    cli.ok("watermark", "set", f"{prefix}.readings", "2023-11-14T23:00", "--as", "gateway")
    wait_until(lambda: hours(kafka, prefix) == truth)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    back = cli("watermark", "set", f"{prefix}.readings", "2023-11-14T22:00", "--as", "gateway")
    shown = cli.ok("watermark", "show", f"{prefix}.readings")
    cli.ok("watermark", "set", "--as", f"gateway:{prefix}.readings", "--forget")

    assert back.returncode == 1
    assert "cannot go back to" in back.stderr
    assert re.search(rf"gateway:{prefix}.readings/0 +2023-11-14 23:00:00", shown)
    assert "There is no watermark" in cli("watermark", "show", f"{prefix}.readings").stderr
    assert "There is no category" in cli("watermark", "show", f"{prefix}.reading").stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["set", "nothing", "2013-01-01"], "There is no category nothing"),
        (["set", "nothing", "tomorrow"], "neither an offset"),
        (["set", "--as", "unknown", "--forget"], "unknown has set no watermarks"),
    ],
)
def test_errors_say_what_to_do(cli: Cli, arguments: list[str], expected: str) -> None:
    """Each prints one paragraph on standard error, without a stack trace."""
    done = cli("watermark", *arguments)

    assert done.returncode != 0
    assert expected in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
