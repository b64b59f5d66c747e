"""The HTTP interface of Scuba.

GET  /           the page; its files are in page/, and shared ones in ops/dashboard/page/
GET  /tables     the tables, their columns, and how far they are behind
POST /query      aggregates by group and time: an `ExploreQuery`
POST /samples    rows as they are: a `SampleQuery`
POST /sql        a SELECT: {"sql": "…"}
POST /histogram  the distribution of a column: a `HistogramQuery`
POST /app        a query as an app in SQL: an `AppQuery`
POST /places     an aggregate by latitude and longitude: a `PlacesQuery`
GET  /health     whether it runs

`?format=csv` or `?format=parquet` of the first three POSTs returns a file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...processors.errors import PenstockError
from ..dashboard.access import Access, AccessMiddleware
from ..dashboard.site import PAGE as DASHBOARD_PAGE
from ..serving.parameters import BadQuery
from .answers import SavedApp
from .explorer import Busy, Explorer
from .export import FileFormat
from .queries import AppQuery, ExploreQuery, HistogramQuery, PlacesQuery, SampleQuery, SqlQuery
from .warehouse_files import WarehouseUnreadable

PAGE = Path(__file__).parent / "page"
MAX_BODY = 1 << 20
"""The largest body of a request, in bytes."""
_encode = msgspec.json.Encoder(enc_hook=str).encode
Query = TypeVar("Query")


class TooLarge(PenstockError):
    """A request is too large."""


def create_site(explorer: Explorer, access: Access, save: Callable[[AppQuery], str]) -> Starlette:
    """Return the web application.

    Args:
        explorer: answers queries.
        access: the access rules.
        save: returns the SQL file of a query.
    """
    routes = [
        Route("/", lambda _: FileResponse(PAGE / "index.html")),
        Mount("/page", StaticFiles(directory=PAGE, follow_symlink=True)),
        Mount("/shared", StaticFiles(directory=DASHBOARD_PAGE, follow_symlink=True)),
        Route("/tables", _answering(lambda _: explorer.tables())),
        Route("/health", _answering(lambda _: {"status": "running"})),
        Route("/query", _asking(ExploreQuery, explorer.explore, explorer.exported), methods=["POST"]),
        Route("/samples", _asking(SampleQuery, explorer.samples, explorer.exported), methods=["POST"]),
        Route("/sql", _asking(SqlQuery, lambda query: explorer.select(query.sql), explorer.exported), methods=["POST"]),
        Route("/histogram", _asking(HistogramQuery, explorer.histogram), methods=["POST"]),
        Route("/app", _asking(AppQuery, lambda query: SavedApp(save(query))), methods=["POST"]),
        Route("/places", _asking(PlacesQuery, explorer.places), methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(AccessMiddleware, access=access, open_paths={"/health"})],
        exception_handlers={PenstockError: _error_response},
    )


def _answering(answer: Callable[[Request], Any]) -> Callable[[Request], Response]:
    return lambda request: _json(answer(request))


def _asking(
    kind: type[Query], answer: Callable[[Query], Any], file: Callable[[Query, str], bytes] | None = None
) -> Callable[[Request], Any]:
    """Return a handler of queries.

    Args:
        kind: the type of a query.
        answer: answers one.
        file: answers one as a file, with `?format=csv` or `?format=parquet`; None if there are no files.
    """

    async def handle(request: Request) -> Response:
        query = _decoded(await _body(request), kind)
        form = request.query_params.get("format", "json")
        if form == "json":
            return _json(await run_in_threadpool(answer, query))
        if file is None or form not in {each.value for each in FileFormat}:
            raise BadQuery(
                f"format={form} is unknown here. Pass csv or parquet with /query, /samples or /sql, or leave it out for JSON."
            )
        content = await run_in_threadpool(file, query, form)
        disposition = {"Content-Disposition": f'attachment; filename="penstock.{form}"'}
        return Response(content, media_type=FileFormat(form).media_type, headers=disposition)

    return handle


def _decoded(body: bytes, kind: type[Query]) -> Query:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise BadQuery(
            f"The request is no valid query: {error}. Nothing was read. Correct it; docs/scuba.md lists the fields."
        ) from error


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise TooLarge(f"The request has more than {MAX_BODY:,} bytes. Send a smaller one.")
    return bytes(body)


def _json(content: Any, status: int = 200) -> Response:
    return Response(_encode(content), status, media_type="application/json")


async def _error_response(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the signature of a handler
    statuses: dict[type[Exception], int] = {BadQuery: 400, WarehouseUnreadable: 400, Busy: 503, TooLarge: 413}
    status = next((status for kind, status in statuses.items() if isinstance(error, kind)), 500)
    return _json({"message": str(error)}, status)
