"""Checks of guarantees, computed from files and categories without Penstock's code."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

import penstock as ps

from . import plain
from .kinds import HOUR_MS, Event
from .subjects import EXACT, LEAST, MOST

Slot = tuple[str, int]
"""A key and an hour."""


def send(kafka: str, category: str, events: Sequence[Event]) -> None:
    """Write events with an idempotent plain producer, which repeats no event."""
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random", "enable.idempotence": True})
    for event in events:
        producer.produce(category, msgspec.json.encode(event), event.key.encode())
    producer.flush()


def newest_beside(kafka: str, *categories: str) -> dict[str, int]:
    """Return the newest event time of each key's bucket, the minimum of several categories."""
    newest: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(categories, 0))
    keys: dict[str, int] = {}
    for category in categories:
        for bucket, _, value in plain.messages(kafka, category):
            event = json.loads(value or b"")
            newest[bucket][category] = max(newest[bucket][category], event["at"])
            keys[event["key"]] = bucket
    return {key: min(newest[bucket].values()) for key, bucket in keys.items()}


def expect_each_event(promise: ps.Semantics, outputs: Sequence[dict[str, Any]], events: Sequence[Event]) -> None:
    """Compare outputs with the events of the same numbers."""
    found = Counter(output["number"] for output in outputs)
    truth = {event.number for event in events}
    assert set(found) <= truth
    if promise is not MOST:
        assert set(found) == truth, f"missing: {sorted(truth - set(found))[:20]}"
    if promise is not LEAST:
        again = sorted(number for number, times in found.items() if times > 1)
        assert not again, f"came again: {again[:20]}"


def expect_updates(
    outputs: Sequence[dict[str, Any]], events: Sequence[Event], state: ps.Semantics, output: ps.Semantics
) -> None:
    """Compare the updates of each key and hour with the events: counts grow, and the last equals the state."""
    updates: dict[Slot, list[dict[str, Any]]] = defaultdict(list)
    for update in outputs:
        updates[update["key"], update["hour"]].append(update)
    truth = by_hour(events)
    assert set(updates) <= set(truth)
    for slot, found in updates.items():
        counts = [update["count"] for update in found]
        if output is not LEAST and state is EXACT:
            assert counts == sorted(set(counts)), f"an update of {slot} came again: {counts}"
        elif output is not LEAST:
            # A lost state restarts at zero, but never counts an event again.
            assert len({(update["count"], update["total"]) for update in found}) == len(found), slot
        last = found[-1]
        if state is EXACT and output is not MOST:
            assert (last["count"], last["total"], last["smallest"], last["largest"]) == truth[slot], slot
    if output is not MOST:
        assert set(updates) == set(truth)


def expect_complete(
    outputs: Sequence[dict[str, Any]],
    truth: dict[Slot, tuple[int, int, int, int]],
    subject_state: ps.Semantics,
    output: ps.Semantics,
) -> None:
    """Compare windows written at the watermark with the complete windows."""
    found = Counter((update["key"], update["hour"]) for update in outputs)
    assert set(found) <= set(truth)
    if output is not MOST:
        assert set(found) == set(truth), f"missing: {sorted(set(truth) - set(found))}"
    if output is not LEAST:
        assert set(found.values()) <= {1}, f"came again: {found}"
    for update in outputs:
        values = tuple(update[what] for what in ("count", "total", "smallest", "largest") if what in update)
        slot = update["key"], update["hour"]
        if subject_state is EXACT:
            assert values == truth[slot][: len(values)], slot
        else:
            expect_counts(subject_state, {slot: values}, {slot: truth[slot]})


def expect_chains(outputs: Sequence[dict[str, Any]], state: dict[bytes, Any]) -> None:
    """Compare consecutive links of each key: each starts at the end of the previous one, and the state equals the last."""
    chains: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for link in outputs:
        chains[link["key"]].append(link)
    for key, links in chains.items():
        links.sort(key=lambda link: int(link["count"]))
        assert [link["count"] for link in links] == list(range(1, len(links) + 1)), key
        assert [link["before"] for link in links] == [0, *(link["after"] for link in links[:-1])], key
        assert state[key.encode()] == {"count": len(links), "link": links[-1]["after"]}, key


def by_hour(events: Sequence[Event]) -> dict[Slot, tuple[int, int, int, int]]:
    """Return count, sum, minimum and maximum of each key and hour."""
    numbers: dict[Slot, list[int]] = defaultdict(list)
    for event in events:
        numbers[event.key, event.at // HOUR_MS * HOUR_MS].append(event.number)
    return {slot: summary(found) for slot, found in numbers.items()}


def summary(numbers: Sequence[int]) -> tuple[int, int, int, int]:
    """Return count, sum, minimum and maximum."""
    return len(numbers), sum(numbers), min(numbers), max(numbers)


def by_key(events: Sequence[Event]) -> dict[str, tuple[int, int]]:
    """Return count and sum of each key."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for event in events:
        numbers[event.key].append(event.number)
    return {key: (len(found), sum(found)) for key, found in numbers.items()}


def expect_counts(promise: ps.Semantics, found: dict[Any, Any], truth: dict[Any, Any]) -> None:
    """Compare the state's counts and sums with the expected ones; both map to tuples that start with a count."""
    assert set(found) <= set(truth)
    if promise is EXACT:
        assert found == truth
    for what, values in truth.items():
        count, total = found.get(what, (0, 0))[:2]
        if promise is LEAST:
            assert count >= values[0], what
            assert total >= values[1], what
        if promise is MOST:
            assert count <= values[0], what
            assert total <= values[1], what


def state_of(folder: Path, processor: str) -> dict[bytes, Any]:
    """Read all local states of a processor with RocksDB and MessagePack alone."""
    from rocksdict import AccessType, Options, Rdict

    found: dict[bytes, Any] = {}
    for shard in sorted((folder / processor).glob("[0-9]*")):
        options = Options(raw_mode=True)
        families = dict.fromkeys(("position", "prepared", "identity"), options)
        database = Rdict(str(max(shard.glob("[0-9]*"))), options, families, access_type=AccessType.read_only())
        for key, value in database.items():
            encoded = bytes(key)  # type: ignore[arg-type]  # raw mode returns bytes
            if encoded.startswith(b"\xff"):
                break  # event time and timers follow the keys
            found[encoded] = msgspec.msgpack.decode(bytes(value))
        database.close()
    return found
