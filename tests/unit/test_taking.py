"""Inputs from elsewhere than the warehouse: which, from where, and what cannot be taken so."""

from __future__ import annotations

import pytest
import typer
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.errors import BackfillRefused
from penstock.backfill.sources.coverage import WantedDays
from penstock.backfill.sources.external_inputs import said_of, taken
from penstock.backfill.warehouse.layout import Days, OtherFile
from penstock.ops.cli.backfilling import parse_input


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


def test_a_category_is_taken_from_its_own_place_before_that_of_all(output: MemoryWarehouse) -> None:
    """And what is not named comes from the warehouse."""
    both = MemoryWarehouse()
    for name in ("readings", "others"):
        both.write(OtherFile(name, "1970-01-01", "part-0.parquet"), b"PAR1")

    assert taken({"readings": output, "": both}, [readings, others]) == {"readings": output, "others": both}
    assert taken({"readings": output}, [readings, others]) == {"readings": output}


def test_what_is_not_there_or_not_read_is_refused(output: MemoryWarehouse) -> None:
    """With where it was looked for, and what is read."""
    with pytest.raises(BackfillRefused, match="memory: has nothing of others"):
        taken({"": output}, [readings, others])
    with pytest.raises(BackfillRefused, match=r"named for raedings, which no processor .* It reads others, readings"):
        taken({"raedings": output}, [readings, others])


def test_an_archive_is_read_as_one(output: MemoryWarehouse) -> None:
    """Its events have an order, which would be lost."""
    output.stored["category=readings/_archive.json"] = (
        b'{"by":"event-time","segment_events":8,"columns":{},"schema":""}'
    )
    with pytest.raises(BackfillRefused, match=r"category=readings is an archive.*Name it with --warehouse"):
        taken({"readings": output}, [readings])


def test_where_it_is_from_is_said_with_the_days_that_it_has_not(output: MemoryWarehouse) -> None:
    """They are no gaps: nothing was written on them."""
    days = Days.of("1970-01-01", "1970-01-04")

    assert said_of({"readings": output}, [WantedDays(readings, days, days), WantedDays(others, days, days)]) == {
        "readings": "readings is taken from memory:; readings has nothing of 1970-01-02, and is not archived for 1970-01-04"
    }


def test_an_input_is_named_with_or_without_a_category() -> None:
    """A location may hold an equals sign itself."""
    assert parse_input("readings=hdfs://host:1/a=b") == ("readings", "hdfs://host:1/a=b")
    assert parse_input("out/a=b") == ("", "out/a=b")
    assert parse_input("out") == ("", "out")
    with pytest.raises(typer.BadParameter, match="names no input"):
        parse_input("readings=")
