"""`penstock query`: prints results from a query server, a remote store, or batch and stream together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....backfill.warehouse import Days, open_warehouse
from ....processors import AppFileError, counted
from ....processors.apps import APP_SUFFIXES, AppName
from ....processors.declare import Aggregator, plan_of
from ....processors.monoids import to_json_value
from ....processors.shard import is_remote
from ....processors.time import Window
from ....state.remote import RemoteResults, read_results
from ....transport import Bus
from ...http import read_secret
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    BatchOutput,
    First,
    Folder,
    Kafka,
    Last,
    OneDay,
    Store,
    Warehouse,
    WebHdfs,
    batch_output_location,
    connect,
    expect_main_cluster,
    format_time,
    format_window,
    note,
    parse_day,
    parse_days,
    parse_time_ms,
    print_json,
    print_table,
    warehouse_location,
)
from ..results import DEFAULT_URL
from .query_server import Server, ServerAccess, ServerQuery, print_answer
from .server_options import RESULTS, ResultsToken

if TYPE_CHECKING:
    from ....backfill.compare import HybridResult, StreamSide

Found = tuple[str, Window, Any]


def query(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="PROCESSOR | APP:PROCESSOR",
            help="The name of a processor that a query server serves. With --store, an aggregator of an app; with --hybrid, one with outputs.",
            show_default=False,
        ),
    ] = None,
    key_argument: Annotated[
        str | None, typer.Argument(metavar="KEY", help="This key only.", show_default=False)
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The same as KEY.", show_default=False)] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="The window of this event time only; in a store, it needs a key.",
            show_default=False,
        ),
    ] = None,
    span: Annotated[
        str | None,
        typer.Option(
            "--last",
            metavar="DURATION",
            help="The windows of the last 30s, 5m, 2h or 7d, of a server.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", min=1, help="The N largest results of all keys, of a server.", show_default=False),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="FIELD", help="The field that ranks with --top.", show_default=False),
    ] = None,
    server: Server = DEFAULT_URL,
    token_file: ResultsToken = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--tls-ca", help="The certificates to trust (PEM), for a server with TLS.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The largest number of results.")] = 100,
    store: Store = None,
    hybrid: Annotated[
        bool,
        typer.Option(
            "--hybrid", help="Read complete days from the batch output, and other days from the live results."
        ),
    ] = False,
    first: First = None,
    last: Last = None,
    day: OneDay = None,
    batch_until: Annotated[
        str | None,
        typer.Option(
            "--batch-until",
            metavar="DAY",
            help="With --hybrid: treat days up to this one as complete.",
            show_default=False,
        ),
    ] = None,
    output: BatchOutput = None,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Print results by key, window and rank, from a server that `penstock serve results` started. Without PROCESSOR, list what it serves.

    Example: penstock query views_per_page / --last 1h

    Example: penstock query views_per_page --top 10 --by views

    APP:PROCESSOR names an aggregator with a remote store, and prints the results from there.

    Example: penstock query app.py:Hours EWR --at 2013-07-01T10:00 --store postgresql://localhost/penstock

    With --hybrid, complete days come from the batch output, and other days from the store, or from Kafka for local state.

    Example: penstock query examples/flights/app.py:Ranker --hybrid --from 2013-01-01 --to 2013-01-31 --key UA
    """
    key = _only_key(key_argument, key)
    if not hybrid and not _names_app(target):
        if (first, last, day, batch_until) != (None,) * 4:
            raise typer.BadParameter("Days need --hybrid. A server is queried with --at or --last.")
        access = ServerAccess(server, read_secret(token_file, RESULTS.variable), ca_file)
        print_answer(access, ServerQuery(target, key, at, span, top, by, limit), json=json)
        return
    if target is None or (span, top, by) != (None,) * 3:
        raise typer.BadParameter(
            "--last, --top and --by are for a query server: name the processor without its app. Start a server with `penstock serve results APP`."
        )
    if hybrid:
        if at is not None:
            raise typer.BadParameter("--at and --hybrid exclude each other. Name the window's day with --day.")
        from ....backfill.compare import BatchSide, hybrid_results  # noqa: PLC0415 - Arrow is slow to import, and a query of a store does without

        processor = aggregator_with_results(target)
        until = None if batch_until is None else parse_day(batch_until)
        archive = open_warehouse(warehouse_location(warehouse, folder), webhdfs)
        batch = BatchSide(archive, open_warehouse(batch_output_location(output, folder), webhdfs), until)
        with _live(processor, store, partial(connect, kafka, folder)) as live:
            _show(hybrid_results(processor, batch, live, Days(*parse_days(first, last, day)), key), limit, json=json)
        return
    if (first, last, day, batch_until) != (None,) * 4:
        raise typer.BadParameter("Days need --hybrid. A store alone is queried with --key and --at.")
    if at is not None and key is None:
        raise typer.BadParameter("--at needs --key: a time alone requires a scan of every shard.")
    if store is None:
        raise typer.BadParameter(
            "Name the store with --store or the environment variable PENSTOCK_STORE. To query a server, name the processor without its app."
        )
    processor = _aggregator(target)
    with read_results(store, processor) as results:
        found = list(islice(_find(results, processor, key, None if at is None else parse_time_ms(at), limit), limit))
    _show_found(found, json=json)


def _show_found(found: Sequence[Found], *, json: bool) -> None:
    if json:
        for key, window, value in found:
            print_json({"key": key, "start": window.start, "end": window.end, "value": to_json_value(value)})
        return
    rows = [
        [key, format_window(window), dumps(to_json_value(value), ensure_ascii=False)] for key, window, value in found
    ]
    print_table(["key", "window", "value"], rows)


def _only_key(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None:
        raise typer.BadParameter("Name the key once, as KEY or with --key.")
    return option if argument is None else argument


def _names_app(target: str | None) -> bool:
    """Return whether a target names a processor by its app; names of processors on a server contain no colon."""
    return target is not None and (":" in target or target.endswith(APP_SUFFIXES))


def aggregator_with_results(target: str) -> type[Aggregator]:
    """Return the only aggregator that a target names, if it has results."""
    from ....backfill.compare import expect_results  # noqa: PLC0415 - as in `query`

    processors = AppName.parse(target).load().processors
    if len(processors) != 1:
        raise AppFileError(f"{target} has {counted(len(processors), 'processor')}. Name one, as APP.py:PROCESSOR.")
    expect_main_cluster(
        plan_of(processors[0]).outputs,
        "queried",
        "Query it where --kafka is its cluster, with a declaration without `cluster`.",
    )
    return expect_results(target, processors[0])


@contextmanager
def _live(processor: type[Aggregator], store: str | None, bus: Callable[[], Bus]) -> Iterator[StreamSide]:
    """Yield the source of incomplete days; it connects on its first use."""
    from ....backfill.compare import live_from_bus, live_from_store  # noqa: PLC0415 - as in `query`

    if not is_remote(processor):
        yield live_from_bus(bus, plan_of(processor).outputs[0])
    elif store is None:
        raise typer.BadParameter("Name the store with --store or the environment variable PENSTOCK_STORE.")
    else:
        with read_results(store, processor) as results:
            yield live_from_store(results, processor)


def _show(found: Sequence[HybridResult], limit: int, *, json: bool) -> None:
    if json:
        for result in found[:limit]:
            record = to_json_value(result.record)
            print_json({"key": result.key, "event_time": result.event_time, "record": record, "from": result.source})
    else:
        rows = [
            (
                result.key,
                format_time(result.event_time),
                dumps(to_json_value(result.record), ensure_ascii=False),
                result.source,
            )
            for result in found[:limit]
        ]
        print_table(["key", "event time", "record", "from"], rows)
    if len(found) > limit:
        note(
            f"Only the first {limit:,} of {len(found):,} results are shown. Name fewer days or a key, or increase --limit."
        )


def _aggregator(target: str) -> type[Aggregator]:
    processors = AppName.parse(target).load().processors
    if len(processors) == 1 and issubclass(processors[0], Aggregator) and is_remote(processors[0]):
        return processors[0]
    raise AppFileError(
        f"{target} is not an aggregator with `store = penstock.RemoteStore(…)`, so it has no store to query. Name an aggregator, as "
        "APP.py:PROCESSOR. For local state, use `penstock state show`."
    )


def _find(
    results: RemoteResults, processor: type[Aggregator], key: str | None, at_ms: int | None, limit: int
) -> Iterator[Found]:
    if key is None:
        yield from results.scan(limit)
    elif at_ms is None:
        yield from ((key, window, value) for window, value in results.results(key))
    else:
        for start in processor.window.assign([at_ms]).starts:
            window = processor.window.window(start)
            value = results.result(key, window)
            if value is not None:
                yield key, window, value
