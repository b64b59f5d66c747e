"""Which of the outputs that are to be compared are there on which side, and whether that is enough to compare anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ...processors.declare.apps import App
from ...processors.declare.categories import AnyCategory
from ..errors import BackfillRefused


class OutputSide(Protocol):
    """Where categories lie, such as `Folders`."""

    root: str

    def has(self, category: str) -> bool:
        """Tell whether a category is there."""
        ...


class OutputsPresent(NamedTuple):
    """On which sides a category is; where it is not, there are no records."""

    stream: bool
    batch: bool

    def note(self, category: str) -> str:
        """Return what is to be said of it; nothing where both have it."""
        if self.stream and self.batch:
            return ""
        if self.stream:
            return f"The batch has nothing of {category}."
        if self.batch:
            return f"The archive has nothing of {category}: the stream wrote nothing to it, or it was not archived."
        return f"Neither the archive nor the batch has anything of {category}: nothing was written to it."


NOWHERE = OutputsPresent(stream=False, batch=False)


def check_outputs(
    app: App, written: Iterable[AnyCategory], archive: OutputSide, batch: OutputSide
) -> dict[str, OutputsPresent]:
    """Return what is where, by category. A side that has some of the outputs is taken to have had nothing to write to the others.

    Args:
        app: the app.
        written: its outputs.
        archive: where the stream's are.
        batch: where the backfill's are.

    Raises:
        BackfillRefused: one side has none of the outputs, though the other has; or there is no archive of the app at all.
    """
    names = [category.name for category in written]
    present = {name: OutputsPresent(archive.has(name), batch.has(name)) for name in names}
    streams, batches = any(found.stream for found in present.values()), any(found.batch for found in present.values())
    if streams != batches:
        raise BackfillRefused(
            f"{(batch if streams else archive).root} has no {', '.join(names)}. Nothing was compared. Archive the stream's outputs and "
            "run the backfill of the same processors first, or name one processor (path/app.py:Processor)."
        )
    if not streams and not any(archive.has(category.name) for category in app.categories()):
        raise BackfillRefused(
            f"There is nothing to compare: {archive.root} has no category of {app.name}, and {batch.root} none of its outputs. Look "
            "whether both locations are the right ones, and archive the app's categories first (penstock archive run)."
        )
    return present
