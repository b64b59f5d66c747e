"""Outputs of a batch run on their way into files: Spark's shuffle moves a few large blocks instead of a row for each output.

output rows --packed: by category or sink and day--> blocks --shuffled by category or sink and day, in the order of their tasks-->
the blocks of a day --written by the task itself--> one Parquet file
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ...processors.declare import Processor, plan_of
from ...state.files import FileStore
from ..sources import spark_schema
from ..spark import Batches, Transform, from_block, joined, marked_errors, return_freed_memory, to_block
from ..steps import name_in_batch, slot_of
from ..warehouse import OUTPUT_MARKS, RecordColumns, by_day, day_folder, relaxed_schema

PACKED_BYTES = 4 * 2**20
"""The size of the outputs of one category or sink that a task packs at a time."""
ROW_GROUP_BYTES = 16 * 2**20
"""The size in memory of the outputs in a row group of a file."""
_CHUNK_BYTES = 2**20
_FIELDS: list[pa.Field[Any]] = [
    pa.field("name", pa.string(), nullable=False),
    pa.field("day", pa.string(), nullable=False),
    pa.field("task", pa.int32(), nullable=False),
    pa.field("number", pa.int64(), nullable=False),
    pa.field("outputs", pa.binary(), nullable=False),
]
_BLOCKS = pa.schema(_FIELDS)
"""The rows of the shuffle."""
_FILES = pa.schema([pa.field("path", pa.string(), nullable=False)])

Place = Callable[[str, str], str]
"""Returns the path of a file, for the name of a category or sink and a day."""


def kept(rows: Iterable[pa.RecordBatch]) -> Batches:
    """Return rows as they are: the step of `OutputBlocks.packed` for rows that are outputs already."""
    return iter(rows)


@dataclass(frozen=True)
class OutputBlocks:
    """The form of a processor's packed outputs.

    Args:
        processor: the name of its class, for messages.
        names: the name in the output of each category and sink, in the order of `destinations()`.
        schemas: the columns of their files.
    """

    processor: str
    names: Sequence[str]
    schemas: Sequence[pa.Schema]

    @staticmethod
    def of(processor: type[Processor]) -> OutputBlocks:
        """Return the form for a processor.

        Raises:
            DeclarationError: the records of an output have no columns.
        """
        destinations = plan_of(processor).destinations
        return OutputBlocks(
            processor.__name__,
            [name_in_batch(each) for each in destinations],
            [relaxed_schema(pa.schema([*RecordColumns(each.record).schema, *OUTPUT_MARKS])) for each in destinations],
        )

    def packed(self, frame: DataFrame, step: Transform) -> DataFrame:
        """Return the blocks of the outputs of a step, which returns rows as of `OutputRows`."""
        return frame.mapInArrow(partial(_packed, self, step), spark_schema(_BLOCKS))

    def write(self, blocks: DataFrame, files: FileStore, folder: str) -> None:
        """Compute blocks, and write a file for each category or sink and day.

        All files have one new name, so that a repeated task replaces its files.

        Args:
            blocks: the frame of blocks.
            files: the store of the output.
            folder: the path in it below which the categories are.
        """
        place = partial(_path_of, folder, f"part-{uuid4().hex}.parquet")
        by_file = blocks.repartition("name", "day").sortWithinPartitions("name", "day", "task", "number")
        by_file.mapInArrow(partial(_written, self, files, place), spark_schema(_FILES)).collect()

    def blocks_of(self, rows: Iterable[pa.RecordBatch]) -> Batches:
        """Yield the blocks of output rows, in a task."""
        packing = [_Packing(name, schema) for name, schema in zip(self.names, self.schemas, strict=True)]
        for batch in rows:
            for number, packed in enumerate(packing):
                yield from packed.add(_own(batch, number, packed.schema))
        for packed in packing:
            yield from packed.rest()

    def files_of(self, blocks: Iterable[pa.RecordBatch], files: FileStore, place: Place) -> Iterator[str]:
        """Write the files of sorted blocks; yield their paths. Runs in a task.

        Raises:
            FileStoreUnreachable: a file cannot be written.
        """
        schemas = dict(zip(self.names, self.schemas, strict=True))
        for (name, day), of_day in groupby(_rows_of(blocks), key=lambda block: (block.name, block.day)):
            with TemporaryFile() as content:
                _write_parquet(content, schemas[name], (block.outputs for block in of_day))
                files.write(place(name, day), iter(partial(content.read, _CHUNK_BYTES), b""))
            yield place(name, day)


class _Block(NamedTuple):
    name: str
    day: str
    outputs: pa.Buffer


class _Packing:
    """The packing of the outputs for one category or sink, in one task."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.schema = schema
        self._name = name
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._blocks = 0

    def add(self, outputs: pa.RecordBatch) -> Batches:
        """Add outputs, and yield the blocks of enough of them."""
        if outputs.num_rows:
            self._waiting.append(outputs)
            self._waiting_bytes += outputs.nbytes
        if self._waiting_bytes >= PACKED_BYTES:
            yield from self.rest()

    def rest(self) -> Batches:
        """Yield the blocks of the outputs that wait."""
        if not self._waiting:
            return
        days = list(by_day(joined(self._waiting), "_event_time"))
        self._waiting, self._waiting_bytes = [], 0
        task, first = TaskContext.get(), self._blocks
        self._blocks += len(days)
        columns: list[Sequence[Any]] = [
            [self._name] * len(days),
            [day for day, _ in days],
            [task.partitionId() if task else 0] * len(days),
            range(first, self._blocks),
            [to_block(outputs) for _, outputs in days],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _BLOCKS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_BLOCKS)


def _own(rows: pa.RecordBatch, number: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return the outputs for one category or sink among rows."""
    slot = rows.column(slot_of(number))
    own = rows if not slot.null_count else rows.filter(pc.is_valid(slot))
    struct = cast("pa.StructArray", own.column(slot_of(number)))
    marks = [own.column(name) for name in OUTPUT_MARKS.names]
    columns = [*struct.flatten(), *marks]
    arrays = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _rows_of(blocks: Iterable[pa.RecordBatch]) -> Iterator[_Block]:
    for batch in blocks:
        names, days = map(str, batch.column("name").to_pylist()), map(str, batch.column("day").to_pylist())
        yield from map(_Block, names, days, (outputs.as_buffer() for outputs in batch.column("outputs")))


def _write_parquet(content: IO[bytes], schema: pa.Schema, blocks: Iterable[pa.Buffer]) -> None:
    """Write blocks to a file, and go to its beginning."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    with pq.ParquetWriter(content, schema, compression="zstd") as writer:
        for block in blocks:
            waiting.append(from_block(block, schema))
            waiting_bytes += waiting[-1].nbytes
            if waiting_bytes >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting, waiting_bytes = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    content.seek(0, os.SEEK_SET)


def _path_of(folder: str, file: str, name: str, day: str) -> str:
    return f"{folder}/{day_folder(name, day)}/{file}"


def _packed(form: OutputBlocks, step: Transform, rows: Iterable[pa.RecordBatch]) -> Batches:
    return form.blocks_of(step(rows))


def _written(form: OutputBlocks, files: FileStore, place: Place, blocks: Iterable[pa.RecordBatch]) -> Batches:
    return_freed_memory()
    with marked_errors(form.processor):
        for path in form.files_of(blocks, files, place):
            yield pa.RecordBatch.from_arrays([pa.array([path], pa.string())], schema=_FILES)
