"""The HTTP interface of the query server.

GET  /v1/processors                   the processors
GET  /v1/processors/NAME              one of them: fields, windows, lag
GET  /v1/processors/NAME/results      results of keys
GET  /v1/processors/NAME/top          the records with the largest values
GET  /v1/processors/NAME/keys         a page of the keys
GET  /openapi.json                    this interface for programs
GET  /health, /ready                  whether it runs; whether it answers
GET  /  POST /search, /query, …       Grafana's JSON data source
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ....processors import DeclarationError
from ...http import Access, JsonAnswer, body_of, create_application
from .follower import NotReady
from .grafana import GrafanaQueries
from .openapi import openapi
from .parameters import BadQuery, Parameters
from .queries import Queries, UnknownProcessor

_STATUSES = {NotReady: 503, UnknownProcessor: 404, BadQuery: 400, DeclarationError: 400}


def create_api(queries: Queries, access: Access) -> Starlette:
    """Return the web application.

    Args:
        queries: answers the queries.
        access: the access rules.
    """

    def ready() -> Any:
        queries.expect_ready()
        return {"ready": True, "problem": queries.follower.problem}

    def info(name: str, parameters: Parameters) -> Any:
        parameters.expect_only()
        return queries.info(name)

    grafana = GrafanaQueries(queries)
    processor = "/v1/processors/{name}"
    routes = [
        Route(f"{processor}/results", _Asking(queries.results), methods=["GET"]),
        Route(f"{processor}/top", _Asking(queries.top), methods=["GET"]),
        Route(f"{processor}/keys", _Asking(queries.keys), methods=["GET"]),
        Route(processor, _Asking(info), methods=["GET"]),
        Route("/v1/processors", _answering(lambda: {"processors": [queries.info(name) for name in queries.served]})),
        Route("/health", _answering(lambda: {"status": "running"})),
        Route("/ready", _answering(ready)),
        Route("/openapi.json", _answering(lambda: openapi(queries.served.values()))),
        Route("/", _answering(lambda: {"service": "penstock", "processors": list(queries.served)})),
        *(Route(path, _sent(answer), methods=["POST"]) for path, answer in grafana.routes.items()),
    ]
    advice = "See /openapi.json."
    return create_application(routes, access, _STATUSES, open_paths={"/health", "/ready"}, advice=advice)


# Answers come from memory, in less time than the way to another thread takes: handlers are coroutines.


class _Asking:
    """Answers queries of a processor, as an ASGI application: for a function, Starlette would make a request and two more calls for each query."""

    def __init__(self, answer: Callable[[str, Parameters], Any]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = Parameters(_parsed(scope["query_string"]))
        await JsonAnswer(self._answer(scope["path_params"]["name"], parameters))(scope, receive, send)


def _answering(answer: Callable[[], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:  # noqa: ARG001 - the signature of a handler
        return JsonAnswer(answer())

    return handle


def _sent(answer: Callable[[bytes], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return JsonAnswer(answer(await body_of(request)))

    return handle


def _parsed(query: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1_100)
    except (ValueError, UnicodeDecodeError):
        raise BadQuery("The query string is no UTF-8, or has more than 1,100 parameters. Encode it as a URL.") from None
