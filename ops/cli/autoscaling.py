"""`penstock autoscale`: as many workers as the work needs, with the reasons."""

from __future__ import annotations

from contextlib import closing
from threading import Event
from typing import Annotated

import typer

from ...processors.errors import PenstockError
from ..deploying.catalogue import deployment_named
from ..deploying.deploying import set_workers
from ..scaling.policy import Bounds, Decision, Scaler
from ..watching.observer import Observer
from ..watching.standing import Standing
from ..working.clock import SystemClock
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, connect
from .output import as_json, note
from .signals import stopping_on_signals
from .times import parse_span, shown_time

DEFAULTS = Bounds()


def autoscale(
    name: Annotated[str, typer.Argument(help="What is deployed, as `penstock deployments` shows it.")],
    least: Annotated[int, typer.Option("--min", metavar="N", help="Never fewer workers.", min=1)] = 1,
    most: Annotated[int, typer.Option("--max", metavar="N", help="Never more workers.", min=1)] = 8,
    lag: Annotated[
        str, typer.Option("--lag", metavar="SPAN", help="How long events may wait before more are needed.")
    ] = "1m",
    catch_up: Annotated[
        str, typer.Option("--catch-up", metavar="SPAN", help="Within what time those that wait are to be processed.")
    ] = "5m",
    more_after: Annotated[
        str, typer.Option("--more-after", metavar="SPAN", help="How long the need lasts before there are more.")
    ] = "1m",
    fewer_after: Annotated[
        str, typer.Option("--fewer-after", metavar="SPAN", help="How long there is room before there are fewer.")
    ] = "10m",
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often to look.", min=0.5)] = 10.0,
    apply: Annotated[
        bool, typer.Option("--apply", help="Change the number; without it, only say what would be done.")
    ] = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Give a deployment as many workers as its work needs, until stopped; each look says what it decides and why.

    Example: penstock autoscale scorer --min 1 --max 4 --apply
    """
    if least > most:
        raise PenstockError(f"--min {least} is more than --max {most}, so nothing was begun.")
    bounds = Bounds(
        least,
        most,
        parse_span(lag).total_seconds(),
        parse_span(catch_up).total_seconds(),
        parse_span(more_after).total_seconds(),
        parse_span(fewer_after).total_seconds(),
    )
    scaler, stopped = Scaler(bounds), Event()
    workers = deployment_named(folder, name).workers
    if not apply:
        note("Only looking: nothing is changed without --apply.")
    with closing(Observer(connect(kafka, folder))) as observer, stopping_on_signals(stopped.set):
        while not stopped.is_set():
            workers = deployment_named(folder, name).workers if apply else workers
            standing = _standing(observer, name)
            if standing is not None:
                decision = scaler.decide(standing, workers)
                _say(name, workers, decision, json=json)
                if decision.change and apply:
                    set_workers(folder, name, decision.workers)
            stopped.wait(every)


def _standing(observer: Observer, name: str) -> Standing | None:
    """Return how the deployment's processor stands; None before any of its workers has reported."""
    return next((one for one in observer.look().standings if one.node.name == name and one.shards), None)


def _say(name: str, workers: int, decision: Decision, *, json: bool) -> None:
    now_ms = SystemClock().now_ms()
    if json:
        as_json({"at_ms": now_ms, "name": name, "workers": workers, "decided": decision.workers, "why": decision.why})
        return
    becomes = f"{workers} -> {decision.workers}" if decision.change else f"{workers}, as it is"
    note(f"{shown_time(now_ms)} {name}: {becomes}. {decision.why}")
