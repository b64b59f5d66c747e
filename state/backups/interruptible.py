"""A place that can be left, whatever it is being asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .store import BackupStore


class InterruptibleBackupStore:
    """Asks another place, as long as it is to go on: then a place that hangs costs one answer's limit, and no further try.

    Args:
        place: what is asked.
        go_on: called before each request and with each piece of a file; what it raises is passed on.
    """

    def __init__(self, place: BackupStore, go_on: Callable[[], None]) -> None:
        self._place = place
        self._go_on = go_on

    @property
    def location(self) -> str:
        """Where the root is."""
        return self._place.location

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file."""
        self._go_on()
        self._place.put(path, self._each(chunks))

    def create(self, path: str, content: bytes) -> bool:
        """Take a name."""
        self._go_on()
        return self._place.create(path, content)

    def read(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes."""
        self._go_on()
        return self._each(self._place.read(path))

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        self._go_on()
        return self._place.contents(folder)

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._go_on()
        self._place.delete(path)

    def _each(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._go_on()
            yield chunk
