"""Settings of a category's archive, chosen once: the time that assigns days, the segment length, and the columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from ..errors import ArchiveRefused
from .layout import By, Note, StoredFile
from .notes import ARCHIVE, ArchiveSettings, read_note, write_note
from .schema_evolution import OtherType, is_widened, merged, table_of, widen
from .warehouse import WRITERS, Warehouse

_LOG = logging.getLogger("penstock.archiver")


def settings_of(warehouse: Warehouse, category: str) -> ArchiveSettings | None:
    """Return the settings of a category's archive; None if none are recorded."""
    return read_note(warehouse, Note(category, ARCHIVE), ArchiveSettings)


@dataclass(frozen=True)
class SettledSettings:
    """The settings for archiving a category from now on.

    Args:
        terms: the settings to record.
        is_noted: whether they are recorded already.
        widens: whether files have narrower columns.
    """

    terms: ArchiveSettings
    is_noted: bool
    widens: bool

    def note(self, warehouse: Warehouse, category: str) -> None:
        """Record the settings."""
        write_note(warehouse, Note(category, ARCHIVE), self.terms)


def settle(
    warehouse: Warehouse,
    category: str,
    files: Sequence[StoredFile],
    *,
    by: By,
    segment_events: int,
    schema: pa.Schema,
    topic_id: str = "",
) -> SettledSettings:
    """Determine the settings for archiving a category; nothing is changed.

    Args:
        warehouse: the warehouse.
        category: its name.
        files: its files.
        by: the time that shall assign events to days.
        segment_events: the number of offsets of a segment.
        schema: the columns of its record type.
        topic_id: the id of its topic.

    Raises:
        ArchiveRefused: other settings, incompatible columns or another topic are recorded.
    """
    terms = settings_of(warehouse, category) or _before_notes(warehouse, category, files, segment_events)
    if terms is None:
        return SettledSettings(ArchiveSettings.of(by, segment_events, schema, topic_id), is_noted=False, widens=False)
    expect_same_topic(category, terms.topic_id, topic_id)
    _refuse_other_way(category, terms, by, segment_events)
    try:
        wider = merged(terms.arrow, schema)
    except OtherType as other:
        raise _refused(warehouse, category, files, other) from other
    wanted = ArchiveSettings.of(by, segment_events, wider, topic_id or terms.topic_id)
    return SettledSettings(wanted, wanted == terms, is_widened(terms.arrow, wider))


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


def _before_notes(
    warehouse: Warehouse, category: str, files: Iterable[StoredFile], segment_events: int
) -> ArchiveSettings | None:
    """Infer the settings of an archive without recorded ones: by event time, with the columns of its files."""
    schema: pa.Schema | None = None
    for file in files:
        own = table_of(warehouse.read(file)).schema.remove_metadata()
        try:
            schema = own if schema is None else merged(schema, own)
        except OtherType as other:
            raise _refused(warehouse, category, [file], other) from other
    return None if schema is None else ArchiveSettings.of(By.EVENT_TIME, segment_events, schema)


def _refuse_other_way(category: str, terms: ArchiveSettings, by: By, segment_events: int) -> None:
    if terms.by is not by:
        raise ArchiveRefused(
            f"{category} is archived by {terms.by.value}, not by {by.value}. Nothing was changed. Continue with `--by {terms.by.value}`. To "
            f"change it, move the folder category={category} away, and reset the group archiver.{category} to the first event."
        )
    if terms.segment_events != segment_events:
        raise ArchiveRefused(
            f"{category} is archived in segments of {terms.segment_events:,} offsets, not of {segment_events:,}: both kinds of files would "
            f"contain the same events. Nothing was changed. Continue with {terms.segment_events:,}."
        )


def _refused(warehouse: Warehouse, category: str, files: Iterable[StoredFile], other: OtherType) -> ArchiveRefused:
    top = other.column.partition(".")[0].partition("[")[0]
    holds = (file.path for file in files if top in table_of(warehouse.read(file)).column_names)
    where = next(holds, f"category={category}")
    return ArchiveRefused(
        f"{where}: column {other.column} has type {other.stored}, but the record has {other.wanted}. Fields may be added, removed, made "
        "optional, or changed from int to float. Nothing was changed. Rename the field, or archive the new record type as another category."
    )


def widen_files(
    warehouse: Warehouse, category: str, files: Sequence[StoredFile], terms: ArchiveSettings, epochs: Mapping[int, int]
) -> None:
    """Rewrite the files of a category with narrower columns.

    Args:
        warehouse: the warehouse.
        category: its name.
        files: its files.
        terms: the settings with the wider columns.
        epochs: the owner of each bucket, which is this archiver.
    """
    _LOG.warning("%s: columns became wider; files with narrower ones are rewritten", category)
    with ThreadPoolExecutor(WRITERS) as pool:
        written = sum(pool.map(lambda file: widen(warehouse, file, terms.arrow, epochs[file.bucket]), files))
    _LOG.warning("%s: %d files were rewritten", category, written)
