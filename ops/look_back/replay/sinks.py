"""Destinations of a replay's outputs: a file of JSON lines, or scratch categories."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, final
from uuid import uuid4

from ....processors.declare import AnyCategory, Processor, plan_of
from ....transport import Bus, CategorySpec, Writer
from ....transport.codecs import Codecs, encoded_messages
from ...shell import expect_no_source
from .errors import ReplayRefused
from .outputs import Output, line_of

BATCH = 1_000
"""The number of outputs that are encoded together."""


@final
class LinesFile:
    """A file of JSON lines, as a context manager. It replaces an older file at the end, and is discarded after an error.

    Args:
        path: its path.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = path.with_name(f".{path.name}.{uuid4().hex}")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> LinesFile:
        expect_no_source(self._path)
        try:
            self._file = self._aside.open("wb")
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ReplayRefused(
                f"Cannot write {self._path}: {reason}. Nothing was read. Name a file in an existing, writable folder."
            ) from error
        return self

    def give(self, output: Output) -> None:
        """Add a line."""
        if self._file is not None:
            self._file.write(line_of(output))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if kind is None:
            self._aside.replace(self._path)
        else:
            self._aside.unlink(missing_ok=True)


def scratch_of(processor: type[Processor], prefix: str) -> dict[str, AnyCategory]:
    """Return the scratch categories of a processor's outputs, by output category. They are on the main cluster."""
    return {
        category.name: replace(category, name=f"{prefix}.{category.name}", cluster=None)
        for category in plan_of(processor).outputs
    }


@final
class ScratchCategories:
    """Scratch categories, as a context manager. They are created with the first output, and complete at the end.

    Args:
        processor: the processor.
        prefix: the prefix of their names.
        bus: the bus.
    """

    def __init__(self, processor: type[Processor], prefix: str, bus: Bus) -> None:
        self._categories = scratch_of(processor, prefix)
        self._bus = bus
        self._codecs = Codecs(bus)
        self._waiting: list[Output] = []
        self._writer: Writer | None = None

    def __enter__(self) -> ScratchCategories:
        there = sorted({category.name for category in self._categories.values()} & set(self._bus.catalog.names()))
        if there:
            raise ReplayRefused(
                f"{', '.join(there)} already exists, and a replay writes only to new categories. Nothing was read. Name "
                f"another --scratch prefix, or delete the category: `penstock category delete {there[0]}`."
            )
        return self

    def give(self, output: Output) -> None:
        """Send an output."""
        self._waiting.append(output)
        if len(self._waiting) >= BATCH:
            self._send()

    def _begun(self) -> Writer:
        if self._writer is None:
            for category in self._categories.values():
                self._bus.catalog.create(CategorySpec.of(category))
            self._writer = self._bus.writer()
        return self._writer

    def _send(self) -> None:
        writer = self._begun()
        for name, category in self._categories.items():
            records = [output.record for output in self._waiting if output.category.name == name]
            if records:
                writer.send(category.name, encoded_messages(category, self._codecs.of(category), records))
        self._waiting = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._send()
        if self._writer is not None:
            self._writer.flush()
            self._writer.close()
