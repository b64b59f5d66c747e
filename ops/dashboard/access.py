"""Who is let in: everybody on this machine, and from elsewhere whoever knows the token.

Host header    without a token, only this machine's own names: a page from elsewhere whose name was made to lead here is refused
token          ?token=… or a form at the first visit, a cookie from then on; or Authorization: Bearer …
POST           only from our own pages
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...processors.errors import PenstockError

SHORTEST_TOKEN = 16
"""How many characters a token has at least: it is all that stands between a network and the data."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_ASKS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock: token</title></head>
<body><main><h1>Penstock</h1><form method="get" action="./"><p><label>Token
<input name="token" type="password" autocomplete="current-password" autofocus required></label>
<button>Enter</button></p></form><p>It is the one that <code>penstock dashboard</code> was started with.</p></main></body></html>
"""


class AccessRefused(PenstockError):
    """The dashboard would be open to whoever reaches it: give it a token."""


@dataclass(frozen=True)
class Access:
    """What is asked of whoever comes.

    Args:
        token: what they have to know; None on this machine alone.
    """

    token: str | None = field(default=None, repr=False)

    @staticmethod
    def at(host: str, token: str | None) -> Access:
        """Return what is asked at an address.

        Raises:
            AccessRefused: other machines reach it and there is no token, or it is one that can be guessed.
        """
        if token is None and not is_own(host):
            raise AccessRefused(
                f"Other machines may reach {host}, and the dashboard shows what your events and states hold, so it asks them for a "
                "token. Nothing was started. Give one in the environment variable PENSTOCK_DASHBOARD_TOKEN (a good one: "
                '`python -c "import secrets; print(secrets.token_urlsafe())"`), or leave --host out and come through `ssh -L`.'
            )
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise AccessRefused(
                f"The token has {len(token)} characters, and could be guessed: give one of at least {SHORTEST_TOKEN}. Nothing was started."
            )
        return Access(token)

    @property
    def proof(self) -> str:
        """What a cookie holds: the same for one token, and not the token."""
        return "" if self.token is None else hmac.new(self.token.encode(), b"penstock dashboard", sha256).hexdigest()

    @property
    def cookie(self) -> str:
        """Its name: two dashboards of one machine, on two ports, do not take each other's."""
        return f"penstock_{self.proof[:8]}"

    def knows(self, given: str | None) -> bool:
        """Tell whether that is the token, in a time that does not depend on how near it is."""
        return self.token is not None and given is not None and _same(given, self.token)

    def showed_proof(self, cookies: str) -> bool:
        """Tell whether a Cookie header holds what was set at the first visit."""
        try:
            morsel = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return morsel is not None and _same(morsel.value, self.proof)


def is_own(host: str) -> bool:
    """Tell whether only this machine itself reaches a host of this name."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets requests through to the site, or answers in its place; adds the headers that keep browsers careful.

    Args:
        site: behind it.
        access: what is asked.
    """

    def __init__(self, site: ASGIApp, access: Access) -> None:
        self._site = site
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._site(scope, receive, send)
            return

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._answer(Request(scope)) or self._site
        await answer(scope, receive, careful)

    def _answer(self, request: Request) -> Response | None:
        """Return what is said instead of letting a request through."""
        if self._access.token is None:
            if not is_own(_host_of(request)):
                return PlainTextResponse(
                    "This dashboard answers to this machine's own names alone: open it as 127.0.0.1 or localhost.\n",
                    403,
                )
        elif self._access.knows(request.query_params.get("token")):
            return self._welcome()
        elif not (self._access.showed_proof(request.headers.get("cookie", "")) or self._has_bearer(request)):
            return HTMLResponse(_ASKS, 401)
        if request.method not in {"GET", "HEAD"} and not _is_from_here(request):
            return PlainTextResponse("Only the dashboard's own pages may ask for this.\n", 403)
        return None

    def _has_bearer(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self._access.knows(given)

    def _welcome(self) -> Response:
        """Set the cookie, and lead away from the address that has the token in it."""
        welcome = RedirectResponse("./", 303)
        # Lax: whoever follows a link to the page from a chat is let in. What is more than looking asks for our own origin.
        welcome.set_cookie(self._access.cookie, self._access.proof, httponly=True, samesite="lax")
        return welcome


def _host_of(request: Request) -> str:
    return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""


def _is_from_here(request: Request) -> bool:
    """Tell whether a browser sent this from a page of the same host."""
    origin = urlsplit(request.headers.get("origin", ""))
    return bool(origin.netloc) and origin.netloc == request.headers.get("host", "")


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())
