"""Inputs from outside the warehouse."""

from __future__ import annotations

import pytest
import typer
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.errors import BackfillRefused
from penstock.backfill.sources.coverage import WantedDays
from penstock.backfill.sources.external_inputs import external_input_notes, external_inputs
from penstock.backfill.warehouse.layout import Days, OtherFile
from penstock.ops.cli.backfill import parse_input


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime


readings, others = (ps.Category(name, Reading, key="sensor", event_time="at") for name in ("readings", "others"))


@pytest.fixture
def output() -> MemoryWarehouse:
    """The output of an earlier run, of two days."""
    output = MemoryWarehouse()
    for day in ("1970-01-01", "1970-01-03"):
        output.write(OtherFile("readings", day, "part-0.parquet"), b"PAR1")
    return output


def test_a_categorys_own_location_takes_precedence(output: MemoryWarehouse) -> None:
    """Categories without a location come from the warehouse."""
    both = MemoryWarehouse()
    for name in ("readings", "others"):
        both.write(OtherFile(name, "1970-01-01", "part-0.parquet"), b"PAR1")

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
