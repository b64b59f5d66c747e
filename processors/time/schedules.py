"""Schedules: times of day at which a processor is called for a whole shard.

schedule --next_after the last firing--> due --> one firing per time, or one for the latest time
the last firing of each schedule is saved with the state
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from ..errors import DeclarationError
from ..keyed_state import SCHEDULES, Changes, StateReader, decode_time, encode_time
from .cron import CronTimes
from .watermarks import FOREVER_MS
from .windows import MILLISECOND

_LOG = logging.getLogger("penstock.worker")

CLOCK_DIFFERENCE_MS = 60_000
"""How much the clocks of two machines may differ: a last firing this far in the future is no fault."""
FIRINGS_AT_ONCE = 100
"""The most firings of a schedule in one turn of a worker, so that it keeps its place in the group while it catches up."""


class Firing(NamedTuple):
    """A firing of a schedule.

    Args:
        name: the name of the schedule.
        at: its time (milliseconds since 1970, UTC).
        shard: the number of the bucket whose shard fires.
        skipped: the number of earlier times since the last firing at which no worker ran the shard; always 0 with `catch_up`.
    """

    name: str
    at: int
    shard: int
    skipped: int = 0


class LastTime(NamedTuple):
    """A time of a schedule, and the number of its times that were skipped before."""

    at: int
    skipped: int


class Schedule(Protocol):
    """Times at which a schedule fires."""

    @property
    def catch_up(self) -> bool:
        """Whether each time fires, also those at which no worker ran; otherwise only the latest one."""
        ...

    def next_after(self, at: int) -> int:
        """Return the first time after another one (milliseconds since 1970, UTC)."""
        ...

    def latest(self, at: int, until_ms: int) -> LastTime:
        """Return the latest time from one of its times up to another time."""
        ...


@dataclass(frozen=True)
class Interval:
    """A schedule that fires at the multiples of an interval since 1970, UTC: every hour at the full hour.

    Args:
        every: the interval, at least one millisecond.
        catch_up: whether each time fires, also those at which no worker ran; otherwise only the latest one.

    Raises:
        DeclarationError: the interval is no positive timedelta.

    Examples:
        >>> Interval(timedelta(minutes=5)).next_after(301_000)
        600000
    """

    every: timedelta
    catch_up: bool = False

    def __post_init__(self) -> None:
        given: object = self.every
        if not isinstance(given, timedelta) or given < MILLISECOND:
            raise DeclarationError(
                f"Interval({self.every!r}): the interval is no positive timedelta. Nothing was read. Write Interval(timedelta(minutes=5))."
            )

    def next_after(self, at: int) -> int:
        """Return the next multiple (milliseconds since 1970, UTC)."""
        every_ms = self.every // MILLISECOND
        return (at // every_ms + 1) * every_ms

    def latest(self, at: int, until_ms: int) -> LastTime:
        """Return the latest multiple from one of them up to a time."""
        every_ms = self.every // MILLISECOND
        skipped = (until_ms - at) // every_ms
        return LastTime(at + skipped * every_ms, skipped)


@dataclass(frozen=True)
class Cron:
    """A schedule that fires at the minutes of a cron expression.

    Args:
        expression: minute, hour, day of the month, month, day of the week.
        zone: the time zone of the expression.
        catch_up: whether each time fires, also those at which no worker ran; otherwise only the latest one.

    Raises:
        DeclarationError: the expression or the zone is unknown, or no date matches.

    Examples:
        >>> Cron("30 6 * * *").next_after(0) // 60_000
        390
    """

    expression: str
    zone: str = "UTC"
    catch_up: bool = False

    def __post_init__(self) -> None:
        given: object = self.expression
        if not isinstance(given, str):
            raise self._refused("it is no str")
        try:
            self._zone  # noqa: B018 - raises for an unknown zone
        except (KeyError, OSError, ValueError, TypeError) as error:
            raise self._refused(
                f"the time zone {self.zone!r} is unknown; write a name such as 'Europe/Berlin'"
            ) from error
        try:
            found = self._times.next_after(datetime(2000, 1, 1, tzinfo=UTC), self._zone)
        except ValueError as error:
            raise self._refused(str(error)) from error
        if found is None:
            raise self._refused("no date matches it")

    def _refused(self, reason: str) -> DeclarationError:
        return DeclarationError(
            f"Cron({self.expression!r}) is no cron expression that fires: {reason}. Nothing was read. Write five fields, such as "
            "Cron('30 6 * * mon-fri') for 6:30 on weekdays."
        )

    @cached_property
    def _times(self) -> CronTimes:
        return CronTimes.parse(self.expression)

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.zone)

    def next_after(self, at: int) -> int:
        """Return the next minute that the expression selects (milliseconds since 1970, UTC)."""
        found = self._times.next_after(datetime.fromtimestamp(at // 1_000, UTC), self._zone)
        return FOREVER_MS if found is None else round(found.timestamp()) * 1_000

    def latest(self, at: int, until_ms: int) -> LastTime:
        """Return the latest selected minute from one of them up to a time."""
        skipped = 0
        while (later := self.next_after(at)) <= until_ms:
            at, skipped = later, skipped + 1
        return LastTime(at, skipped)


class ScheduledFirings:
    """The due firings of one shard.

    Args:
        schedules: the schedules by name.
        shard: the number of the shard.
        saved: the saved state of the shard.
    """

    def __init__(self, schedules: Mapping[str, Schedule], shard: int, saved: StateReader) -> None:
        self._schedules = schedules
        self._shard = shard
        self._last = {
            name: None if last is None else decode_time(last)
            for name, last in zip(schedules, saved.fetch(list(map(_key_of, schedules))), strict=True)
        }
        self._next = {
            name: FOREVER_MS if last is None else schedules[name].next_after(last) for name, last in self._last.items()
        }
        self._changed: set[str] = set()

    def due(self, now_ms: int) -> Iterator[Firing]:
        """Yield the firings up to a time, by schedule and time, each once.

        A schedule without a last firing begins now. So does one whose last firing lies in the future, by more than a time of the schedule: a
        clock was ahead, and the schedule would be silent until the time is reached. The times until then fire again.
        """
        for name, last in self._last.items():
            if last is None or self._is_ahead(name, last, now_ms):
                self._move(name, now_ms)
            elif self._next[name] <= now_ms:
                yield from self._due(name, now_ms)

    def _due(self, name: str, now_ms: int) -> Iterator[Firing]:
        schedule = self._schedules[name]
        for _ in range(FIRINGS_AT_ONCE):
            at = self._next[name]
            if at > now_ms:
                return
            latest = LastTime(at, 0) if schedule.catch_up else schedule.latest(at, now_ms)
            self._move(name, latest.at)
            yield Firing(name, latest.at, self._shard, latest.skipped)

    def _is_ahead(self, name: str, last_ms: int, now_ms: int) -> bool:
        if last_ms <= now_ms + CLOCK_DIFFERENCE_MS or self._schedules[name].next_after(now_ms) >= last_ms:
            return False
        _LOG.warning(
            "Schedule %s last fired at %s, which is in the future: the clock of a machine was ahead. It continues with the present time, so "
            "its times until then fire twice. Check the time synchronization of the machines.",
            name,
            datetime.fromtimestamp(last_ms / 1000, UTC).isoformat(timespec="seconds"),
        )
        return True

    def _move(self, name: str, last_ms: int) -> None:
        self._last[name] = last_ms
        self._next[name] = self._schedules[name].next_after(last_ms)
        self._changed.add(name)

    def drain(self) -> Changes:
        """Return the changes since the last drain."""
        changed, self._changed = self._changed, set()
        return {_key_of(name): encode_time(last) for name in sorted(changed) if (last := self._last[name]) is not None}


def merge_schedules(schedules: Mapping[str, Schedule], states: Sequence[StateReader]) -> Changes:
    """Return the last firings to save for a shard that receives keys of several shards: the earliest, so that no firing is lost."""
    changes: Changes = {}
    for key in map(_key_of, schedules):
        found = [last for state in states for last in state.fetch([key]) if last is not None]
        if found:
            changes[key] = min(found)
    return changes


def _key_of(name: str) -> bytes:
    return SCHEDULES + name.encode()
