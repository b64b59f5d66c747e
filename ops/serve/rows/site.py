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

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...http import Access, JsonAnswer, PageMiddleware, create_application, decoded_body
from ..dashboard import PAGE as DASHBOARD_PAGE
from ..results import BadQuery
from .answers import SavedApp
from .explorer import Busy, Explorer
from .export import FileFormat
from .queries import AppQuery, ExploreQuery, HistogramQuery, PlacesQuery, SampleQuery, SqlQuery
from .warehouse_files import WarehouseUnreadable

PAGE = Path(__file__).parent / "page"
Query = TypeVar("Query")


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
    statuses = {BadQuery: 400, WarehouseUnreadable: 400, Busy: 503}
    return create_application(routes, access, statuses, guard=PageMiddleware, open_paths={"/health"})


def _answering(answer: Callable[[Request], Any]) -> Callable[[Request], Response]:
    return lambda request: JsonAnswer(answer(request))


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
        query = await decoded_body(request, kind, BadQuery)
        form = request.query_params.get("format", "json")
        if form == "json":
            return JsonAnswer(await run_in_threadpool(answer, query))
        if file is None or form not in {each.value for each in FileFormat}:
            raise BadQuery(
                f"format={form} is unknown here. Pass csv or parquet with /query, /samples or /sql, or leave it out for JSON."
            )
        content = await run_in_threadpool(file, query, form)
        disposition = {"Content-Disposition": f'attachment; filename="penstock.{form}"'}
        return Response(content, media_type=FileFormat(form).media_type, headers=disposition)

    return handle
