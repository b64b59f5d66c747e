"""Queries of remote state return the written results and do not take ownership."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.databases import Postgres
from support.stores import (
    APPENDING,
    OVERWRITING,
    Log,
    StateOpener,
    aggregator,
    fold,
    hits,
    identity_of,
    lifted,
    new_database,
)

import penstock as ps
from penstock.processors.declare import plan_of
from penstock.processors.keyed_state import encode_window_key
from penstock.processors.shard import StatePosition
from penstock.processors.time import Window
from penstock.state.errors import ForeignState
from penstock.state.remote import read_results, remote_states

HOUR = 3_600_000


def test_results_can_be_queried(url: str, opened: StateOpener) -> None:
    """Queries by key and window, by key, and of all keys leave the owner unchanged."""
    monoid = ps.monoids.Mean()
    processor = aggregator(monoid, ps.windows.Tumbling(timedelta(hours=1)))
    folder = opened.folder(remote_states(url, processor, write_mode=APPENDING))
    owners = [folder.open(identity_of(processor, bucket)) for bucket in range(hits.buckets)]
    with read_results(url, processor) as results:
        bucket = {key: plan_of(processor).inputs[0].bucket_of(key) for key in ("a", "*b?", "c")}
        for key, hour in (("a", 0), ("a", 2), ("*b?", 0), ("c", 0), ("c", -1)):
            for seen in (1, 2):
                slot = encode_window_key(key, hour * HOUR)
                owners[bucket[key]].save({slot: monoid.encode(monoid.lift(hour + seen))})

        assert results.result("a", Window(2 * HOUR, 3 * HOUR)) == 3.5
        assert results.result("a", Window(HOUR, 2 * HOUR)) is None
        assert list(results.results("c")) == [(Window(-HOUR, 0), 0.5), (Window(0, HOUR), 1.5)]
        assert list(results.results("*b?")) == [(Window(0, HOUR), 1.5)]
        assert list(results.results("unknown")) == []
        everything = sorted(results.scan(100))
        assert [(key, window.start // HOUR, value) for key, window, value in everything] == [
            ("*b?", 0, 1.5),
            ("a", 0, 1.5),
            ("a", 2, 3.5),
            ("c", -1, 0.5),
            ("c", 0, 1.5),
        ]
        assert set(results.scan(2)) < set(everything)
        assert len(list(results.scan(2))) == 2
        assert list(results.scan(0)) == []
    for owner in owners:
        owner.save_position(StatePosition({"hits": 1}))


def test_a_query_returns_every_kind_of_written_result(url: str, opened: StateOpener) -> None:
    """It returns whole values, numbers, ranks and partials. Results without windows need no window."""
    monoids: list[ps.monoids.Monoid[Any]] = [ps.monoids.Count(), ps.monoids.Max(), Log()]
    for monoid in monoids:
        processor = aggregator(monoid)
        with read_results(url, processor) as results:
            bucket = plan_of(processor).inputs[0].bucket_of("a")
            for writing in (OVERWRITING, APPENDING):
                states = opened.folder(remote_states(url, processor, write_mode=writing))
                states.open(identity_of(processor, bucket)).save(lifted(monoid, a=3))

            assert results.result("a") == monoid.value(fold(monoid, [3, 3]))
            assert [value for _, value in results.results("a")] == [results.result("a")]


def test_a_query_combines_the_buckets_of_an_unchecked_key(url: str, opened: StateOpener) -> None:
    """Events of one key may be in any bucket if the processor does not check keys; the result includes all of them."""
    monoid = ps.monoids.Mean()
    processor = aggregator(monoid, ps.windows.Tumbling(timedelta(hours=1)))
    processor.reads, processor.key_check = replace(hits, partitioner=None), False
    folder = opened.folder(remote_states(url, processor, write_mode=APPENDING))
    for bucket in (0, 2):
        for hour in (0, bucket):
            slot = encode_window_key("a", hour * HOUR)
            folder.open(identity_of(processor, bucket)).save({slot: monoid.encode(monoid.lift(hour + bucket))})
    with read_results(url, processor) as results:
        assert results.result("a", Window(0, HOUR)) == pytest.approx(2 / 3)
        assert results.result("a", Window(HOUR, 2 * HOUR)) is None
        assert [(window.start // HOUR, value) for window, value in results.results("a")] == [
            (0, pytest.approx(2 / 3)),
            (2, 4.0),
        ]


def test_a_query_of_an_unknown_processor_returns_nothing(url: str, postgres: Postgres) -> None:
    """The query creates no tables."""
    for address in (url, new_database(postgres)):
        with read_results(address, aggregator(ps.monoids.Count())) as results:
            assert results.result("a") is None
            assert list(results.scan(9)) == []


def test_results_of_a_different_monoid_are_refused(url: str, opened: StateOpener) -> None:
    """A reader whose monoid differs from the writer's fails with an error."""
    processor = aggregator(ps.monoids.Count())
    states = opened.folder(remote_states(url, processor))
    for bucket in range(hits.buckets):
        states.open(identity_of(processor, bucket))
    processor.monoid = ps.monoids.Sum()

    with read_results(url, processor) as results, pytest.raises(ForeignState, match="Count"):
        results.result("a")
