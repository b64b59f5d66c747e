"""A state that is built in batch equals the stream's state: the stream continues as if it had read the past itself."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import shop
from support.warehouses import Killed

from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver
from penstock.backfill.run import BootstrapResult, BootstrapTarget, bootstrap
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import DAY_MS, Listing, Warehouse, open_warehouse
from penstock.ops.kernel import Environment, assemble_worker, ends_of, prepare
from penstock.ops.kernel.shards.resume_checks import MaintenanceUnfinished
from penstock.processors.apps import AppName
from penstock.processors.declare import Processor, plan_of
from penstock.state.files import LocalFileStore
from penstock.transport import Bucket, CategorySpec, GroupInUse, Outgoing, create_missing_categories
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import WATERMARKS

APP = AppName(Path(shop.__file__))
KINDS = APP.load().processors
LIMIT_S = 240.0
LATER_DAY = "2013-01-03"


class DyingBus(MemoryBus):
    """A bus that fails while it sets positions, while `kills` is set."""

    kills = False

    def set_committed(self, group: str, positions: Any) -> None:
        """Set positions, or fail."""
        if self.kills:
            raise Killed
        super().set_committed(group, positions)


class OnlyALaterDay(LocalFileStore):
    """A warehouse whose user is killed while it writes events: only the file of one day exists, and nothing else of that save."""

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write the one file, then fail."""
        if path.endswith(".parquet") and f"/ds={LATER_DAY}/" not in path:
            raise Killed
        super().write(path, chunks)


class World:
    """A bus whose first half is archived and built into states, and then continues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = shop.START_MS + 10**10
        self.bus = DyingBus(lambda: self.now_ms)
        for category in APP.load().categories():
            self.bus.create(CategorySpec.of(category))
        create_missing_categories(self.bus, WATERMARKS)
        self.warehouse = open_warehouse(folder / "warehouse")
        self.place = LocalFileStore(folder / "backups")
        self.parts = list(shop.stream_parts())

    def send(self, parts: Any) -> None:
        """Send parts of the stream, a second apart."""
        writer, codecs = self.bus.writer(), Codecs(self.bus)
        for category, events in (one for part in parts for one in part):
            self.now_ms += 1_000
            encoded = codecs.of(category).encode(events)
            writer.send(category.name, map(Outgoing, [key.encode() for key in category.keys_of(events)], encoded))

    def run(self, processor: type[Processor], states: str) -> list[Any]:
        """Run a worker to the end of the bus and return its outputs."""
        begin = {category.name: dict(self.bus.ends(category.name)) for category in plan_of(processor).outputs}
        around = Environment(self.folder / states, self.place, timedelta(seconds=0.05))
        targets = ends_of(plan_of(processor).inputs, self.bus)
        deadline = time.monotonic() + LIMIT_S
        with assemble_worker(prepare(processor, self.bus), self.bus, around) as worker:
            worker.run(lambda it: it.has_reached(targets) or time.monotonic() > deadline)
        written: list[Any] = []
        for category in plan_of(processor).outputs:
            for number, offset in begin[category.name].items():
                end = self.bus.ends(category.name)[number]
                messages = list(self.bus.slice(Bucket(category.name, number), offset, end))
                written += Codecs(self.bus).of(category).decode(messages).events
        return written

    def archive(self, warehouse: Warehouse | None = None) -> None:
        """Archive the present events of both inputs."""
        ends = {
            Bucket(name, number): end for name in ("orders", "payments") for number, end in self.bus.ends(name).items()
        }
        Archiver(self.bus, [shop.orders, shop.payments], warehouse or self.warehouse).run(
            lambda it: it.has_reached(ends)
        )

    def bootstrap(self, processor: type[Processor], **more: Any) -> BootstrapResult:
        """Build a processor's states."""
        app = AppName(APP.path, processor.__name__)
        return bootstrap(app, self.warehouse, BootstrapTarget(self.bus, self.place), master="local[2]", **more)


@dataclass
class Halves:
    """The outputs of the second half by processor: of one continuous stream, and of a stream that began with built states."""

    streamed: dict[str, Counter[Any]]
    went_on: dict[str, Counter[Any]]
    built: dict[str, BootstrapResult]


@pytest.fixture(scope="module")
def spark() -> Iterator[None]:
    """One session for all tests."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the bootstrap is tested")
    with spark_session("local[2]"):
        yield


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory, spark: None) -> Halves:
    """Run the stream with every kind of processor, and again from states that a batch run built of its first half."""
    whole, begun = World(tmp_path_factory.mktemp("whole")), World(tmp_path_factory.mktemp("begun"))
    middle = shop.PARTS // 2
    step_by_step(whole, whole.parts[:middle])
    begun.send(begun.parts[:middle])
    begun.archive()
    built = {processor.__name__: begun.bootstrap(processor) for processor in KINDS}
    return Halves(step_by_step(whole, whole.parts[middle:]), step_by_step(begun, begun.parts[middle:]), built)


def step_by_step(world: World, parts: Any) -> dict[str, Counter[Any]]:
    """Send the parts one after the other, process each before the next, and return the outputs."""
    written: dict[str, Counter[Any]] = {processor.__name__: Counter() for processor in KINDS}
    for category, events in (one for part in parts for one in part):
        world.send([[(category, events)]])
        for processor in KINDS:
            written[processor.__name__].update(world.run(processor, "states"))
    return written


@pytest.mark.parametrize("processor", [processor.__name__ for processor in KINDS])
def test_the_stream_continues_as_if_it_had_read_the_past(halves: Halves, processor: str) -> None:
    """Windows, timers and buffered events are open at the handoff, and some events are late for its watermark."""
    archived = 900 if processor in {"Paid", "LastPaid"} else 600

    assert halves.went_on[processor] == halves.streamed[processor]
    assert sum(halves.streamed[processor].values()) > 20
    assert sum(shard.events for shard in halves.built[processor].shards) == archived


def test_a_running_processor_is_only_replaced_on_request(tmp_path: Path, spark: None) -> None:
    """Its positions stay. On request it continues at the archive's end, on any disk. A running worker blocks the handoff."""
    world = World(tmp_path)
    world.send(world.parts[:1])
    world.archive()
    archived = world.bus.ends("orders")
    world.run(shop.Numbered, "states")
    world.send(world.parts[1:2])
    further = world.run(shop.Numbered, "states")
    before = world.bus.committed("numbered", "orders")
    with pytest.raises(BackfillRefused, match="has run already"):
        world.bootstrap(shop.Numbered)
    member = world.bus.reader("numbered", ["orders"], NoHandler())
    with closing(member), pytest.raises(GroupInUse):
        world.bootstrap(shop.Numbered, overwrite=True)
    assert world.bus.committed("numbered", "orders") == before

    world.bootstrap(shop.Numbered, overwrite=True)
    assert world.bus.committed("numbered", "orders") == archived
    assert Counter(world.run(shop.Numbered, "states")) == Counter(further)
    assert len(further) > 20


def test_a_bootstrap_that_is_killed_in_its_handoff_can_be_repeated(tmp_path: Path, spark: None) -> None:
    """It needs no confirmation. Until then no worker starts, since it would begin at the first event."""
    killed, other = World(tmp_path / "killed"), World(tmp_path / "other")
    for world in (killed, other):
        world.send(world.parts[:1])
        world.archive()
    killed.bus.kills = True
    with pytest.raises(Killed):
        killed.bootstrap(shop.Numbered)
    killed.bus.kills = False
    begun = killed.bus.committed("numbered", "orders")
    with pytest.raises(MaintenanceUnfinished, match="a bootstrap was started"):
        killed.run(shop.Numbered, "states")
    killed.bus.kill_members("numbered")  # its session expires
    for world in (killed, other):
        world.bootstrap(shop.Numbered)
    for world in (killed, other):
        world.send(world.parts[1:2])
    written = [Counter(world.run(shop.Numbered, "states")) for world in (killed, other)]

    assert begun == {}
    assert written[0] == written[1]
    assert sum(written[0].values()) > 20


def test_files_after_the_archivers_position_do_not_count(tmp_path: Path, spark: None) -> None:
    """An archiver that dies between the files of two days leaves later events without earlier ones; the stream reads both again."""
    whole, torn = World(tmp_path / "whole"), World(tmp_path / "torn")
    for world in (whole, torn):
        world.send(world.parts[:1])
    torn.archive()
    archived = torn.bus.ends("orders")
    for world in (whole, torn):
        world.send([[(shop.orders, orders_on_two_days())]])
    with pytest.raises(Killed):
        torn.archive(Warehouse(OnlyALaterDay(Path(torn.warehouse.files.location))))
    left = Listing.of(torn.warehouse, "orders")

    built = torn.bootstrap(shop.Numbered)
    torn.run(shop.Numbered, "states")
    whole.run(shop.Numbered, "states")
    for world in (whole, torn):
        world.send(world.parts[1:2])

    assert LATER_DAY in {file.day for file in left.files}
    assert {shard.bucket: shard.position["orders"] for shard in built.shards} == archived
    assert Counter(torn.run(shop.Numbered, "states")) == Counter(whole.run(shop.Numbered, "states"))


def orders_on_two_days() -> list[Any]:
    """Return orders that alternate between two days, none of them archived yet."""
    return [shop.Purchase(f"c{n % 20}", shop.START_MS + (1 + n // 20 % 2) * DAY_MS + n, n) for n in range(200)]


class NoHandler:
    """Ignores assignments."""

    def assigned(self, buckets: Any) -> None:
        """Do nothing."""

    revoked = lost = assigned
