"""`penstock dead-letters`: shows, retries and drops dead letters."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ...processors import PenstockError, counted, printable
from ...processors.apps import APP_SUFFIXES, AppName, names_app
from ...processors.declare import Processor as DeclaredProcessor
from ...transport import Bus
from ..deploy import NotDeployed, all_deployments
from ..shell import (
    AsJson,
    Connection,
    OptionGroup,
    Yes,
    audited,
    expect_no_source,
    format_time,
    note,
    only_processor,
    out,
    parse_span,
    print_json,
    print_table,
    processor_name,
    with_option_groups,
)
from .handling import HandlingResult, Selection, drop, other_readers, retry
from .letters import Letter, LetterState, group_letters, letter_at, processors_with_letters, read_letters
from .row_retry import RowRetry

app = typer.Typer(help="Show, retry and drop dead letters.", no_args_is_help=True)

Processor = Annotated[str, typer.Argument(metavar="PROCESSOR", help="The name of the processor.")]


@dataclass(frozen=True)
class SelectionOptions(OptionGroup):
    """A selection of pending letters; several options select the letters that match all of them."""

    offset: Annotated[
        int | None, typer.Option(help="The letter at this offset of the dead letters.", min=0, show_default=False)
    ] = None
    reason: Annotated[str | None, typer.Option(help="Letters whose reason contains this text.", show_default=False)] = (
        None
    )
    last: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Letters of the last 30m, 12h or 7d.", show_default=False),
    ] = None
    every: Annotated[bool, typer.Option("--all", help="All pending letters.")] = False

    def selection(self) -> Selection:
        """Return a function that says whether a letter is selected."""
        if self.every == any(option is not None for option in (self.offset, self.reason, self.last)):
            raise typer.BadParameter("Select letters with --offset, --reason or --last, or name --all.")
        since_ms = None if self.last is None else time.time() * 1_000 - parse_span(self.last).total_seconds() * 1_000

        def selects(letter: Letter) -> bool:
            return (
                (self.offset is None or letter.number == self.offset)
                and (self.reason is None or self.reason in letter.content.reason)
                and (since_ms is None or letter.content.at >= since_ms)
            )

        return selects


@app.command()
@with_option_groups
def show(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP|PROCESSOR]", help="Its dead letters; the default is all processors.", show_default=False
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Argument(help="The letter at this offset, in full.", min=0, show_default=False)
    ] = None,
    *,
    limit: Annotated[
        int | None, typer.Option(help="This number of the newest letters, in full.", min=1, show_default=False)
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Write pending letters to this file, one per line as JSON. Keys, messages and headers are Base64.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="With --to: handled letters, too.")] = False,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Count dead letters by reason: pending, retried and dropped ones. # stands for numbers in a reason.

    Example: penstock dead-letters show examples/flights/app.py

    An offset or --limit shows letters in full: the reason, the traceback, the origin and the message. Control characters are escaped.

    Example: penstock dead-letters show delays --limit 1

    Example: penstock dead-letters show delays --to letters.jsonl
    """
    chosen = [each for each in (offset, limit, to) if each is not None]
    if len(chosen) > 1:
        raise typer.BadParameter("An offset, --limit and --to exclude each other. Leave all but one of them out.")
    if to is not None:
        expect_no_source(to)
    elif every:
        raise typer.BadParameter("--all needs --to, the file for all letters.")
    bus = connection.open()
    if not chosen:
        _show_groups(bus, target, json=json)
        return
    processor = processor_name(target)
    if processor is None:
        raise typer.BadParameter("name the processor of the letters. `penstock dead-letters show` lists all.")
    if to is not None:
        _export(bus, processor, to, every=every)
        return
    letters = [letter_at(bus, processor, offset)] if offset is not None else _newest(bus, processor, limit or 1)
    if not letters:
        note(f"{processor} has no dead letters.")
    for letter in letters:
        if json:
            print_json(_exported(letter))
        else:
            out.out(printable("\n".join(_lines(letter))) + "\n", highlight=False)


def _newest(bus: Bus, processor: str, count: int) -> list[Letter]:
    return list(read_letters(bus, processor))[-count:]


def _show_groups(bus: Bus, target: str | None, *, json: bool) -> None:
    groups = [group for name in _names(bus, target) for group in group_letters(name, read_letters(bus, name))]
    if json:
        print_json([msgspec.structs.asdict(group) for group in groups])
        return
    print_table(
        ("processor", "category", "pending", "retried", "dropped", "first", "last", "reason"),
        [
            (
                g.processor,
                g.category,
                g.pending,
                g.retried,
                g.dropped,
                *_span(g.first_ms, g.last_ms),
                printable(g.reason),
            )
            for g in groups
        ],
    )


def _names(bus: Bus, target: str | None) -> list[str]:
    existing = processors_with_letters(bus)
    if target is None:
        return existing
    if target in existing:
        return [target]
    if target.partition(":")[0].endswith(APP_SUFFIXES):
        return [processor.name for processor in AppName.parse(target).load().processors if processor.name in existing]
    raise PenstockError(
        f"No processor {target} has dead letters on this Kafka cluster. Name one of: {', '.join(existing) or 'none'}, or an app file."
    )


def _span(first_ms: int, last_ms: int) -> tuple[str, str]:
    return format_time(first_ms), format_time(last_ms)


def _lines(letter: Letter) -> list[str]:
    content = letter.content
    lines = [
        f"letter     {letter.number}, {letter.state.value}",
        f"origin     {content.category}/{content.bucket} at offset {content.offset}",
        f"rejected   {format_time(content.at)}",
        f"reason     {content.reason}",
        f"key        {_text(content.key)}",
        f"message    {_text(content.value)}",
    ]
    if letter.mark is not None and letter.mark.reason:
        lines.insert(1, f"dropped    {letter.mark.reason}")
    lines += [f"header     {header.name}: {_text(header.value)}" for header in content.headers]
    if content.truncated_bytes:
        lines.append(
            f"truncated  {counted(content.truncated_bytes, 'byte')}; the whole message is at its origin until it expires"
        )
    return lines + ([content.traceback.rstrip()] if content.traceback else [])


def _text(value: bytes | None) -> str:
    return "none" if value is None else value.decode(errors="backslashreplace")


@app.command("retry")
@audited("dead-letters retry")
@with_option_groups
def retry_(
    target: Annotated[
        str, typer.Argument(metavar="APP:PROCESSOR", help="A processor in an app, or the name of a deployed one.")
    ],
    *,
    chosen: SelectionOptions,
    yes: Yes = False,
    connection: Connection,
) -> None:
    """Append the messages of pending letters to their input again, each exactly once. Deploy the corrected app first.

    Other readers of the input receive the messages a second time. Rows that a sink has refused are sent to it again.

    Example: penstock dead-letters retry app.py:Delays --reason "division by zero"
    """
    processor, bus = _retried_processor(target, connection.folder), connection.open()
    selection = chosen.selection()
    pending = [each for each in read_letters(bus, processor.name) if each.mark is None and selection(each)]
    if not pending:
        note(f"{processor.name} has no pending letters of this selection. Nothing was written.")
        return
    rows = list(filter(RowRetry(processor).is_of_sink, pending))
    if rows:
        sinks = sorted({each.content.category for each in rows})
        note(f"{counted(len(rows), 'row')} will be sent again to {', '.join(sinks)}.")
    if len(rows) < len(pending):
        _note_readers(bus, processor, len(pending) - len(rows))
    _confirm("Retry them?", yes=yes)
    _report(retry(bus, processor, selection), "retried")


def _note_readers(bus: Bus, processor: type[DeclaredProcessor], messages: int) -> None:
    readers = [
        f"{name} reads {category}" for category, names in other_readers(bus, processor).items() for name in names
    ]
    note(
        f"{counted(messages, 'message')} will be appended to the input of {processor.name}. Other readers of it receive them a second time"
        + (f": {', '.join(readers)}. " if readers else "; no other processor is registered. ")
        + "Programs without Penstock are not known here."
    )


def _retried_processor(target: str, folder: Path) -> type[DeclaredProcessor]:
    """Return the processor of an app, or a deployed one by its name: also of a server, such as laser.rankings.1."""
    if names_app(target):
        return only_processor(target)
    deployed = {each.version.name: each.version for each in all_deployments(folder)}
    if target not in deployed:
        raise NotDeployed(
            f"{target} is neither an app nor deployed from {folder}, so its declaration is unknown. Nothing was written. Name the processor with "
            "its app, such as app.py:Delays."
        )
    version = deployed[target]
    name = AppName(Path(version.app), None, version.clone or None)
    if version.server is None:
        return next(each for each in name.load().processors if each.name == target)
    from ..deploy import stand_in_for  # noqa: PLC0415 - only the letters of a server need it

    declared = name.load_declarations().declared_categories()
    return stand_in_for(target, [declared[category] for category in version.shape.inputs])


def _export(bus: Bus, processor: str, to: Path, *, every: bool) -> None:
    """Write pending letters, or every letter, to a file."""
    count = 0
    try:
        with to.open("w", encoding="utf-8") as file:
            for letter in read_letters(bus, processor):
                if every or letter.mark is None:
                    file.write(msgspec.json.encode(_exported(letter)).decode() + "\n")
                    count += 1
    except OSError as error:
        raise PenstockError(
            f"{to} cannot be written: {error.strerror}. The file is incomplete, and no letter was changed."
        ) from error
    note(f"Wrote {counted(count, 'letter')} to {to}. They stay pending until you retry or drop them.")


def _exported(letter: Letter) -> dict[str, Any]:
    content = letter.content
    return {
        **msgspec.structs.asdict(content),
        "letter": letter.number,
        "state": letter.state.value,
        "drop_reason": "" if letter.mark is None else letter.mark.reason,
        "key": _base64(content.key),
        "value": _base64(content.value),
        "headers": [[header.name, _base64(header.value)] for header in content.headers],
    }


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@app.command("drop")
@audited("dead-letters drop")
@with_option_groups
def drop_(
    processor: Processor,
    why: Annotated[str, typer.Option(help="Why the letters need no retry; stored with each letter.")],
    *,
    chosen: SelectionOptions,
    yes: Yes = False,
    connection: Connection,
) -> None:
    """Mark pending letters as handled without a retry. They stay readable until they expire.

    Example: penstock dead-letters drop delays --offset 12 --why "a test message"
    """
    bus, selection = connection.open(), chosen.selection()
    pending = sum(letter.mark is None and selection(letter) for letter in read_letters(bus, processor))
    if not pending:
        note(f"{processor} has no pending letters of this selection. Nothing was written.")
        return
    _confirm(f"Drop {counted(pending, 'letter')} of {processor}?", yes=yes)
    _report(drop(bus, processor, selection, why), LetterState.DROPPED.value)


def _confirm(question: str, *, yes: bool) -> None:
    if not yes:
        typer.confirm(question, abort=True)


def _report(result: HandlingResult, action: str) -> None:
    note(f"{counted(result.handled, 'letter')} {action}.")
    refused: Sequence[tuple[str, int]] = list(result.refused.items())
    for reason, count in refused:
        note(f"{counted(count, 'letter')} pending: {reason}")
