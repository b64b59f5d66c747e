"""How a category is archived is chosen once: by which time its days are, how long its segments, and what its columns hold."""

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
    """Return how a category is archived; None where that was never noted."""
    return read_note(warehouse, Note(category, ARCHIVE), ArchiveSettings)


@dataclass(frozen=True)
class SettledSettings:
    """How a category is archived from now on.

    Args:
        terms: what is to be noted of it.
        is_noted: whether that is what is noted.
        widens: whether files have columns that are narrower.
    """

    terms: ArchiveSettings
    is_noted: bool
    widens: bool

    def note(self, warehouse: Warehouse, category: str) -> None:
        """Note it."""
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
    """Find out how to go on archiving a category; nothing is changed.

    Args:
        warehouse: where it is.
        category: its name.
        files: its files.
        by: by which time its days are to be.
        segment_events: how long its segments are to be.
        schema: the columns of its record type.
        topic_id: the bus's id of its topic.

    Raises:
        ArchiveRefused: it is archived in another way, or its columns do not fit, or it is another topic.
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
    """Refuse to archive another topic under the same name: its offsets are those of files with other events.

    Args:
        category: its name.
        archived: the id of the topic that is archived; empty where that is not known.
        now: the id of the topic that is on the bus; empty where there is none.

    Raises:
        ArchiveRefused: it is another.
    """
    if archived and now and archived != now:
        raise ArchiveRefused(
            f"Category {category} was deleted and created again since it was archived (topic id {archived}, now {now}), or this is another "
            "cluster. Its offsets stand for other events now: to go on would write them over files that are there, or between them. Nothing "
            f"more was archived, and the files are as they were. Move the folder category={category} away to keep it and begin again, or name "
            "another warehouse; or name the cluster that is archived there (`--kafka`)."
        )


def _before_notes(
    warehouse: Warehouse, category: str, files: Iterable[StoredFile], segment_events: int
) -> ArchiveSettings | None:
    """Return the way of a category that was archived before ways were noted: by event time, with what its files hold."""
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
            f"{category} is archived by {terms.by.value}, and not by {by.value}: its days would mean two things. Nothing was changed. Go on "
            f"with `--by {terms.by.value}`; to change it, move the folder category={category} away, and set the group archiver.{category} back "
            "to the first event."
        )
    if terms.segment_events != segment_events:
        raise ArchiveRefused(
            f"{category} is archived in segments of {terms.segment_events:,} offsets, and not of {segment_events:,}: files of both would hold "
            f"the same events. Nothing was changed. Go on with {terms.segment_events:,}."
        )


def _refused(warehouse: Warehouse, category: str, files: Iterable[StoredFile], other: OtherType) -> ArchiveRefused:
    top = other.column.partition(".")[0].partition("[")[0]
    holds = (file.path for file in files if top in table_of(warehouse.read(file)).column_names)
    where = next(holds, f"category={category}")
    return ArchiveRefused(
        f"{where}: column {other.column} holds {other.stored}, and the record has {other.wanted} there. Fields may be added, left out, become "
        "optional, and go from int to float; this is none of it. Nothing was changed. Give the field another name, or archive the new type "
        "of record as another category."
    )


def widen_files(
    warehouse: Warehouse, category: str, files: Sequence[StoredFile], terms: ArchiveSettings, epochs: Mapping[int, int]
) -> None:
    """Write the files of a category anew that have narrower columns.

    Args:
        warehouse: where they are.
        category: its name.
        files: which.
        terms: with the wider columns.
        epochs: the owner of each bucket, which does this.
    """
    _LOG.warning("%s: columns were widened; files with the narrower ones are written anew", category)
    with ThreadPoolExecutor(WRITERS) as pool:
        written = sum(pool.map(lambda file: widen(warehouse, file, terms.arrow, epochs[file.bucket]), files))
    _LOG.warning("%s: %d files were written anew", category, written)
