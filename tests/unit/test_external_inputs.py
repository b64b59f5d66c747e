"""Inputs from outside the warehouse."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.sources import WantedDays, external_input_notes, external_inputs
from penstock.backfill.warehouse import Days
from penstock.backfill.warehouse.layout import OtherFile
from penstock.ops.batch.commands.backfill import parse_input

pd: Any = import_module("pandas")  # without types


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime


readings, others = (ps.Category(name, Reading, key="sensor", event_time="at") for name in ("readings", "others"))


def parquet(**columns: list[object]) -> bytes:
    """Return a file of another tool with these columns beside the record's."""
    content = BytesIO()
    pq.write_table(pa.table({"sensor": ["a"], "at": [1], **columns}), content)
    return content.getvalue()


OUTPUT = parquet(_key=["a"], _event_time=[1])


@pytest.fixture
def output() -> MemoryWarehouse:
    """The output of an earlier run, of two days."""
    output = MemoryWarehouse()
    for day in ("1970-01-01", "1970-01-03"):
        output.write(OtherFile("readings", day, "part-0.parquet"), OUTPUT)
    return output


def test_a_categorys_own_location_takes_precedence(output: MemoryWarehouse) -> None:
    """Categories without a location come from the warehouse."""
    both = MemoryWarehouse()
    for name in ("readings", "others"):
        both.write(OtherFile(name, "1970-01-01", "part-0.parquet"), OUTPUT)

    assert external_inputs({"readings": output, "": both}, [readings, others]) == {"readings": output, "others": both}
    assert external_inputs({"readings": output}, [readings, others]) == {"readings": output}


def test_missing_and_unused_inputs_are_refused(output: MemoryWarehouse) -> None:
    """The error lists the locations and the inputs."""
    with pytest.raises(BackfillRefused, match="memory: has no others"):
        external_inputs({"": output}, [readings, others])
    with pytest.raises(
        BackfillRefused, match=r"--input names raedings, which this run does not read .* It reads others, readings"
    ):
        external_inputs({"raedings": output}, [readings, others])


def test_an_archive_is_refused_as_an_external_input(output: MemoryWarehouse) -> None:
    """The order of its events would be lost."""
    output.stored["category=readings/_archive.json"] = (
        b'{"by":"event-time","segment_events":8,"columns":{},"schema":""}'
    )
    with pytest.raises(BackfillRefused, match=r"category=readings is an archive.*Pass it as --warehouse"):
        external_inputs({"readings": output}, [readings])


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        (parquet(), "no column _key and no column _event_time"),
        (parquet(_key=["a"]), "no column _event_time"),
        (parquet(_event_time=[1]), "no column _key"),
    ],
)
def test_files_without_keys_and_event_times_are_refused(output: MemoryWarehouse, content: bytes, missing: str) -> None:
    """The run would otherwise skip their events silently. One such file among others is found, too."""
    output.write(OtherFile("readings", "1970-01-02", "part-1.parquet"), content)
    with pytest.raises(BackfillRefused, match=rf"ds=1970-01-02/part-1\.parquet has {missing}\. Nothing was started"):
        external_inputs({"readings": output}, [readings])


def test_the_advice_for_pandas_gives_the_columns() -> None:
    """The event time is in milliseconds, whatever the resolution of the column."""
    df = pd.DataFrame({"id": [7], "at": pd.to_datetime(["2024-02-29T12:00:00.123456789Z"])})
    df["_key"] = df["id"].astype(str)
    df["_event_time"] = df["at"].astype("datetime64[ms, UTC]").astype("int64")

    assert df[["_key", "_event_time"]].to_numpy().tolist() == [["7", 1_709_208_000_123]]


def test_notes_name_the_location_and_missing_days(output: MemoryWarehouse) -> None:
    """Missing days are not gaps: they have no records."""
    days = Days.of("1970-01-01", "1970-01-04")

    assert external_input_notes(
        {"readings": output}, [WantedDays(readings, days, days), WantedDays(others, days, days)]
    ) == {
        "readings": "readings is read from memory:; readings has no files of 1970-01-02, and is not archived for 1970-01-04"
    }


def test_an_input_is_named_with_or_without_a_category() -> None:
    """A location may contain an equals sign."""
    assert parse_input("readings=hdfs://host:1/a=b") == ("readings", "hdfs://host:1/a=b")
    assert parse_input("out/a=b") == ("", "out/a=b")
    assert parse_input("out") == ("", "out")
    with pytest.raises(typer.BadParameter, match="is invalid"):
        parse_input("readings=")
