"""Which backups are kept: the newest ones, and for a while the first of each hour and of each day."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.backups import Manifest, Retention
from penstock.state.backups.manifest import FORMAT
from penstock.state.backups.retention import DAY_MS, HOUR_MS

ME = ShardIdentity("totals", 0, "int")
START_MS = 20_000 * DAY_MS


def manifests(*pauses_min: int) -> list[Manifest]:
    """Return backups with pauses between them; owners change now and then."""
    time_ms, made = START_MS, []
    for number, pause_min in enumerate(pauses_min):
        time_ms += pause_min * 60_000
        made.append(Manifest(FORMAT, ME, StatePosition({}), 1 + number // 5, number, time_ms, ()))
    return made


PAUSES = st.lists(st.integers(0, 900), max_size=120)


@given(pauses=PAUSES, newest=st.integers(1, 4), hours=st.integers(0, 24 * 20))
def test_each_past_hour_and_day_has_a_backup(pauses: list[int], newest: int, hours: int) -> None:
    """For each backup, an older or equal one of the same hour and of the same day is kept."""
    made = manifests(*pauses)
    kept = Retention(newest, timedelta(hours=hours)).kept(made)
    times_ms = sorted(each.time_ms for each in made if each.id in kept)
    now_ms = made[-1].time_ms if made else 0

    assert {each.id for each in made[-newest:]} <= kept
    spans_ms = {HOUR_MS: min(hours * HOUR_MS, DAY_MS), DAY_MS: hours * HOUR_MS} if hours else {}
    for each, (slot_ms, span_ms) in product(made, spans_ms.items()):
        if each.time_ms // slot_ms >= (now_ms - span_ms) // slot_ms:
            begin_ms = each.time_ms // slot_ms * slot_ms
            assert any(begin_ms <= time_ms <= each.time_ms for time_ms in times_ms)
    assert len(kept) <= newest + min(hours, 24) + 1 + hours // 24 + 2


@given(pauses=PAUSES, hours=st.integers(0, 24 * 20))
def test_pruning_now_and_then_keeps_the_same_backups(pauses: list[int], hours: int) -> None:
    """A deleted backup is never kept later, so an owner that paused while it pruned may continue at any time."""
    retention, made = Retention(3, timedelta(hours=hours)), manifests(*pauses)
    present: list[Manifest] = []
    for each in made:
        kept = retention.kept([*present, each])
        present = [other for other in [*present, each] if other.id in kept]

    assert {other.id for other in present} == retention.kept(made)


@given(ahead_ms=st.integers(HOUR_MS, 10_000 * DAY_MS), at=st.integers(0, 40))
def test_a_backup_of_a_machine_whose_clock_is_ahead_takes_one_place(ahead_ms: int, at: int) -> None:
    """It counts as one hour and one day, and the others do not become old by it."""
    made = manifests(*[60] * 40)
    wrong = Manifest(FORMAT, ME, StatePosition({}), 9, at, made[-1].time_ms + ahead_ms, ())
    retention = Retention(3, timedelta(days=30))
    lost = retention.kept(made) - retention.kept([*made, wrong])

    assert len(lost) <= 3, "one of the newest, of the hours and of the days"


def test_without_a_history_only_the_newest_are_kept() -> None:
    """Releases without a history did the same."""
    made = manifests(*[1] * 10)

    assert Retention().kept(made) == {each.id for each in made[-3:]}
