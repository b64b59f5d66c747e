"""A replay's events as a test that stands by itself: with the test driver, in memory, and what the processor gives now.

events of the span --the driver--> outputs, or what it raised --written--> a file for pytest
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError
from ...processors.shard.source_events import SourceEvents
from ..testing import Driver
from .errors import ReplayRefused

EVENTS = 1_000
"""How many events a test has at most."""

_encode = msgspec.json.Encoder().encode
_Runs = list[tuple[AnyCategory, list[Any]]]

_TEMPLATE = '''"""{title}"""

from __future__ import annotations

from pathlib import Path

import msgspec{imports}

from penstock.testing import {names}

{processor} = load_app(Path(__file__).parent / {app!r}).processor({processor!r})

EVENTS = [
{events}]

OUTPUTS = {{
{outputs}}}


def test_{name}() -> None:
    """{promise}"""
    inputs = {{category.name: category for category in {processor}.inputs()}}
    driver = Driver({processor})
{send}
    given = {{
        category.name: [msgspec.json.encode(record).decode() for record in driver.read(category)]
        for category in {processor}.outputs()
    }}

    assert given == OUTPUTS
'''

_SEND = """    for category, lines in EVENTS:
        driver.send(inputs[category], [msgspec.json.decode(line, type=inputs[category].record) for line in lines])
"""


@dataclass
class Gathered:
    """The events that go into a test.

    Args:
        key: only those of this key; None for all.
        events: by category, in order.
    """

    key: str | None
    events: list[tuple[AnyCategory, Any]] = field(default_factory=list)

    def note(self, seen: SourceEvents) -> None:
        """Note events of the span.

        Raises:
            ReplayRefused: they are more than a test should have.
        """
        keys = seen.category.keys_of(seen.events)
        chosen = [event for key, event in zip(keys, seen.events, strict=True) if self.key in (None, key)]
        self.events += [(seen.category, event) for event in chosen]
        if len(self.events) > EVENTS:
            raise ReplayRefused(
                f"A test of more than {EVENTS:,} events is not read by anybody. Nothing was written. Ask for less: a shorter span, one --bucket, "
                "or one --key."
            )


class _Ran:
    """What the driver makes of events: of all, or of those up to the first for which it raises."""

    def __init__(self, processor: type[Processor], events: Sequence[tuple[AnyCategory, Any]]) -> None:
        self.events = events
        self.error: PenstockError | None = None
        try:
            driver = _driven(processor, _runs(events))
        except PenstockError:
            driver = Driver(processor)
            for count, (category, event) in enumerate(events, 1):
                try:
                    driver.send(category, [event])
                except PenstockError as error:
                    self.error, self.events = error, events[:count]
                    break
        self.outputs = {category.name: driver.read(category) for category in processor.outputs()}
        self.runs = _runs(self.events)


def _driven(processor: type[Processor], runs: _Runs) -> Driver:
    driver = Driver(processor)
    for category, run in runs:
        driver.send(category, run)
    return driver


def _runs(events: Sequence[tuple[AnyCategory, Any]]) -> _Runs:
    """Put the events of one category that follow on one another together."""
    by_category = groupby(events, key=lambda one: one[0])
    return [(category, [event for _, event in run]) for category, run in by_category]


def write_test(path: Path, app: Path, processor: type[Processor], gathered: Gathered, span: str) -> int:
    """Write a test of a processor that passes as it stands; return how many events it has.

    Args:
        path: where.
        app: the app file.
        processor: the processor.
        gathered: the events.
        span: when they came, in words.

    Raises:
        ReplayRefused: there are no events, or the file cannot be written.
    """
    if not gathered.events:
        raise ReplayRefused("There are no events for a test. Nothing was written. Ask for another span or key.")
    text = text_of(app, processor, gathered, span, path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReplayRefused(
            f"{path} cannot be written: {error.strerror or error}. Name a file in a folder that exists and may be written to."
        ) from error
    return len(gathered.events)


def text_of(app: Path, processor: type[Processor], gathered: Gathered, span: str, path: Path) -> str:
    """Return the text of the test."""
    ran = _Ran(processor, gathered.events)
    name, of_key = processor.__name__, f" of key {gathered.key}" if gathered.key is not None else ""
    events = "".join(f"    ({c.name!r}, [\n{_lines(run)}    ]),\n" for c, run in ran.runs)
    outputs = "".join(f"    {category!r}: [\n{_lines(records)}    ],\n" for category, records in ran.outputs.items())
    return _TEMPLATE.format(
        title=f"{name} on {len(ran.events):,} events{of_key}, replayed from {span}.",
        imports="" if ran.error is None else "\nimport pytest",
        names="Driver, load_app" if ran.error is None else "Driver, PenstockError, load_app",
        processor=name,
        app=os.path.relpath(app.resolve(), path.resolve().parent),
        events=events,
        outputs=outputs,
        name=f"{processor.name.replace('.', '_').replace('-', '_')}_gives_what_it_gave",
        promise="These events, and a state that begins with nothing, give these outputs."
        if ran.error is None
        else "It raises at the last of these events.",
        send=_SEND if ran.error is None else _raising(ran.error),
    )


def _lines(records: Sequence[Any]) -> str:
    return "".join(f"        {_encode(record).decode()!r},\n" for record in records)


def _raising(error: PenstockError) -> str:
    cause = error.__cause__
    said = re.escape(f"{type(cause).__name__}: {cause}" if cause is not None else str(error))
    indented = "".join(f"    {line}\n" for line in _SEND.rstrip("\n").split("\n"))
    return f"    with pytest.raises(PenstockError, match={said!r}):\n{indented}"
