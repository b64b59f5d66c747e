"""Execution of `penstock replay`: from selected events to outputs, differences or a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ....processors import counted, ending
from ....processors.apps import APP_SUFFIXES, AppName
from ....processors.declare import Processor, plan_of
from ....processors.shard import SourceEvents
from ....transport import Bus
from ....transport.kafka import KafkaBus
from ...kernel import expect_categories, expect_side_inputs, open_processor
from ...shell import interruptible, note, progress
from ..replay import (
    Debugger,
    Gathered,
    Give,
    KeySearch,
    LinesFile,
    LiveComparison,
    OutputCollector,
    OutputRecord,
    Plays,
    Replay,
    ReplayCallbacks,
    ReplayCounts,
    Replayed,
    ReplayStopped,
    ScratchCategories,
    ShardReplay,
    ShardReplayer,
    compare,
    compare_with_live,
    expect_no_file,
    one_by_one,
    only,
    paced,
    past_watermarks,
    replay_in_subprocess,
    side_by_side,
    version,
    write_test,
)
from .replay_options import EventOptions, OutputOptions, PlaybackOptions, Selection, set_options, span_options
from .replay_report import OutputPrinter, show_differences, show_summary

LIVE = "live"


@dataclass(frozen=True)
class ReplayRun:
    """One call of `penstock replay`.

    Args:
        app: the app file and the processor.
        processor: the processor.
        selection: the events and the initial state.
        events: the options of the events.
        outputs: the destination of the outputs.
        playback: the speed and the breakpoints.
        bus: the bus with the events.
        live: the bus with the live outputs, which may be on several clusters.
        warehouse: the location of the warehouse.
        webhdfs: the address of WebHDFS, if the warehouse is on HDFS.
        forwarded: the options of another process that replays the same events.
        json: whether to print JSON.
    """

    app: AppName
    processor: type[Processor]
    selection: Selection
    events: EventOptions
    outputs: OutputOptions
    playback: PlaybackOptions
    bus: KafkaBus
    live: Bus
    warehouse: str
    webhdfs: str | None
    forwarded: Sequence[str]
    json: bool

    @cached_property
    def _search(self) -> KeySearch | None:
        """Looks for the key among the events; None without one."""
        return None if self.selection.key is None else KeySearch(self.selection.key)

    def execute(self) -> bool:
        """Replay, and return whether the outputs differ from the other version's or the live ones."""
        rate = self.playback.rate
        expect_categories(self.processor, plan_of(self.processor).inputs, self.bus)
        expect_side_inputs(self.processor, self.bus)
        started_s = time.monotonic()
        with interruptible("Outputs were not written."), ExitStack() as resources:
            other_outputs = self._other_outputs(resources)
            printer = OutputPrinter(self.outputs.limit, json=self.json)
            sinks = self._sinks(resources) or ([printer.add] if self.outputs.against is None else [])
            collector = OutputCollector(
                self.processor, self.selection.key, sinks, keeps=self.outputs.against is not None
            )
            self._collect(resources, collector, rate)
        printer.close()
        if self._search is not None and not self._search.is_found and not self.json:
            note(self._search.missing(self.bus, plan_of(self.processor).inputs[0]))
        differs = self.outputs.against is not None and self._differs(self.outputs.against, other_outputs, collector)
        show_summary(self.processor, collector.counts, time.monotonic() - started_s, json=self.json)
        return differs

    def _other_outputs(self, resources: ExitStack) -> list[OutputRecord] | None:
        """Return the outputs of another version; None without one."""
        against, selection = self.outputs.against, self.selection
        if against is None or against == LIVE:
            return None
        other = resources.enter_context(version(self.app, against))
        options = [*self.forwarded, *span_options(selection.span), *set_options({"--key": selection.key})]
        if selection.is_part:
            options += [word for number in selection.numbers for word in ("--bucket", str(number))]
        note(f"Replaying {against} …")
        return replay_in_subprocess(other, options)

    def _sinks(self, resources: ExitStack) -> list[Give]:
        """Return the destinations of the outputs, other than the screen."""
        sinks: list[Give] = []
        if self.outputs.output is not None:
            sinks.append(resources.enter_context(LinesFile(self.outputs.output)).give)
        if self.outputs.scratch is not None:
            scratch = ScratchCategories(self.processor, self.outputs.scratch, self.bus)
            sinks.append(resources.enter_context(scratch).give)
        return sinks

    def _collect(self, resources: ExitStack, collector: OutputCollector, rate: float | None) -> None:
        """Replay all shards, and collect their outputs."""
        running = resources.enter_context(ending(open_processor(self.processor, self.bus)))
        source = self.events.open(running, self.bus, self.warehouse, self.webhdfs)
        watermarks = resources.enter_context(past_watermarks(running, self.bus))
        selection = self.selection
        shards = Replay(running, source, selection.span, selection.start, selection.numbers, watermarks).shards()
        debugger = Debugger(running, self.playback.break_at or ()) if self.playback.stops else None
        if selection.key is not None:
            only(running, selection.key)
        with self._saved_test() as add_to_test:

            def watch(events: SourceEvents) -> None:
                collector.inputs.note(events)
                if self._search is not None:
                    self._search.note(events)
                add_to_test(events)

            def follow(shard: ShardReplayer) -> None:
                if debugger is not None:
                    debugger.playing = shard

            callbacks = ReplayCallbacks(tell=note, watch=watch, playing=follow)
            batches = _play(resources, shards, collector.counts, rate, callbacks, quiet=debugger is not None)
            collector.all(resources.enter_context(closing(batches)))

    @contextmanager
    def _saved_test(self) -> Iterator[Callable[[SourceEvents], None]]:
        """Yield a function that adds events to the test. The test is written at the end, also if the processor raised."""
        path, events = self.outputs.save_as_test, Gathered(self.selection.key)
        if path is None:
            yield lambda _: None
            return
        expect_no_file(path)
        try:
            yield events.note
        except ReplayStopped:
            self._write_test(path, events)
            raise
        self._write_test(path, events)

    def _write_test(self, path: Path, events: Gathered) -> None:
        count = write_test(path, self.app.path, self.processor, events, self.selection.description)
        note(f"{path} is a test with {counted(count, 'event')}. Run it with pytest.")

    def _differs(self, against: str, other_outputs: list[OutputRecord] | None, collector: OutputCollector) -> bool:
        """Compare the outputs, show the differences, and return whether there are any."""
        if other_outputs is None:
            selection = self.selection
            replayed = Replayed(
                self.processor,
                collector.ours,
                collector.warming,
                collector.inputs,
                selection.is_part,
                selection.span.until_ms,
            )
            found = compare_with_live(replayed, self.live)
        else:
            found = LiveComparison(compare(self.processor, other_outputs, collector.ours), 0)
        file = Path(against)
        name = "/".join(file.parts[-2:]) if file.suffix in APP_SUFFIXES else against
        show_differences(name, found.comparisons, found.open_windows, self.outputs.limit, json=self.json)
        return not all(comparison.agrees for comparison in found.comparisons)


def _play(
    resources: ExitStack,
    shards: Sequence[ShardReplay],
    counts: ReplayCounts,
    rate: float | None,
    callbacks: ReplayCallbacks,
    *,
    quiet: bool,
) -> Plays:
    """Play the shards, and show a progress bar."""
    bars = progress()
    bars.disable = bars.disable or quiet
    resources.enter_context(bars)
    total = sum(offsets.end - offsets.start for shard in shards for offsets in shard.stretches)
    bar = bars.add_task("Replaying", total=total)

    def advance() -> None:
        warm_up = f" (warming up: {counts.warmed_up:,})" if counts.warmed_up else ""
        bars.update(bar, completed=counts.events, description=f"Replaying{warm_up}")

    def play(shard: ShardReplay) -> Plays:
        return shard.play(counts, replace(callbacks, advance=advance))

    if rate is None:
        return one_by_one(shards, play)
    return paced(side_by_side(shards, play), rate, monotonic_s=time.monotonic, sleep=time.sleep)
