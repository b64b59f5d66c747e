"""`penstock run`: a processor in this process, or a whole app in a process for each."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from ...processors.apps import App, AppName
from ...processors.kinds import Processor
from ...state.rocks import RocksStateFolder
from ...transport.bus import CategorySpec
from ...transport.errors import CategoryExists
from ...transport.kafka import KafkaBus
from ..collector import relax_collector
from ..nodes import levels_of, penstock_command, run_together
from ..preflight import Targets, ends_of, group_has_reached, prepare
from ..worker import Worker
from .categories import specs_of
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, KafkaConfig, connect
from .output import as_json, note, progress
from .signals import interrupt, stopping_on_signals

ASK_GROUP_EVERY_S = 1.0


def run(
    target: Annotated[str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app file, or one processor of it.")],
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the end of the input as it is at the start.")
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create the app's categories where they are missing.")
    ] = False,
    kafka: Kafka = None,
    kafka_config: KafkaConfig = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Run a processor, or every processor of an app in a process of its own.

    Start the same command again, here or elsewhere, to share the work: workers of one processor divide its buckets.
    SIGTERM or Ctrl-C stop it after a last checkpoint.

    Example: penstock run examples/flights/app.py:Scorer --until-end
    """
    name = AppName.parse(target)
    app = name.load()
    bus = connect(kafka, kafka_config, folder)
    if create:
        _create_missing(bus, name)
    if len(app.processors) == 1:
        _run_one(app.processors[0], bus, folder, until_end=until_end, json=json)
        return
    options = ["--kafka", bus.settings.bootstrap, "--dir", str(folder)]
    options += ["--kafka-config", str(kafka_config)] if kafka_config else []
    options += ["--until-end"] * until_end + ["--json"] * json
    _run_app(app, name, bus, options, until_end=until_end)


def _create_missing(bus: KafkaBus, name: AppName) -> None:
    existing = set(bus.catalog.names())
    for spec in specs_of(name):
        if spec.name not in existing:
            _create(bus, spec)


def _create(bus: KafkaBus, spec: CategorySpec) -> None:
    try:
        bus.catalog.create(spec)
    except CategoryExists:
        return  # another worker was first
    note(f"Created category {spec.name} with {spec.buckets} buckets.")


def _run_one(processor: type[Processor], bus: KafkaBus, folder: Path, *, until_end: bool, json: bool) -> None:
    opened = prepare(processor, bus)
    targets = ends_of(processor.inputs(), bus)
    worker = Worker(opened, bus, RocksStateFolder(folder / "state"))
    at_end = _AtEnd(targets, processor.name, bus)
    relax_collector()
    with stopping_on_signals(worker.stop), progress() as bars:
        bar = bars.add_task(processor.__name__, total=None)

        def finished(worker: Worker) -> bool:
            bars.update(bar, completed=worker.tally.events_in)
            return until_end and at_end(worker)

        worker.run(finished)
    if json:
        as_json({"processor": processor.name, **asdict(worker.tally)})
    else:
        note(f"{processor.__name__}: {worker.tally}")


class _AtEnd:
    """Whether a worker is done: it has read its buckets up to the targets, or others have read all of them."""

    def __init__(self, targets: Targets, group: str, bus: KafkaBus) -> None:
        self._targets = targets
        self._group = group
        self._bus = bus
        self._asked_s = time.monotonic()

    def __call__(self, worker: Worker) -> bool:
        """Look; the group is asked only now and then."""
        if not worker.owns_nothing:
            return worker.has_reached(self._targets)
        if time.monotonic() - self._asked_s < ASK_GROUP_EVERY_S:
            return False
        self._asked_s = time.monotonic()
        return group_has_reached(self._targets, self._group, self._bus)


def _run_app(app: App, name: AppName, bus: KafkaBus, options: list[str], *, until_end: bool) -> None:
    def command(processor: type[Processor]) -> list[str]:
        return penstock_command("run", f"{name.path}:{processor.__name__}", *options)

    stages = levels_of(app) if until_end else [list(app.processors)]
    # Stopping is what was asked for: the nodes have saved their last checkpoints when the block is left.
    with suppress(KeyboardInterrupt), stopping_on_signals(interrupt), progress() as bars:
        for stage in stages:
            watched = {processor: bars.add_task(processor.__name__, total=None) for processor in stage}
            run_together(stage, command, lambda watched=watched: _show_progress(bus, watched, bars))  # type: ignore[misc]  # a default binds the loop's value


def _show_progress(bus: KafkaBus, watched: dict[type[Processor], TaskID], bars: Progress) -> None:
    """Show how far each processor's committed positions are."""
    if bars.disable:
        return
    for processor, bar in watched.items():
        states = [bus.catalog.describe(category.name) for category in processor.inputs()]
        done = sum(
            offset - state.starts[bucket]
            for state in states
            for bucket, offset in bus.catalog.committed(processor.name, state.spec.name).items()
        )
        bars.update(bar, completed=done, total=sum(state.events for state in states))
