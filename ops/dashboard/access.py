"""Access control of web pages, such as the dashboard: free access from this machine, and a token for other machines.

Host header    without a token, only names of this machine: another name may be a DNS rebinding attack
token          in ?token=… or a form at the first visit, in a cookie afterwards; or in the header Authorization: Bearer …
POST           from the site's own pages; JSON also from programs, since a page of another site cannot send JSON unasked
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...processors.errors import PenstockError
from ..listening import is_loopback

MIN_TOKEN_LENGTH = 16
"""The shortest token, in characters. The token alone protects the data from the network."""
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


@dataclass(frozen=True)
class GuardedSite:
    """The site that is protected, for messages.

    Args:
        name: its name.
        content: what it shows.
        command: the command that serves it.
        variable: the environment variable with its token.
    """

    name: str
    content: str
    command: str
    variable: str


DASHBOARD = GuardedSite(
    "dashboard", "the content of events and states", "penstock dashboard", "PENSTOCK_DASHBOARD_TOKEN"
)


class AccessRefused(PenstockError):
    """Other machines could open a site without a token, or guess the token: set a longer one."""


@dataclass(frozen=True)
class Access:
    """The access rules of a site.

    Args:
        token: the token of visitors; None for a site that only this machine can reach.
        site: the site.
    """

    token: str | None = field(default=None, repr=False)
    site: GuardedSite = DASHBOARD

    @staticmethod
    def at(host: str, token: str | None, site: GuardedSite = DASHBOARD) -> Access:
        """Return the access rules at an address.

        Raises:
            AccessRefused: other machines can reach the address and there is no token, or the token is too short.
        """
        if token is None and not is_loopback(host):
            raise AccessRefused(
                f"Other machines may reach {host}, and the {site.name} shows {site.content}. It was not started. Set a "
                f"token in the environment variable {site.variable} (generate one with "
                '`python -c "import secrets; print(secrets.token_urlsafe())"`), or omit --host and connect through `ssh -L`.'
            )
        if token is not None and len(token) < MIN_TOKEN_LENGTH:
            raise AccessRefused(
                f"The token has {len(token)} characters, so it could be guessed. The {site.name} was not started. Set a token of at least "
                f"{MIN_TOKEN_LENGTH} characters."
            )
        return Access(token, site)

    @property
    def cookie_value(self) -> str:
        """The value of the cookie: a hash of the token."""
        return (
            "" if self.token is None else hmac.new(self.token.encode(), self.site.command.encode(), sha256).hexdigest()
        )

    @property
    def cookie_name(self) -> str:
        """The name of the cookie. It depends on the token, because browsers share cookies between the ports of a machine."""
        return f"penstock_{self.cookie_value[:8]}"

    def accepts_token(self, token: str | None) -> bool:
        """Return whether this is the token. The time does not depend on the similarity."""
        return self.token is not None and token is not None and _is_equal(token, self.token)

    def accepts_cookies(self, cookies: str) -> bool:
        """Return whether a Cookie header contains the cookie of the first visit."""
        try:
            morsel = SimpleCookie(cookies).get(self.cookie_name)
        except CookieError:
            return False
        return morsel is not None and _is_equal(morsel.value, self.cookie_value)


class AccessMiddleware:
    """Passes permitted requests to the site, answers all others, and adds security headers.

    Args:
        site: the site.
        access: the access rules.
        open_paths: paths that need no token.
    """

    def __init__(self, site: ASGIApp, access: Access, open_paths: Collection[str] = ()) -> None:
        self._site = site
        self._access = access
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._site(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SECURITY_HEADERS)
            await send(message)

        respond = self._answer(Request(scope)) or self._site
        await respond(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that does not reach the site; None for a permitted request."""
        if request.url.path in self._open_paths and request.method in {"GET", "HEAD"}:
            return None
        if self._access.token is None:
            if not is_loopback(_host_of(request)):
                return PlainTextResponse(
                    f"This {self._access.site.name} accepts only names of this machine. Open it as 127.0.0.1 or localhost.\n",
                    403,
                )
        elif self._access.accepts_token(request.query_params.get("token")):
            return self._log_in()
        elif not (self._access.accepts_cookies(request.headers.get("cookie", "")) or self._has_bearer_token(request)):
            return HTMLResponse(_LOGIN_PAGE.replace("{command}", self._access.site.command), 401)
        if request.method not in {"GET", "HEAD"} and not (_is_same_origin(request) or _is_program(request)):
            return PlainTextResponse(f"Only the {self._access.site.name}'s own pages may send this request.\n", 403)
        return None

    def _has_bearer_token(self, request: Request) -> bool:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self._access.accepts_token(token)

    def _log_in(self) -> Response:
        """Set the cookie, and redirect to a URL without the token."""
        response = RedirectResponse("./", 303)
        # Lax: a link from another site, such as a chat, opens the page. Requests other than GET need the page's own origin.
        response.set_cookie(self._access.cookie_name, self._access.cookie_value, httponly=True, samesite="lax")
        return response


def _host_of(request: Request) -> str:
    return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""


def _is_same_origin(request: Request) -> bool:
    """Return whether a browser sent the request from a page of the same host."""
    origin = urlsplit(request.headers.get("origin", ""))
    return bool(origin.netloc) and origin.netloc == request.headers.get("host", "")


def _is_program(request: Request) -> bool:
    """Return whether no page of a browser can have sent the request: browsers name the origin of JSON, and ask before they send it elsewhere."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    return "origin" not in request.headers and kind.strip().lower() == "application/json"


def _is_equal(text: str, expected: str) -> bool:
    return hmac.compare_digest(text.encode(), expected.encode())
