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

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from ...processors.errors import DeclarationError, PenstockError
from ...processors.models.conversion import encode_shown
from .access import Access
from .follower import NotReady
from .grafana import GrafanaQueries
from .openapi import openapi
from .parameters import BadQuery, Parameters
from .queries import Queries, UnknownProcessor

_LOG = logging.getLogger("penstock.serve")
MAX_BODY = 1 << 20
"""The largest body of a request, in bytes."""
_PREFIX = "/v1/processors"
_encode = msgspec.json.Encoder(enc_hook=encode_shown).encode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Answer(NamedTuple):
    """A status code and a JSON value."""

    status: int
    value: Any


class QueryApi:
    """The ASGI application.

    Args:
        queries: answers the queries.
        access: the access rules.
    """

    def __init__(self, queries: Queries, access: Access) -> None:
        self._queries = queries
        self._access = access
        self._grafana = GrafanaQueries(queries)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        refused = self._access.refusal(dict(scope["headers"]))
        if refused is not None and scope["path"] not in {"/health", "/ready"}:
            answer = Answer(401 if self._access.token else 403, {"message": refused})
        else:
            answer = self._answer(scope, await _body(receive) if scope["method"] == "POST" else b"")
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        if answer.status == 503:
            headers.append((b"retry-after", b"1"))
        body = _encode(answer.value)
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _answer(self, scope: Scope, body: bytes | None) -> Answer:
        try:
            return self._answer_valid(scope, body)
        except NotReady as error:
            return Answer(503, {"message": str(error)})
        except UnknownProcessor as error:
            return Answer(404, {"message": str(error)})
        except (BadQuery, DeclarationError) as error:
            return Answer(400, {"message": str(error)})
        except PenstockError as error:
            _LOG.exception("A query failed.")
            return Answer(500, {"message": str(error)})

    def _answer_valid(self, scope: Scope, body: bytes | None) -> Answer:
        if body is None:
            return Answer(413, {"message": f"The request has more than {MAX_BODY:,} bytes. Send a smaller one."})
        if scope["method"] == "POST":
            return Answer(200, self._grafana.answer(scope["path"], body))
        if scope["method"] not in {"GET", "HEAD"}:
            return Answer(405, {"message": "This server only reads. Send GET."})
        return self._get(scope["path"], scope["query_string"])

    def _get(self, path: str, query: bytes) -> Answer:
        if path == "/health":
            return Answer(200, {"status": "running"})
        if path == "/ready":
            self._queries.expect_ready()
            return Answer(200, {"ready": True, "problem": self._queries.follower.problem})
        if path == "/openapi.json":
            return Answer(200, openapi(self._queries.served.values()))
        if path == "/":
            return Answer(200, {"service": "penstock", "processors": list(self._queries.served)})
        if path.startswith(_PREFIX):
            return self._of_processor(path[len(_PREFIX) :].strip("/"), query)
        return Answer(404, {"message": f"There is nothing at {path}. See /openapi.json."})

    def _of_processor(self, rest: str, query: bytes) -> Answer:
        if not rest:
            return Answer(200, {"processors": [self._queries.info(name) for name in self._queries.served]})
        name, _, what = rest.partition("/")
        parameters = Parameters(_parsed(query))
        match what:
            case "results":
                return Answer(200, self._queries.results(name, parameters))
            case "top":
                return Answer(200, self._queries.top(name, parameters))
            case "keys":
                return Answer(200, self._queries.keys(name, parameters))
            case "":
                parameters.expect_only()
                return Answer(200, self._queries.info(name))
        return Answer(404, {"message": f"There is no {what!r} of a processor. Ask for results, top or keys."})


def _parsed(query: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1_100)
    except (ValueError, UnicodeDecodeError):
        raise BadQuery("The query string is no UTF-8, or has more than 1,100 parameters. Encode it as a URL.") from None


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
