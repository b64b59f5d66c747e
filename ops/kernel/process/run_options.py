"""Options of `penstock run`: where a run ends, where its states are, and what belongs to a single worker."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from ....processors.apps import App
from ....processors.declare import RemoteStore, plan_of
from ....state.files import open_file_store
from ....transport import Bucket
from ...shell import (
    Backup,
    BackupEvery,
    BackupHistory,
    OptionGroup,
    Standby,
    StateCacheMib,
    Store,
    WebHdfs,
    expect_backups,
    is_given,
    retention_of,
)
from ..loop import RunLimits
from ..telemetry import ListenAddress
from .assembly import Environment

STOP_WITHIN_S = 30.0
"""The default time for a worker to end after a signal."""


@dataclass(frozen=True)
class EndOptions(OptionGroup):
    """When and how a run ends."""

    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the current end of the inputs.")] = False
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--until",
            metavar="CATEGORY/BUCKET=OFFSET",
            help="One processor: stop exactly at this offset of an input, and at the current end of other buckets. May be repeated.",
            show_default=False,
        ),
    ] = None
    event_time: Annotated[
        list[str] | None,
        typer.Option(
            "--event-time",
            metavar="BUCKET=MILLISECONDS",
            help="One processor: with --until, count this event time as passed by the inputs of a bucket. May be repeated.",
            hidden=True,
        ),
    ] = None
    keep_place: Annotated[
        bool,
        typer.Option(
            "--keep-place", help="After a stop, keep the buckets for this worker's return, up to the session timeout."
        ),
    ] = False
    stop_within: Annotated[
        float,
        typer.Option(
            "--stop-within",
            metavar="SECONDS",
            min=1.0,
            help="After a stop, end within this time even if the last checkpoint cannot be saved; its events are then processed again. "
            "With --until-end and --backup: the time for a backup store that fails.",
        ),
    ] = STOP_WITHIN_S

    def limits(self, app: App) -> RunLimits:
        """Return where the run ends, if not at the end of its inputs."""
        limits = RunLimits(
            dict(_limit(text, app) for text in self.until or ()), dict(map(_event_time, self.event_time or ()))
        )
        if limits.offsets and app.loops:
            raise typer.BadParameter("--until cannot stop a loop, because its messages circulate. Use --until-end.")
        return limits


def _limit(text: str, app: App) -> tuple[Bucket, int]:
    """Parse `orders/0=100`."""
    category, _, rest = text.rpartition("/")
    number, _, offset = rest.partition("=")
    buckets = {one.name: one.buckets for processor in app.processors for one in plan_of(processor).sources}
    if category not in buckets or not (number.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(
            f"--until {text} is invalid. Name a bucket of an input and an offset, such as --until {min(buckets)}/0=100."
        )
    if int(number) >= buckets[category]:
        raise typer.BadParameter(
            f"--until {text}: {category} has no bucket {number}. Its buckets are 0 to {buckets[category] - 1}."
        )
    return Bucket(category, int(number)), int(offset)


def _event_time(text: str) -> tuple[int, int]:
    """Parse `0=1385000000000`."""
    number, _, time_ms = text.partition("=")
    if not (number.isdecimal() and time_ms.removeprefix("-").isdecimal()):
        raise typer.BadParameter(
            f"--event-time {text} is invalid. Name the number of a bucket and an event time in milliseconds since 1970, such as --event-time 0=1385000000000."
        )
    return int(number), int(time_ms)


@dataclass(frozen=True)
class StateOptions(OptionGroup):
    """Where states are, how they are cached and backed up."""

    backup: Backup = None
    webhdfs: WebHdfs = None
    backup_every: BackupEvery = 60.0
    backup_history: BackupHistory = None
    standby: Standby = False
    state_cache: StateCacheMib = None
    store: Store = None

    def check(self, context: typer.Context, app: App) -> None:
        """Raise BadParameter for options that contradict each other or the app."""
        expect_backups(self.backup, standby=self.standby)
        retention_of(self.backup_history)
        _expect_store_is_used(context, app)

    def environment(self, folder: Path) -> Environment:
        """Return where the states of a worker are."""
        return Environment(
            folder / "state",
            open_file_store(self.backup, self.webhdfs) if self.backup else None,
            timedelta(seconds=self.backup_every),
            self.store,
            None if self.state_cache is None else self.state_cache * 2**20,
            retention_of(self.backup_history),
            standby=self.standby,
        )

    def pass_store_on(self) -> None:
        """Name the store in the environment of other processes: all users of the machine can read command lines."""
        if self.store:
            os.environ["PENSTOCK_STORE"] = self.store


def _expect_store_is_used(context: typer.Context, app: App) -> None:
    """Refuse a store on the command line that no processor uses. A store in the configuration may be for other apps."""
    if not is_given(context, "store"):
        return
    if not any(isinstance(getattr(processor, "store", None), RemoteStore) for processor in app.processors):
        can_choose = any(hasattr(processor, "store") for processor in app.processors)
        advice = "Declare `store = penstock.RemoteStore(…)` on an aggregator, or leave" if can_choose else "Leave"
        raise typer.BadParameter(
            f"--store is for aggregators with remote state, and the processors of {app.name} keep their state locally. {advice} --store out."
        )


@dataclass(frozen=True)
class SupervisedOptions(OptionGroup):
    """Options of one worker or server, which several cannot share."""

    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            metavar="[HOST:]PORT",
            help="Serve the health of the worker or server at /health and /ready. A port alone listens on this machine only.",
            show_default=False,
        ),
    ] = None
    number: Annotated[
        int | None,
        typer.Option(
            "--number",
            min=0,
            help="For supervisors: the number of the worker or server, which gives it its name. A process with this number hands over.",
            show_default=False,
        ),
    ] = None

    @property
    def address(self) -> ListenAddress | None:
        """The address of the health server; None without one."""
        return None if self.health is None else ListenAddress.parse(self.health)
