"""`penstock backfill --output bus` and `--output sinks`: the batch is written to a folder, and sent from there to Kafka or to the sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING

from ....processors import counted
from ....processors.apps import AppName
from ....processors.declare import plan_of
from ...shell import expect_main_cluster, interruptible, note, print_json, print_table, progress_steps

if TYPE_CHECKING:  # Arrow is slow to import, and most commands do without
    from ....backfill.outputs import FilledSink
    from ....backfill.warehouse import Days, Warehouse
    from ....transport import Bus

BUS = "bus"
SINKS = "sinks"


@dataclass(frozen=True)
class StoredBackfill:
    """A backfill that is sent from its folder. A batch that an earlier run has begun to send is not computed again.

    Args:
        app: the app.
        bus: the destination, and where the progress is recorded.
        location: the batch's folder.
        webhdfs: for HDFS, the address of WebHDFS.
        days: the first and the last day.
        compute: runs the batch into the folder.
        json: whether to print JSON.
    """

    app: AppName
    bus: Bus
    location: str
    webhdfs: str | None
    days: tuple[date, date]
    compute: Callable[[], object]
    json: bool

    def into_bus(self) -> None:
        """Compute the batch, and send it to its categories."""
        from ....backfill.outputs import must_compute, send_batch  # noqa: PLC0415 - as above

        written = {
            category.name: category
            for processor in self.app.load().processors
            for category in plan_of(processor).outputs
        }
        expect_main_cluster(
            written.values(),
            "filled by a backfill",
            "Write the result into a folder with `--output LOCATION`, and send it with a program of yours.",
        )
        for name in written:
            self.bus.catalog.ends(name)  # a missing category is an error before anything is computed
        folder, span = self._folder, self._span
        if must_compute(self.bus, folder, list(written.values()), span):
            self.compute()
        else:
            note(f"The batch of {span} in {self.location} was partly sent. It is not computed again.")
        effect = "Sent records are in Kafka once. Repeat the command to send the rest."
        with interruptible(effect), progress_steps() as show:
            done = [
                send_batch(
                    self.bus, folder, category, span, lambda name, sent, total: show(f"{name}: {sent} of {total}")
                )
                for category in written.values()
            ]
        if self.json:
            print_json([asdict(sent) for sent in done])
            return
        print_table(
            ("category", "records", "sent before"), [(sent.category, sent.records, sent.sent_before) for sent in done]
        )
        note("All records are in Kafka, each once.")

    def into_sinks(self) -> None:
        """Compute the batch, and write the rows of its sinks."""
        from ....backfill.outputs import expect_writable, must_compute_rows, write_rows  # noqa: PLC0415 - as above

        processors = self.app.load().processors
        sinks = list({sink.name: sink for processor in processors for sink in plan_of(processor).sinks}.values())
        expect_writable(sinks)
        folder, span = self._folder, self._span
        if must_compute_rows(self.bus, folder, sinks, span):
            self.compute()
        else:
            note(
                f"The rows of {span} in {self.location} are computed, and perhaps partly written. They are not computed again."
            )
        for sink in filter(lambda sink: sink.replaces_rows, sinks):
            note(f"{sink.name}: each row replaces the row of its key, also one that a worker has written since.")
        with interruptible("Repeat the command to write the other rows."), progress_steps() as show:
            done = [
                write_rows(self.bus, folder, sink, span, lambda name, rows, total: show(f"{name}: {rows} of {total}"))
                for sink in sinks
            ]
        self._show_sinks(done)

    def _show_sinks(self, done: list[FilledSink]) -> None:
        if self.json:
            print_json([asdict(filled) for filled in done])
            return
        print_table(
            ("sink", "rows", "written before", "refused"),
            [(filled.sink, filled.rows, filled.written_before, filled.refused) for filled in done],
        )
        for filled in done:
            if filled.refused:
                note(
                    f"{filled.sink} refused {counted(filled.refused, 'row')}, the first one because: {filled.reason} Refused rows are in "
                    f"{self.location} only."
                )

    @property
    def _folder(self) -> Warehouse:
        from ....backfill.warehouse import open_warehouse  # noqa: PLC0415 - as above

        return open_warehouse(self.location, self.webhdfs)

    @property
    def _span(self) -> Days:
        from ....backfill.warehouse import Days  # noqa: PLC0415 - as above

        return Days(*self.days)
