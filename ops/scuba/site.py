"""The HTTP interface of Scuba.

GET  /           the page; its files are in page/, and shared ones in ops/dashboard/page/
GET  /tables     the tables, their columns, and how far they are behind
POST /query      aggregates by group and time: an `ExploreQuery`
POST /samples    rows as they are: a `SampleQuery`
POST /sql        a SELECT: {"sql": "…"}
GET  /health     whether it runs
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
from ..dashboard.access import Access, AccessMiddleware, GuardedSite
from ..dashboard.site import PAGE as DASHBOARD_PAGE
from ..serving.parameters import BadQuery
from .explorer import Busy, Explorer
from .queries import ExploreQuery, SampleQuery, SqlQuery

SCUBA = GuardedSite("Scuba server", "the content of events", "penstock scuba serve", "PENSTOCK_SCUBA_TOKEN")
PAGE = Path(__file__).parent / "page"
MAX_BODY = 1 << 20
"""The largest body of a request, in bytes."""
_encode = msgspec.json.Encoder(enc_hook=str).encode
Query = TypeVar("Query")


class TooLarge(PenstockError):
    """A request is too large."""


def create_site(explorer: Explorer, access: Access) -> Starlette:
    """Return the web application.

    Args:
        explorer: answers queries.
        access: the access rules.
    """
    routes = [
        Route("/", lambda _: FileResponse(PAGE / "index.html")),
        Mount("/page", StaticFiles(directory=PAGE, follow_symlink=True)),
        Mount("/shared", StaticFiles(directory=DASHBOARD_PAGE, follow_symlink=True)),
        Route("/tables", _answering(lambda _: explorer.tables())),
        Route("/health", _answering(lambda _: {"status": "running"})),
        Route("/query", _asking(ExploreQuery, explorer.explore), methods=["POST"]),
        Route("/samples", _asking(SampleQuery, explorer.samples), methods=["POST"]),
        Route("/sql", _asking(SqlQuery, lambda query: explorer.select(query.sql)), methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(AccessMiddleware, access=access, open_paths={"/health"})],
        exception_handlers={PenstockError: _error_response},
    )


def _answering(answer: Callable[[Request], Any]) -> Callable[[Request], Response]:
    return lambda request: _json(answer(request))


def _asking(kind: type[Query], answer: Callable[[Query], Any]) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        return _json(await run_in_threadpool(answer, _decoded(await _body(request), kind)))

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
    statuses: dict[type[Exception], int] = {BadQuery: 400, Busy: 503, TooLarge: 413}
    return _json({"message": str(error)}, statuses.get(type(error), 500))
