"""A pytest test from replayed events, with the test driver and the processor's current outputs.

events of the span --driver--> outputs, or an error --written--> a test file
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ....processors import PenstockError, counted
from ....processors.declare import AnyCategory, Processor, plan_of
from ....processors.shard import SourceEvents
from ...kernel import Driver, json_of
from .errors import ReplayRefused

EVENTS = 1_000
"""The largest number of events in a test."""

_Runs = list[tuple[AnyCategory, list[Any]]]

_TEMPLATE = '''"""{title}"""

from __future__ import annotations

from pathlib import Path
{imports}
from penstock.testing import {names}

{processor} = load_app(Path(__file__).parent / {app!r}).processor({processor!r})

EVENTS = [
{events}]

OUTPUTS = {{
{outputs}}}


def test_{name}() -> None:
    """{promise}"""
    driver = Driver({processor})
    categories = {{category.name: category for category in driver.app.categories()}}
{send}
    given = {{name: list(map(json_of, driver.read(categories[name]))) for name in OUTPUTS}}

    assert given == OUTPUTS
'''

_SEND = """    for name, lines in EVENTS:
        driver.send(categories[name], [record_of(categories[name], line) for line in lines])
"""


@dataclass
class Gathered:
    """The events of a test.

    Args:
        key: events of this key only; None for all.
        events: by category, in order.
    """

    key: str | None
    events: list[tuple[AnyCategory, Any]] = field(default_factory=list)

    def note(self, source_events: SourceEvents) -> None:
        """Add events of the span.

        Raises:
            ReplayRefused: there are too many events for a test.
        """
        keys = source_events.category.keys_of(source_events.events)
        chosen = [event for key, event in zip(keys, source_events.events, strict=True) if self.key in (None, key)]
        self.events += [(source_events.category, event) for event in chosen]
        if len(self.events) > EVENTS:
            raise ReplayRefused(
                f"There are more than {EVENTS:,} events, too many for a test. Nothing was written. Choose a shorter span, one --bucket, or one "
                "--key."
            )


class _Ran:
    """A run of the driver over all events, or up to the first one that raises."""

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
        self.outputs = {category.name: driver.read(category) for category in plan_of(processor).outputs}
        self.runs = _runs(self.events)


def _driven(processor: type[Processor], runs: _Runs) -> Driver:
    driver = Driver(processor)
    for category, run in runs:
        driver.send(category, run)
    return driver


def _runs(events: Sequence[tuple[AnyCategory, Any]]) -> _Runs:
    """Group consecutive events of one category."""
    by_category = groupby(events, key=lambda event: event[0])
    return [(category, [event for _, event in run]) for category, run in by_category]


def expect_no_file(path: Path) -> None:
    """Raise ReplayRefused if a file exists where a test is to be written: it may be the app, or an edited test."""
    if path.is_file():
        raise ReplayRefused(
            f"{path} exists, and --save-as-test replaces no file. Nothing was read or written. Name another file, or delete this one first."
        )


def write_test(path: Path, app: Path, processor: type[Processor], gathered: Gathered, span: str) -> int:
    """Write a passing test of a processor; return its number of events.

    Args:
        path: the test file.
        app: the app file.
        processor: the processor.
        gathered: the events.
        span: the span, as text.

    Raises:
        ReplayRefused: there are no events, or the file cannot be written.
    """
    if not gathered.events:
        raise ReplayRefused("There are no events for a test. Nothing was written. Choose another span or key.")
    text = text_of(app, processor, gathered, span, path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ReplayRefused(
            f"Cannot write {path}: {error.strerror or error}. Name a file in an existing, writable folder."
        ) from error
    return len(gathered.events)


def text_of(app: Path, processor: type[Processor], gathered: Gathered, span: str, path: Path) -> str:
    """Return the text of the test."""
    ran = _Ran(processor, gathered.events)
    name, of_key = processor.__name__, f" of key {gathered.key}" if gathered.key is not None else ""
    events = "".join(f"    ({c.name!r}, [\n{_lines(run)}    ]),\n" for c, run in ran.runs)
    outputs = "".join(f"    {category!r}: [\n{_lines(records)}    ],\n" for category, records in ran.outputs.items())
    return _TEMPLATE.format(
        title=f"{name} on {counted(len(ran.events), 'event')}{of_key}, replayed from {span}.",
        imports="" if ran.error is None else "\nimport pytest\n",
        names="Driver, json_of, load_app, record_of"
        if ran.error is None
        else "Driver, PenstockError, json_of, load_app, record_of",
        processor=name,
        app=os.path.relpath(app.resolve(), path.resolve().parent),
        events=events,
        outputs=outputs,
        name=f"{processor.name.replace('.', '_').replace('-', '_')}_repeats_its_outputs",
        promise="These events produce these outputs, from an empty state."
        if ran.error is None
        else "The last of these events raises.",
        send=_SEND if ran.error is None else _raising(ran.error),
    )


def _lines(records: Sequence[Any]) -> str:
    return "".join(f"        {json_of(record)!r},\n" for record in records)


def _raising(error: PenstockError) -> str:
    cause = error.__cause__
    message = re.escape(f"{type(cause).__name__}: {cause}" if cause is not None else str(error))
    indented = "".join(f"    {line}\n" for line in _SEND.rstrip("\n").split("\n"))
    return f"    with pytest.raises(PenstockError, match={message!r}):\n{indented}"
