"""A backup store of files in memory, for the library's backups: requests fail or arrive late, uploads break, and the store goes back in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from support.warehouses import MemoryFileStore

from penstock.state import FileMissing, FileStoreUnreachable
from penstock.state.backups import ShardBackups, damages_of
from penstock.state.files.durable import temporary_name

from .faults import Fault, FaultKind
from .rocks import SteeredState
from .scheduler import Process, Scheduler

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")
ATTEMPT_S = 2.0
"""The client's timeout."""
COPY_EVERY_MS = 1_000
"""The shortest time between two copies of the store."""


@dataclass
class StoredFiles:
    """The files of the store.

    Args:
        memory: the files.
        unreachable_until_ms: the end of an outage.
        late: requests under way, by file, whose clients have given up.
        copies: older copies of all files, by time.
        went_back: whether it was put back to an older copy.
    """

    memory: MemoryFileStore = field(default_factory=MemoryFileStore)
    unreachable_until_ms: float = 0.0
    late: dict[str, list[Callable[[], object]]] = field(default_factory=dict)
    copies: list[tuple[float, dict[str, bytes]]] = field(default_factory=list)
    went_back: bool = False

    def perform_late(self, path: str) -> None:
        """Perform the requests for a file that are under way."""
        for request in self.late.pop(path, []):
            request()

    def note_copy(self, now_ms: float) -> None:
        """Copy all files, if it is due."""
        if not self.copies or now_ms >= self.copies[-1][0] + COPY_EVERY_MS:
            self.copies.append((now_ms, dict(self.memory.stored)))

    def go_back(self, until_ms: float) -> None:
        """Put the store back to its newest copy of a time or earlier; if there is none, it is empty.

        Later copies are dropped: they may contain claims of owners that a running owner has never seen, and that fence it.
        """
        while self.copies and self.copies[-1][0] > until_ms:
            self.copies.pop()
        self.memory.stored = dict(self.copies[-1][1]) if self.copies else {}
        self.went_back = True

    def backups(self, processor: str) -> Iterator[ShardBackups]:
        """Yield the backups of each shard of a processor."""
        return (ShardBackups(self.memory, processor, int(bucket)) for bucket in self.memory.list_folder(processor))


def expect_no_missing_files(world: World) -> None:
    """Expect that no file of a backup is missing, unless the store has gone back during a pruning."""
    for node in world.scenario.nodes if not world.backup_files.went_back else ():
        for backups in world.backup_files.backups(node.name):
            for manifest in backups.manifests():
                damages = damages_of(manifest, backups.files())
                assert not damages, f"backup {manifest.id} of {backups}: {damages}"


def expect_backed_up(world: World) -> None:
    """Expect that the newest backup of each open state in RocksDB is complete, and has its position."""
    for node in world.scenario.nodes:
        for shard in world.machines.shards(node):
            if isinstance(shard.state, SteeredState) and (position := shard.state.position()):
                backups = ShardBackups(world.backup_files.memory, node.name, shard.number)
                newest = backups.newest()
                assert newest is not None, f"{backups} is at {position}, without a backup"
                assert newest.position == position, (
                    f"{backups} is at {position}, its newest backup at {newest.position}"
                )
                assert not damages_of(newest, backups.files()), f"the newest backup of {backups} lacks files"


class ProcessFiles:
    """A process's access to the backup store: a `FileStore`.

    Args:
        files: the files, shared by all processes.
        scheduler: runs other tasks during a request.
        process: the process.
        strike: returns the fault that hits a request.
    """

    location = "the backup store"

    def __init__(
        self,
        files: StoredFiles,
        scheduler: Scheduler,
        process: Process,
        strike: Callable[[Process, str], Fault | None],
    ) -> None:
        self._files = files
        self._scheduler = scheduler
        self._process = process
        self._strike = strike

    @property
    def _memory(self) -> MemoryFileStore:
        return self._files.memory

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Upload a temporary file, then rename it. A killed process leaves it, and one whose upload breaks may."""
        folder, _, name = path.rpartition("/")
        temporary, content = f"{folder}/{temporary_name(name)}", b""
        self._files.perform_late(path)
        try:
            for chunk in chunks:
                self._memory.stored[temporary] = content + chunk[: len(chunk) // 2]
                self._scheduler.point("backup upload")
                content += chunk
            self._request("write", path, lambda: self._memory.write(path, [content]))
        except Exception:
            if self._scheduler.random.random() < 0.5:  # otherwise, the request that deletes it fails, too
                self._memory.stored.pop(temporary, None)
            raise
        self._memory.stored.pop(temporary, None)

    def create(self, path: str, content: bytes) -> bool:
        """Store a file unless it exists."""
        return self._request("create", path, lambda: self._memory.create(path, content))

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        content = self._request("read", path, lambda: self._memory.stored.get(path))
        if content is None:
            raise FileMissing(f"{path} does not exist.")
        yield content[start:]

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of the files in a folder. Files that appear or disappear meanwhile may be among them."""
        before = self._request("list", folder, lambda: self._memory.list_folder(folder))
        self._scheduler.point("backup list")
        after = self._memory.list_folder(folder)
        stay = before.keys() & after.keys()
        found = {**before, **after}.items()
        return {name: size for name, size in found if name in stay or self._scheduler.random.random() < 0.5}

    def tags(self, folder: str) -> dict[str, str]:
        """Return a tag of each file in a folder."""
        return self._request("list", folder, lambda: self._memory.tags(folder))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._request("delete", path, lambda: self._memory.delete(path))

    def _request(self, name: str, path: str, effect: Callable[[], T]) -> T:
        """Perform a request, unless a fault prevents it or its answer."""
        scheduler, files = self._scheduler, self._files
        scheduler.point(f"backup {name}")
        files.perform_late(path)
        fault = self._strike(self._process, f"backup {name}")
        kind = None if fault is None else fault.kind
        is_down = scheduler.now_ms < files.unreachable_until_ms
        if fault is not None and kind is FaultKind.SLOW:
            scheduler.sleep(min(fault.duration_s, ATTEMPT_S))
        if is_down or kind in {FaultKind.FAIL, FaultKind.DELAY}:
            if fault is not None and kind is FaultKind.DELAY:
                self._arrive_later(fault.duration_s, path, effect)
            scheduler.sleep(ATTEMPT_S)
            raise FileStoreUnreachable(f"The backup store does not answer ({name} {path}).")
        files.note_copy(scheduler.now_ms)
        answer = effect()
        if kind is FaultKind.LOST:
            scheduler.sleep(ATTEMPT_S)
            raise FileStoreUnreachable(f"The backup store has not answered ({name} {path}).")
        scheduler.point(f"after backup {name}")
        return answer

    def _arrive_later(self, seconds: float, path: str, effect: Callable[[], object]) -> None:
        """Perform a request after its client's timeout, and before a later request for its file; the client may be dead."""
        self._files.late.setdefault(path, []).append(effect)

        def arrive() -> None:
            self._scheduler.sleep(seconds)
            self._files.perform_late(path)

        self._scheduler.spawn(Process("network"), "network", arrive)
