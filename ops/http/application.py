"""The web applications of Penstock: routes behind access rules. Errors, and the answers to unknown paths, are JSON with a message."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar, cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ...processors import PenstockError
from .access import Access
from .guard import AccessMiddleware, JsonAnswer

MAX_BODY = 1 << 20
"""The largest body of a request, in bytes."""
_LOG = logging.getLogger("penstock.http")
_Body = TypeVar("_Body")


def create_application(
    routes: Sequence[BaseRoute],
    access: Access,
    statuses: Mapping[type[PenstockError], int],
    *,
    guard: type[AccessMiddleware] = AccessMiddleware,
    open_paths: Collection[str] = (),
    advice: str = "",
) -> Starlette:
    """Return a web application.

    Args:
        routes: its routes.
        access: the access rules.
        statuses: the status codes of errors. An error of another kind has the one of its nearest base class; without any, it is logged, with 500.
        guard: enforces the access rules.
        open_paths: paths that need no token.
        advice: what to ask instead, for requests with an unknown path or method.
    """

    async def failed(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the signature of a handler
        if isinstance(error, BodyRefused):
            return JsonAnswer({"message": str(error)}, error.status)
        status = next((statuses[kind] for kind in type(error).__mro__ if kind in statuses), None)
        if status is None:
            _LOG.error("A request failed.", exc_info=error)
        headers = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        return JsonAnswer({"message": str(error)}, status or HTTPStatus.INTERNAL_SERVER_ERROR, headers)

    async def unknown(request: Request, error: Exception) -> Response:
        refused = cast("HTTPException", error)
        message = f"{request.method} {request.url.path}: {refused.detail}. {advice}".strip()
        return JsonAnswer({"message": message}, refused.status_code, refused.headers)

    return Starlette(
        routes=routes,
        middleware=[Middleware(guard, access=access, open_paths=open_paths)],
        exception_handlers={PenstockError: failed, HTTPException: unknown},
    )


class BodyRefused(PenstockError):
    """The body of a request is too large, or did not arrive.

    Args:
        status: the status code of the answer.
        message: the reason.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def body_of(request: Request) -> bytes:
    """Return the body of a request. Call it after the client's rights are checked: it needs memory.

    Raises:
        BodyRefused: it is too large, or its client has disconnected.
    """
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY:
                raise BodyRefused(
                    413, f"The request has more than {MAX_BODY:,} bytes. Nothing was done. Send a smaller one."
                )
    except ClientDisconnect:
        raise BodyRefused(400, "The client disconnected before the end of its request. Nothing was done.") from None
    return bytes(body)


async def decoded_body(request: Request, kind: type[_Body], refused: type[PenstockError]) -> _Body:
    """Return the JSON body of a request as a type.

    Raises:
        BodyRefused: it is too large, or its client has disconnected.
        PenstockError: it is no JSON of the type; of the class `refused`.
    """
    try:
        return msgspec.json.decode(await body_of(request), type=kind)
    except msgspec.MsgspecError as error:
        raise refused(f"The request is not as expected: {error}. Nothing was changed. Correct it.") from error
