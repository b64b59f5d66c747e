"""`penstock category`: creates, shows, changes and deletes categories."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ....processors import counted, printable
from ....processors.apps import AppName, names_app
from ....processors.declare import Message
from ....processors.time import nearest_datetime
from ....transport import (
    POLL_WAIT_S,
    Bucket,
    BucketFollower,
    BucketMismatch,
    Bus,
    CategoryExists,
    CategorySpec,
    CategoryState,
    RawBatch,
    old_transactions,
    ranges_to_end,
    read_offset_ranges,
)
from ....transport.codecs import decode_any, is_of_registry
from ....transport.tables import Schemas
from ...change import resize
from ...kernel import note_similar, specs_of
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    Cluster,
    Folder,
    Kafka,
    audited,
    connect,
    connect_to,
    is_given,
    note,
    out,
    parse_span,
    parse_start,
    print_facts,
    print_json,
    print_table,
    with_clusters,
    with_option_groups,
)
from ...start import RegistryOptions
from .category_send import send_command
from .category_users import running_users

app = typer.Typer(help="Create, show, change and delete categories.", no_args_is_help=True)
app.command()(resize)
app.command("send")(send_command)

Name = Annotated[str, typer.Argument(help="The category's name.")]


@app.command()
@audited("category create")
def create(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(help="A name, or an app (a file or module) for all categories of its processors.")
    ],
    buckets: Annotated[int, typer.Option(help="The number of buckets, for a name.", min=1)] = 8,
    retention: Annotated[str, typer.Option(help="The retention of events, for a name: 12h, 7d, or ever.")] = "7d",
    cluster: Cluster = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Create a category, or all missing categories of an app.

    Example: penstock category create examples/flights/app.py
    """
    if names_app(target):
        if cluster is not None:
            raise typer.BadParameter(
                "--cluster is for a category by its name. The categories of an app declare their clusters themselves."
            )
        for option in ("buckets", "retention"):
            if is_given(context, option):
                raise typer.BadParameter(
                    f"--{option} is for a category by its name. The categories of an app declare it themselves: `{option}=…` in {target}."
                )
        name = AppName.parse(target)
        declared = name.load_declarations().categories()
        bus = with_clusters(connect(kafka, folder), kafka, declared)
        existing, specs = set(bus.catalog.names()), specs_of(name)
        for spec in specs:
            _create_if_missing(bus, spec)
        note_similar(name, [spec for spec in specs if spec.name not in existing], existing)
    else:
        connect_to(cluster, kafka, folder).catalog.create(
            CategorySpec(target, buckets, None if retention == "ever" else parse_span(retention))
        )
        note(f"Created {target} with {counted(buckets, 'bucket')}.")


def _create_if_missing(bus: Bus, spec: CategorySpec) -> None:
    try:
        bus.catalog.create(spec)
    except CategoryExists:
        existing = bus.catalog.describe(spec.name).spec
        if existing.buckets != spec.buckets:
            raise BucketMismatch(
                f"{spec.name} exists with {counted(existing.buckets, 'bucket')}, but the app declares {spec.buckets}. It was not changed. Declare "
                f"buckets={existing.buckets}, or add buckets: `penstock category resize {spec.name} {spec.buckets} --app …`."
            ) from None
        note(f"{spec.name} already exists.")
        _note_timestamps(bus, spec.name)
    else:
        note(f"Created {spec.name} with {counted(spec.buckets, 'bucket')}.")


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(help="The category's name; the default is a list of all.", show_default=False)
    ] = None,
    cluster: Cluster = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """List the categories in Kafka, or show the settings of one, and the first and last offset of each of its buckets.

    Example: penstock category show departures
    """
    bus = connect_to(cluster, kafka, folder)
    if name is None:
        _list(bus, json=json)
    else:
        _describe(bus, name, json=json)


def _list(bus: Bus, *, json: bool) -> None:
    states = list(bus.catalog.describe_all(bus.catalog.names()).values())
    if json:
        print_json([_summary(state) for state in states])
        return
    print_table(
        ("category", "buckets", "events", "retention"),
        [(s.spec.name, s.spec.buckets, s.events, _retention(s)) for s in states],
    )


def _describe(bus: Bus, name: str, *, json: bool) -> None:
    state = bus.catalog.describe(name)
    if json:
        print_json({**_summary(state), "starts": state.starts, "ends": state.ends})
        return
    print_facts(
        {"category": name, "buckets": state.spec.buckets, "events": f"{state.events:,}", "retention": _retention(state)}
    )
    print_table(("bucket", "start", "end"), [(bucket, state.starts[bucket], end) for bucket, end in state.ends.items()])
    _note_timestamps(bus, name)
    _note_open_transactions(bus, name)


def _note_timestamps(bus: Bus, name: str) -> None:
    if warning := bus.catalog.durability(name).timestamp_warning(name):
        note(warning)


def _note_open_transactions(bus: Bus, name: str) -> None:
    now_ms = round(time.time() * 1000)
    for transaction in old_transactions(bus, [name], now_ms):
        note(transaction.report(now_ms))


@app.command()
def tail(
    name: Name,
    start: Annotated[
        str | None,
        typer.Option("--from", help='An offset, a time, or "5m ago"; the default is the end.', show_default=False),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Stop after this number of records.", min=1, show_default=False)
    ] = None,
    bucket: Annotated[
        list[int] | None, typer.Option(help="Only this bucket; repeatable.", min=0, show_default=False)
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key.", show_default=False)] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Only records for which an SQL condition on their fields holds. A missing field is NULL.",
            show_default=False,
        ),
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Show the headers.")] = False,
    follow: Annotated[bool, typer.Option(help="Wait for new records at the end.")] = True,
    cluster: Cluster = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Print a category's decoded records as they arrive.

    Example: penstock category tail scored --from "5m ago" --limit 10

    Example: penstock category tail orders --from 0 --no-follow --where "amount > 100 AND city LIKE 'K%'"
    """
    from ....processors.sql import JsonCondition  # noqa: PLC0415 - an SQL parser is slow to import

    condition = None if where is None else JsonCondition("--where", where)
    bus = connect_to(cluster, kafka, folder)
    schemas = Schemas(bus)
    count = read = 0
    is_noted = False
    for place, message in _messages(bus, name, start, bucket, follow=follow):
        read += 1
        if key is not None and key_text(message.key()) != key:
            continue
        value = decode_any(message.value(), schemas)
        if condition is not None and not condition(value):
            continue
        if not is_noted and is_of_registry(message.value()):
            is_noted = True
            note(
                f"Values of {name} begin with the id of a schema in a registry, so they are shown as bytes. `penstock category infer {name} --registry URL` "
                "prints the declaration that decodes them."
            )
        _show(_described(place, message, value, headers=headers), json=json)
        count += 1
        if count == limit:
            return
    if condition is not None and condition.mismatched:
        records = counted(condition.mismatched, "record")
        note(f"The condition does not fit the types of the fields of {records} of {read:,}.")
    elif not read and start is None:
        note(f"No record was read: without --from, this begins at the end of {name}. Add `--from 0` for all records.")
    elif not read:
        note(f"No record was read: {name} has none from {start} on.")
    elif not count:
        unseen = "" if condition is None else ", ".join(sorted(condition.unseen))
        advice = f" None has a value in {unseen}: check the names in --where." if unseen else ""
        note(f"No record was shown; {counted(read, 'record')} read.{advice}")
    _note_open_transactions(bus, name)


def _described(place: Bucket, message: Message, value: Any, *, headers: bool) -> dict[str, Any]:
    described = {
        "category": place.category,
        "bucket": place.number,
        "offset": message.offset(),
        "arrived": nearest_datetime(message.timestamp()[1]).isoformat(timespec="milliseconds"),
        "key": key_text(message.key()),
        "value": value,
    }
    if headers:
        described["headers"] = {header: key_text(content) for header, content in message.headers() or ()}
    return described


def _show(record: dict[str, Any], *, json: bool) -> None:
    category = record.pop("category")
    if json:
        print_json(record)
        return
    line = f"{category}/{record['bucket']}@{record['offset']} {record['arrived']} {record['key']} {record['value']}"
    line += f" {record['headers']}" if record.get("headers") else ""
    out.out(printable(line), highlight=False)


def key_text(key: bytes | None) -> str | None:
    """Return a key as text."""
    return None if key is None else key.decode(errors="backslashreplace")


def _messages(
    bus: Bus, name: str, start: str | None, numbers: Sequence[int] | None, *, follow: bool
) -> Iterator[tuple[Bucket, Message]]:
    state = bus.catalog.describe(name)
    unknown = sorted(set(numbers or ()) - state.ends.keys())
    if unknown:
        raise typer.BadParameter(f"{name} has no bucket {unknown[0]}: its buckets are 0 to {len(state.ends) - 1}.")
    starts = {number: at for number, at in _starts(bus, state, start).items() if numbers is None or number in numbers}
    batches = _followed(bus, name, starts) if follow else read_offset_ranges(bus, ranges_to_end(bus, name, starts))
    for batch in batches:
        for message in batch.messages:
            yield batch.bucket, message


def _followed(bus: Bus, name: str, starts: Mapping[int, int]) -> Iterator[RawBatch]:
    with closing(BucketFollower(bus, {Bucket(name, n): offset for n, offset in starts.items()})) as follower:
        while True:
            yield from follower.poll(POLL_WAIT_S)


def _starts(bus: Bus, state: CategoryState, start: str | None) -> dict[int, int]:
    if start is None:
        return dict(state.ends)
    since = parse_start(start, datetime.now(tz=UTC))
    if isinstance(since, datetime):
        return bus.catalog.at_time(state.spec.name, since)
    return {bucket: min(max(since, first), state.ends[bucket]) for bucket, first in state.starts.items()}


@app.command()
@with_option_groups
def infer(
    name: Annotated[str, typer.Argument(metavar="NAME | FILE.sql", help="The topic's name, or an SQL file.")],
    sample: Annotated[int, typer.Option(help="The number of latest messages of each topic to look at.", min=1)] = 1_000,
    *,
    registry: RegistryOptions,
    cluster: Cluster = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Print a Python declaration of a topic: record, key, event time, codec and partitioner. Of an SQL file, print it with the types of columns that it leaves out.

    Recognises JSON, CSV, MessagePack, text, CloudEvents, changes of Debezium, and Avro, JSON and Protobuf with a schema registry. The declaration is a
    proposal from a sample: check it before you use it. Nothing is written to Kafka or the registry.

    Example: penstock category infer orders --registry http://localhost:8081 > orders.py

    Example: penstock category infer top_events.sql > typed.sql
    """
    from ...start import declaration_of, read_sample, with_types  # noqa: PLC0415 - only for this command

    named, bus = registry.named(), connect_to(cluster, kafka, folder)
    if name.endswith(".sql"):
        from ....processors.sql import SqlText  # noqa: PLC0415 - an SQL parser is slow to import

        typed = with_types(SqlText.read(Path(name)), lambda topic: read_sample(bus, topic, sample), named)
        out.out(typed, highlight=False, end="")
        return
    out.out(declaration_of(read_sample(bus, name, sample), named), highlight=False)
    _note_open_transactions(bus, name)


@app.command()
@audited("category delete")
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    cluster: Cluster = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Delete a category and all its events.

    Example: penstock category delete clicks --yes
    """
    bus = connect_to(cluster, kafka, folder)
    events = bus.catalog.describe(name).events
    users = running_users(bus, folder, name) if cluster is None else ""
    if users:
        note(f"{users} Stop them first: `penstock undeploy NAME`.")
    if not yes:
        typer.confirm(f"Delete {name} and its {counted(events, 'event')} permanently?", abort=True)
    bus.catalog.delete(name)
    note(f"Deleted {name} and its {counted(events, 'event')}.")


def _summary(state: CategoryState) -> dict[str, Any]:
    retention = state.spec.retention
    return {
        "category": state.spec.name,
        "buckets": state.spec.buckets,
        "events": state.events,
        "retention_s": None if retention is None else retention.total_seconds(),
        "compacted": state.spec.compacted,
        **({"unknown": dict(state.unknown)} if state.unknown else {}),
    }


def _retention(state: CategoryState) -> str:
    if state.spec.compacted:
        return "latest of each key"
    if state.retention_is_unknown:
        return "unknown"
    if state.spec.retention is None:
        return "forever"
    return str(state.spec.retention).removesuffix(", 0:00:00")
