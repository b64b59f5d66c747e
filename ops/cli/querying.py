"""`penstock query`: results from a remote store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from json import dumps
from typing import Annotated, Any

import typer

from ...processors.apps import AppName
from ...processors.errors import AppFileError
from ...processors.kinds import Aggregator
from ...processors.monoids.plain import shown
from ...processors.windows import Window
from ...state.checkpoints import is_remote
from ...state.remote import RemoteResults, read_results
from .options import AsJson, Store
from .output import as_json, table
from .times import parse_time_ms, shown_window

Found = tuple[str, Window, Any]


def query(
    target: Annotated[str, typer.Argument(metavar="APP:PROCESSOR", help="An aggregator with a remote store.")],
    key: Annotated[str | None, typer.Option("--key", help="Only this key.", show_default=False)] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Only the window that holds this event time; asks for a key.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many results.")] = 100,
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Print what an aggregator has come to, by key and window, as the store says that it keeps its state in.

    Example: penstock query app.py:Hours --key EWR --at 2013-07-01T10:00 --store postgresql://localhost/penstock
    """
    if at is not None and key is None:
        raise typer.BadParameter("A time alone would be looked for in every shard; name the key with --key.")
    if store is None:
        raise typer.BadParameter("Name the store with --store, or in the environment variable PENSTOCK_STORE.")
    processor = _aggregator(target)
    with read_results(store, processor) as results:
        found = list(islice(_find(results, processor, key, None if at is None else parse_time_ms(at), limit), limit))
    if json:
        for of_key, window, value in found:
            as_json({"key": of_key, "start": window.start, "end": window.end, "value": shown(value)})
        return
    rows = [[of_key, shown_window(window), dumps(shown(value), ensure_ascii=False)] for of_key, window, value in found]
    table(["key", "window", "value"], rows)


def _aggregator(target: str) -> type[Aggregator]:
    processors = AppName.parse(target).load().processors
    if len(processors) == 1 and issubclass(processors[0], Aggregator) and is_remote(processors[0]):
        return processors[0]
    raise AppFileError(
        f"{target} is not an aggregator with `store = penstock.Remote(…)`, so no store can be asked about it. Name one as "
        "APP.py:PROCESSOR; for state beside the worker there is `penstock state inspect`."
    )


def _find(
    results: RemoteResults, processor: type[Aggregator], key: str | None, at_ms: int | None, limit: int
) -> Iterator[Found]:
    if key is None:
        yield from results.scan(limit)
    elif at_ms is None:
        yield from ((key, window, value) for window, value in results.results(key))
    else:
        for start in processor.window.spread([at_ms]).starts:
            window = processor.window.window(start)
            value = results.result(key, window)
            if value is not None:
                yield key, window, value
