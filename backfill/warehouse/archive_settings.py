"""Settings of a category's archive, chosen once: the time that assigns days, the segment length, and the columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from ...processors import counted
from ..errors import ArchiveRefused
from .layout import ArchivedFile, DayOf, Note
from .notes import ARCHIVE, ArchiveSettings, read_note, write_note
from .schema_evolution import ColumnTypeMismatch, is_widened, merged, table_of, widen
from .warehouse import WRITERS, Warehouse

_LOG = logging.getLogger("penstock.archiver")


def settings_of(warehouse: Warehouse, category: str) -> ArchiveSettings | None:
    """Return the settings of a category's archive; None if none are recorded."""
    return read_note(warehouse, Note(category, ARCHIVE), ArchiveSettings)


@dataclass(frozen=True)
class ResolvedSettings:
    """The settings for archiving a category from now on.

    Args:
        settings: the settings to record.
        is_recorded: whether they are recorded already.
        widens: whether files have narrower columns.
    """

    settings: ArchiveSettings
    is_recorded: bool
    widens: bool

    def record(self, warehouse: Warehouse, category: str) -> None:
        """Record the settings."""
        write_note(warehouse, Note(category, ARCHIVE), self.settings)


def resolve_settings(
    warehouse: Warehouse,
    category: str,
    files: Sequence[ArchivedFile],
    *,
    by: DayOf,
    segment_events: int,
    schema: pa.Schema,
    topic_id: str = "",
) -> ResolvedSettings:
    """Determine the settings for archiving a category; nothing is changed.

    Args:
        warehouse: the warehouse.
        category: its name.
        files: its files.
        by: the requested time that assigns events to days.
        segment_events: the number of offsets of a segment.
        schema: the columns of its record type.
        topic_id: the id of its topic.

    Raises:
        ArchiveRefused: other settings, incompatible columns or another topic are recorded.
    """
    settings = settings_of(warehouse, category) or _inferred_settings(warehouse, category, files, segment_events)
    if settings is None:
        return ResolvedSettings(
            ArchiveSettings.of(by, segment_events, schema, topic_id), is_recorded=False, widens=False
        )
    expect_same_topic(category, settings.topic_id, topic_id)
    _expect_same_settings(category, settings, by, segment_events)
    try:
        wider = merged(settings.arrow, schema)
    except ColumnTypeMismatch as mismatch:
        raise _incompatible_columns(warehouse, category, files, mismatch) from mismatch
    wanted = ArchiveSettings.of(by, segment_events, wider, topic_id or settings.topic_id)
    return ResolvedSettings(wanted, wanted == settings, is_widened(settings.arrow, wider))


def expect_same_topic(category: str, archived: str, now: str) -> None:
    """Refuse to archive another topic of the same name, whose offsets belong to other events.

    Args:
        category: its name.
        archived: the id of the archived topic; empty if unknown.
        now: the id of the topic on the bus; empty without one.

    Raises:
        ArchiveRefused: the ids differ.
    """
    if archived and now and archived != now:
        raise ArchiveRefused(
            f"Category {category} was deleted and created again since it was archived (topic id {archived}, now {now}), or this is another "
            "cluster. Its offsets now belong to other events, so nothing more was archived, and existing files are unchanged. To start a new "
            f"archive, move the folder category={category} away or choose another warehouse. Or connect to the archived cluster (`--kafka`)."
        )


def _inferred_settings(
    warehouse: Warehouse, category: str, files: Iterable[ArchivedFile], segment_events: int
) -> ArchiveSettings | None:
    """Infer the settings of an archive without recorded ones: by event time, with the columns of its files."""
    schema: pa.Schema | None = None
    for file in files:
        stored = table_of(warehouse.read(file)).schema.remove_metadata()
        try:
            schema = stored if schema is None else merged(schema, stored)
        except ColumnTypeMismatch as mismatch:
            raise _incompatible_columns(warehouse, category, [file], mismatch) from mismatch
    return None if schema is None else ArchiveSettings.of(DayOf.EVENT_TIME, segment_events, schema)


def _expect_same_settings(category: str, settings: ArchiveSettings, by: DayOf, segment_events: int) -> None:
    if settings.by is not by:
        raise ArchiveRefused(
            f"{category} is archived by {settings.by.value}, not by {by.value}. Nothing was changed. Continue with `--by {settings.by.value}`. To "
            f"change it, move the folder category={category} away, and reset the group archiver.{category} to the first event."
        )
    if settings.segment_events != segment_events:
        raise ArchiveRefused(
            f"{category} is archived in segments of {counted(settings.segment_events, 'offset')}, not of {segment_events:,}: both kinds of files would "
            f"contain the same events. Nothing was changed. Continue with {settings.segment_events:,}."
        )


def _incompatible_columns(
    warehouse: Warehouse, category: str, files: Iterable[ArchivedFile], mismatch: ColumnTypeMismatch
) -> ArchiveRefused:
    top = mismatch.column.partition(".")[0].partition("[")[0]
    with_column = (file.path for file in files if top in table_of(warehouse.read(file)).column_names)
    path = next(with_column, f"category={category}")
    return ArchiveRefused(
        f"{path}: column {mismatch.column} has type {mismatch.stored}, but the record has {mismatch.wanted}. Fields may be added, removed, made "
        "optional, or changed from int to float. Nothing was changed. Rename the field, or archive the new record type as another category."
    )


def widen_files(
    warehouse: Warehouse,
    category: str,
    files: Sequence[ArchivedFile],
    settings: ArchiveSettings,
    epochs: Mapping[int, int],
) -> None:
    """Rewrite the files of a category with narrower columns.

    Args:
        warehouse: the warehouse.
        category: its name.
        files: its files.
        settings: the settings with the wider columns.
        epochs: the owner of each bucket, which is this archiver.
    """
    _LOG.warning("%s: columns became wider; files with narrower ones are rewritten", category)
    with ThreadPoolExecutor(WRITERS) as pool:
        written = sum(pool.map(lambda file: widen(warehouse, file, settings.arrow, epochs[file.bucket]), files))
    _LOG.warning("%s: rewrote %s", category, counted(written, "file"))
