"""Enforces access rules: of programs, and of web pages such as the dashboard.

token    in ?token=… or a form at the first visit, in a cookie afterwards; or in the header Authorization: Bearer …
POST     from the site's own pages; JSON also from programs, since a page of another site cannot send JSON unasked
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Any

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...processors.models import encode_shown
from ...state import split_address
from .access import Access, ProtectedServer, Token
from .visitors import Visitor, is_equal

_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_LOGIN_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock: token</title></head>
<body><main><h1>Penstock</h1><form method="get" action="./"><p><label>Token
<input name="token" type="password" autocomplete="current-password" autofocus required></label>
<button>Enter</button></p></form><p>Enter the token that <code>{command}</code> was started with.</p></main></body></html>
"""


_JSON_HEADERS = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
_encode = msgspec.json.Encoder(enc_hook=encode_shown).encode


class JsonAnswer(Response):
    """An answer with a JSON value. No cache keeps it.

    Args:
        value: the value. Records in it are encoded, and values of other types are text.
        status: the status code.
        headers: further headers.
    """

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        # Not by `super().__init__`, which builds these headers from texts for each answer: it costs more than a look-up of a result.
        self.status_code = status
        self.background = None
        self.body = _encode(value)
        self.raw_headers = [*_JSON_HEADERS, (b"content-length", b"%d" % len(self.body))]
        if headers:
            self.headers.update(headers)


class AccessMiddleware:
    """Passes permitted requests to the application, and answers all others; for programs.

    Args:
        application: the application.
        access: the access rules.
        open_paths: paths that need no token.
    """

    def __init__(self, application: ASGIApp, access: Access, open_paths: Collection[str] = ()) -> None:
        self._application = application
        self._access = access
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        is_open = scope["path"] in self._open_paths and scope["method"] in {"GET", "HEAD"}
        respond = (None if is_open else self._answer(Request(scope))) or self._application
        await respond(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that does not reach the application; None for a permitted request."""
        headers = request.headers
        if self._access.visitor(headers.get("host", ""), headers.get("authorization", "")) is not None:
            return None
        status, message = self._access.refusal
        return JsonAnswer({"message": message}, status)


class PageMiddleware(AccessMiddleware):
    """The same for pages of browsers: with cookies, a form for the token, and security headers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SECURITY_HEADERS)
            await send(message)

        await super().__call__(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that does not reach the site; None for a permitted request, whose state names the visitor."""
        found = self._visitor(request)
        if isinstance(found, Response):
            return found
        if request.method not in {"GET", "HEAD"} and not (
            _is_same_origin(request, self._host_for_browsers(request)) or _is_program(request)
        ):
            return PlainTextResponse(f"Only the {self._access.server.name}'s own pages may send this request.\n", 403)
        request.state.visitor = found
        return None

    def _host_for_browsers(self, request: Request) -> str:
        """Return the host in the address bar of a browser: a proxy may send another one, and names the first in a header of its own."""
        headers, proxy = request.headers, self._access.proxy
        forwarded = headers.get("x-forwarded-host", "") if proxy is not None and proxy.sent(headers) else ""
        return forwarded or headers.get("host", "")

    def _visitor(self, request: Request) -> Visitor | Response:
        """Return the visitor who sent a request, or the answer without one."""
        access, headers = self._access, request.headers
        if access.proxy is not None and access.proxy.sent(headers):
            return access.proxy.visitor(headers) or PlainTextResponse(
                f"Your user has no access to this {access.server.name}: it is in none of its groups.\n", 403
            )
        if (token := access.token_like(request.query_params.get("token"))) is not None:
            return _log_in(token, access.server)
        if (token := token_in(headers.get("cookie", ""), access)) is not None:
            return token.visitor
        return access.visitor(headers.get("host", ""), headers.get("authorization", "")) or self._refusal()

    def _refusal(self) -> Response:
        server = self._access.server
        if self._access.is_open:
            return PlainTextResponse(
                f"This {server.name} accepts only names of this machine. Open it as 127.0.0.1 or localhost.\n", 403
            )
        if not any(self._access.tokens()):
            return PlainTextResponse(f"Open this {server.name} through its proxy, which logs you in.\n", 401)
        return HTMLResponse(_LOGIN_PAGE.replace("{command}", server.command), 401)


def _log_in(token: Token, server: ProtectedServer) -> Response:
    """Set the cookie, and redirect to a URL without the token."""
    response = RedirectResponse("./", 303)
    # Lax: a link from another site, such as a chat, opens the page. Requests other than GET need the page's own origin.
    response.set_cookie(cookie_name(token, server), _cookie_value(token, server), httponly=True, samesite="lax")
    return response


def token_in(cookies: str, access: Access) -> Token | None:
    """Return the token whose cookie of a first visit is in a Cookie header; None without one."""
    try:
        found = SimpleCookie(cookies)
    except CookieError:
        return None
    for token in access.tokens():
        morsel = found.get(cookie_name(token, access.server))
        if morsel is not None and is_equal(morsel.value, _cookie_value(token, access.server)):
            return token
    return None


def cookie_name(token: Token, server: ProtectedServer) -> str:
    """Return the name of the cookie of a token. It depends on the token, because browsers share cookies between the ports of a machine."""
    return f"penstock_{_cookie_value(token, server)[:8]}"


def _cookie_value(token: Token, server: ProtectedServer) -> str:
    return hmac.new(token.text.encode(), server.command.encode(), sha256).hexdigest()


def _is_same_origin(request: Request, host: str) -> bool:
    """Return whether a browser sent the request from a page of a host."""
    origin = split_address(request.headers.get("origin", ""))
    return origin is not None and bool(origin.netloc) and origin.netloc == host


def _is_program(request: Request) -> bool:
    """Return whether no page of a browser can have sent the request: browsers name the origin of JSON, and ask before they send it elsewhere."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    return "origin" not in request.headers and kind.strip().lower() == "application/json"
