"""Options of a replay, and the errors for invalid options."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import typer
from support import shop

import penstock as ps
from penstock.ops.look_back import Empty, FromBackup, PastRange
from penstock.ops.look_back.commands.replay_options import (
    EventOptions,
    parse_initial_state,
    parse_replay_span,
    parse_speed,
    require_one_bucket,
    select_buckets,
    span_options,
)
from penstock.ops.look_back.replay.errors import ReplayRefused
from penstock.ops.look_back.replay.initial_state import AtStart
from penstock.ops.shell import BackupLocation
from penstock.processors.declare import bucket_of, plan_of
from penstock.transport.memory import MemoryBus

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("2h ago", "1h ago", PastRange(NOW - 2 * HOUR, NOW - HOUR)),
        ("2h ago", None, PastRange(NOW - 2 * HOUR)),
        ("2h ago", "now", PastRange(NOW - 2 * HOUR, NOW)),
        ("100", "200", PastRange(100, 200)),
        ("100", None, PastRange(100)),
    ],
)
def test_a_range_is_parsed_from_times_or_offsets(since: str, until: str | None, expected: PastRange) -> None:
    """Its options for another process are exact to the millisecond."""
    span = parse_replay_span(since, until, NOW)
    options = span_options(span)

    assert span == expected
    assert parse_replay_span(options[1], options[3] if until else None, NOW + HOUR) == expected


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        ("1h ago", "2h ago", "contains no events"),
        ("2027-01-01", None, "contains no events"),
        ("200", "100", "contains no events"),
        ("2h ago", "100", "both be times, or both be offsets"),
        ("100", "1h ago", "both be times, or both be offsets"),
        ("yesterday", None, "neither an offset"),
    ],
)
def test_an_invalid_range_is_refused(since: str, until: str | None, message: str) -> None:
    """The error is raised before the replay reads any event."""
    with pytest.raises(typer.BadParameter, match=message):
        parse_replay_span(since, until, NOW)


def test_initial_states_are_parsed() -> None:
    """A backup needs a backup store and contains one bucket."""
    assert parse_initial_state("empty", BackupLocation()) == Empty()
    assert parse_initial_state("at-start", BackupLocation()) == AtStart(None)
    backup = parse_initial_state("backup:00000001-00000002", BackupLocation("backups"))
    assert isinstance(backup, FromBackup)
    require_one_bucket(backup, [1])
    with pytest.raises(typer.BadParameter, match="contains one bucket"):
        require_one_bucket(backup, [1, 2])
    with pytest.raises(ReplayRefused, match="needs a backup store, and none is named"):
        parse_initial_state("backup:00000001-00000002", BackupLocation())
    with pytest.raises(typer.BadParameter, match="at-start, empty, or backup:ID"):
        parse_initial_state("full", BackupLocation())


def test_a_key_selects_its_bucket() -> None:
    """Another bucket beside the key is refused."""
    home = bucket_of(b"c7", 3)

    assert select_buckets(shop.Numbered, None, None) == [0, 1, 2]
    assert select_buckets(shop.Numbered, None, [2, 0, 2]) == [0, 2]
    assert select_buckets(shop.Numbered, "c7", None) == [home]
    with pytest.raises(typer.BadParameter, match=f"are in bucket {home}"):
        select_buckets(shop.Numbered, "c7", [(home + 1) % 3])
    with pytest.raises(typer.BadParameter, match="has no bucket 3"):
        select_buckets(shop.Numbered, None, [3])


def test_a_key_is_in_the_bucket_of_the_declared_partitioner() -> None:
    """With an unknown partitioner, its events may be in all buckets."""

    def reading(partitioner: ps.Partitioner | None) -> type[ps.Processor]:
        declared = replace(plan_of(shop.Numbered).inputs[0], partitioner=partitioner)
        return type("Numbered", (shop.Numbered,), {"reads": declared})

    for partitioner in ps.Partitioner:
        assert select_buckets(reading(partitioner), "c7", None) == [bucket_of(b"c7", 3, partitioner)]
    assert select_buckets(reading(None), "c7", None) == [0, 1, 2]
    assert select_buckets(reading(None), "c7", [1]) == [1]


def test_invalid_speeds_and_sources_are_refused() -> None:
    """The error names the accepted values."""
    assert (parse_speed("1x"), parse_speed("0.5 x")) == (1.0, 0.5)
    for wrong in ("fast", "0x", "-1x"):
        with pytest.raises(typer.BadParameter, match="Write 1x"):
            parse_speed(wrong)
    with pytest.raises(typer.BadParameter, match="Use bus or warehouse"):
        EventOptions("0", source="cellar").open(shop.Numbered(), MemoryBus(), "", None)
