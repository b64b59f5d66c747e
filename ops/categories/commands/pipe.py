"""`penstock pipe`: runs a program in any language on the messages of a category."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

import msgspec
import typer

from ....processors import UserCodeError
from ....processors.declare import Category, CheckpointInterval, ErrorAction, ErrorPolicy, Semantics
from ....processors.pipes import Line, Pipe, PipePlan
from ....transport import Bus, CategorySpec, create_missing_categories
from ....transport.codecs import Lines
from ...kernel import Environment, StopOptions, run_one
from ...shell import DEFAULT_FOLDER, AsJson, BrokerWait, FailFast, Folder, Kafka, connect, note

_READ_AGAIN = "To let it read them again, run it with another --name."


class Delivery(StrEnum):
    """How often an output appears after a failure, as an option."""

    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"
    EXACTLY_ONCE = "exactly-once"

    @property
    def semantics(self) -> Semantics:
        """The guarantee."""
        return Semantics[self.name]


class OnError(StrEnum):
    """What to do with a line at which the program fails, as an option."""

    STOP = "stop"
    DEAD_LETTER = "dead-letter"

    @property
    def policy(self) -> ErrorPolicy:
        """The policy."""
        return ErrorPolicy[self.name]


class _CommandPipe(Pipe):
    """A pipe that is declared by options."""

    @classmethod
    def folder(cls) -> Path:
        """Return the folder of the command."""
        return Path.cwd()


class _CommandPipePlan(PipePlan, of=_CommandPipe):
    """The plan of a pipe that is declared by options."""

    declaration: type[_CommandPipe]

    def error_action(self, error: UserCodeError) -> ErrorAction:
        """Name the option instead of the attribute."""
        return super().error_action(error)._replace(alternative=f"--on-error {OnError.DEAD_LETTER.value}")


def pipe(
    category: Annotated[str, typer.Argument(help="The category to read; each message is a line.", show_default=False)],
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND", help="The program and its arguments, after --.", show_default=False),
    ],
    to: Annotated[
        str | None, typer.Option(metavar="CATEGORY", help="The category for the program's lines.", show_default=False)
    ] = None,
    every: Annotated[
        int, typer.Option(metavar="LINES", help="The most lines between two checkpoints.", min=1)
    ] = 100_000,
    size_bytes: Annotated[
        int, typer.Option("--bytes", metavar="BYTES", help="The most bytes between two checkpoint lines.", min=1)
    ] = 2**23,
    simple: Annotated[
        bool,
        typer.Option(
            "--simple",
            help="For programs that do not answer checkpoint lines, such as grep and jq: start the program for each group of lines.",
        ),
    ] = False,
    success: Annotated[
        list[int] | None,
        typer.Option(
            help="With --simple, an exit status without an error. Default: 0; for grep also 1.", show_default=False
        ),
    ] = None,
    outputs: Annotated[
        Delivery, typer.Option(help="How often an output appears after a failure.")
    ] = Delivery.AT_LEAST_ONCE,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="What to do with a line at which the program fails.")
    ] = OnError.STOP,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The program writes JSON objects, and this field is the key. Default: a checksum of the line.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit", metavar="SECONDS", help="The time for the lines between two checkpoint lines.", min=0.1
        ),
    ] = 60.0,
    name: Annotated[
        str | None,
        typer.Option(
            help="The name of the consumer group, which contains the position. Default: from the categories and the command.",
            show_default=False,
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the category for the program's lines if it is missing.")
    ] = False,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the current end of the category.")] = False,
    from_earliest: Annotated[
        bool, typer.Option("--from-earliest", help="Skip unread messages that Kafka has deleted.")
    ] = False,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Run a program in any language on a category: messages in as lines, lines out as messages.

    The program repeats each line that begins with the byte 0x1E when it has written all outputs of the lines before; see `examples/pipe` for
    programs in Python, Perl, JavaScript and shell. Programs that do not, such as grep and jq, run with --simple. After a failure of the program, of this
    process or of the machine, the same command continues at the last checkpoint. Run it several times to share the work.

    Example: penstock pipe clicks --to errors --create --simple -- grep ERROR
    """
    if success and not simple:
        raise typer.BadParameter(
            "--success is for --simple: a program that repeats checkpoint lines does not end between them. Add --simple, or leave --success out."
        )
    bus = connect(kafka, folder)
    wait = BrokerWait(fail_fast=fail_fast)
    own = name or _name_of(category, to, command)
    declared: dict[str, Any] = {
        "name": own,
        "reads": wait(lambda: _lines_in(bus, category)),
        "command": tuple(command),
        "acknowledges": not simple,
        "success": tuple(success) if success else None,
        "checkpoint": CheckpointInterval(events=every, size_bytes=size_bytes),
        "state_semantics": outputs.semantics,
        "output_semantics": outputs.semantics,
        "on_error": on_error.policy,
        "time_limit": timedelta(seconds=time_limit),
        "output_key": None if key is None else staticmethod(_field_of(key)),
    }
    if to is not None:
        declared["writes"] = wait(lambda: _lines_out(bus, to, declared["reads"].buckets, create=create))
    processor = type(Path(command[0]).name, (_CommandPipe,), declared)
    note(f"{own}: {category} -> {' '.join(command)}{f' -> {to}' if to else ''}")
    options = StopOptions(until_end, keep_place=False, from_earliest=from_earliest, fail_fast=fail_fast)
    session_timeout_s = bus.settings.session_timeout_s
    run_one(
        processor, bus, Environment(folder / "state"), options, session_timeout_s, None, json=json, advice=_READ_AGAIN
    )


def _name_of(category: str, to: str | None, command: Sequence[str]) -> str:
    """Return a name that equal commands share: they share the work, and a repeated command continues at its position."""
    checksum = crc32("\0".join([to or "", *command]).encode())
    program = re.sub(r"[^a-zA-Z0-9._-]", "-", Path(command[0]).name)[:50]
    return f"pipe.{category}.{program}.{checksum:08x}"


def _lines_in(bus: Bus, name: str) -> Category[Line]:
    return _lines(name, bus.catalog.describe(name).spec.buckets)


def _lines_out(bus: Bus, name: str, buckets: int, *, create: bool) -> Category[Line]:
    if create:
        create_missing_categories(bus, CategorySpec.of(_lines(name, buckets)))
    return _lines_in(bus, name)


def _lines(name: str, buckets: int) -> Category[Line]:
    return Category(name, Line, key="key", event_time="at", buckets=buckets, codec=Lines())


def _field_of(name: str) -> Callable[[bytes], str]:
    """Return the function that returns a field of a JSON object as text."""

    def field_of(line: bytes) -> str:
        value = msgspec.json.decode(line)[name]
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    return field_of
