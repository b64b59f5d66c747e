"""Access control of web pages, such as the dashboard: free access from this machine, and a token or a proxy for other machines.

Host header    without a token or a proxy, only names of this machine: another name may be a DNS rebinding attack
token          in ?token=… or a form at the first visit, in a cookie afterwards; or in the header Authorization: Bearer …
proxy          its headers name the user and the groups; they count only with the shared secret
POST           from the site's own pages; JSON also from programs, since a page of another site cannot send JSON unasked
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...processors.errors import PenstockError
from ...processors.wording import counted
from ..listening import is_loopback
from .visitors import LOCAL_VISITOR, Role, TrustedProxy, Visitor, is_equal

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
    """Other machines could open a site without a token, or guess a secret: set a longer one."""


@dataclass(frozen=True)
class Token:
    """A token, and the role of its visitors.

    Args:
        text: the token.
        role: the role.
    """

    text: str = field(repr=False)
    role: Role

    def cookie_value(self, site: GuardedSite) -> str:
        """Return the value of the cookie: a hash of the token."""
        return hmac.new(self.text.encode(), site.command.encode(), sha256).hexdigest()

    def cookie_name(self, site: GuardedSite) -> str:
        """Return the name of the cookie. It depends on the token, because browsers share cookies between the ports of a machine."""
        return f"penstock_{self.cookie_value(site)[:8]}"

    @property
    def visitor(self) -> Visitor:
        """A visitor with the token."""
        return Visitor(f"{self.role.value} with the token", self.role)


@dataclass(frozen=True)
class Access:
    """The access rules of a site.

    Args:
        token: the token of operators; None without one.
        site: the site.
        viewer_token: the token of viewers; None without one.
        proxy: the proxy that authenticates users; None without one.
    """

    token: str | None = field(default=None, repr=False)
    site: GuardedSite = DASHBOARD
    viewer_token: str | None = field(default=None, repr=False)
    proxy: TrustedProxy | None = None

    @staticmethod
    def at(
        host: str,
        token: str | None,
        site: GuardedSite = DASHBOARD,
        *,
        viewer_token: str | None = None,
        proxy: TrustedProxy | None = None,
    ) -> Access:
        """Return the access rules at an address.

        Raises:
            AccessRefused: other machines can reach the address and there is neither token nor proxy, or a secret is too short.
        """
        access = Access(token, site, viewer_token, proxy)
        if access.is_open and not is_loopback(host):
            raise AccessRefused(
                f"Other machines may reach {host}, and the {site.name} shows {site.content}. It was not started. Set a "
                f"token in the environment variable {site.variable} (generate one with "
                '`python -c "import secrets; print(secrets.token_urlsafe())"`), or omit --host and connect through `ssh -L`.'
            )
        for name, secret in access.secrets():
            if len(secret) < MIN_TOKEN_LENGTH:
                raise AccessRefused(
                    f"The {name} has {counted(len(secret), 'character')}, so it could be guessed. The {site.name} was not started. Set a {name} of at least "
                    f"{MIN_TOKEN_LENGTH} characters."
                )
        return access

    @property
    def is_open(self) -> bool:
        """Whether all visitors on this machine have access."""
        return next(self.secrets(), None) is None

    def secrets(self) -> Iterator[tuple[str, str]]:
        """Yield each secret with its name."""
        if self.token is not None:
            yield "token", self.token
        if self.viewer_token is not None:
            yield "token of viewers", self.viewer_token
        if self.proxy is not None:
            yield "secret of the proxy", self.proxy.secret

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens, the one of operators first."""
        if self.token is not None:
            yield Token(self.token, Role.OPERATOR)
        if self.viewer_token is not None:
            yield Token(self.viewer_token, Role.VIEWER)

    def token_like(self, text: str | None) -> Token | None:
        """Return the token that equals a text; None without one."""
        return next((token for token in self.tokens() if text is not None and is_equal(text, token.text)), None)

    def token_in(self, cookies: str) -> Token | None:
        """Return the token whose cookie of a first visit is in a Cookie header; None without one."""
        try:
            found = SimpleCookie(cookies)
        except CookieError:
            return None
        for token in self.tokens():
            morsel = found.get(token.cookie_name(self.site))
            if morsel is not None and is_equal(morsel.value, token.cookie_value(self.site)):
                return token
        return None


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
        """Return the answer to a request that does not reach the site; None for a permitted request, whose state names the visitor."""
        if request.url.path in self._open_paths and request.method in {"GET", "HEAD"}:
            return None
        found = self._visitor(request)
        if isinstance(found, Response):
            return found
        if request.method not in {"GET", "HEAD"} and not (
            _is_same_origin(request, self._host_for_browsers(request)) or _is_program(request)
        ):
            return PlainTextResponse(f"Only the {self._access.site.name}'s own pages may send this request.\n", 403)
        request.state.visitor = found
        return None

    def _host_for_browsers(self, request: Request) -> str:
        """Return the host in the address bar of a browser: a proxy may send another one, and names the first in a header of its own."""
        headers, proxy = request.headers, self._access.proxy
        forwarded = headers.get("x-forwarded-host", "") if proxy is not None and proxy.sent(headers) else ""
        return forwarded or headers.get("host", "")

    def _visitor(self, request: Request) -> Visitor | Response:
        """Return the visitor who sent a request, or the answer without one."""
        access = self._access
        if access.is_open:
            if is_loopback(_host_of(request)):
                return LOCAL_VISITOR
            return PlainTextResponse(
                f"This {access.site.name} accepts only names of this machine. Open it as 127.0.0.1 or localhost.\n", 403
            )
        if access.proxy is not None and access.proxy.sent(request.headers):
            return access.proxy.visitor(request.headers) or PlainTextResponse(
                f"Your user has no access to this {access.site.name}: it is in none of its groups.\n", 403
            )
        return self._visitor_with_token(request)

    def _visitor_with_token(self, request: Request) -> Visitor | Response:
        access = self._access
        if (token := access.token_like(request.query_params.get("token"))) is not None:
            return self._log_in(token)
        token = access.token_in(request.headers.get("cookie", "")) or access.token_like(_bearer_token(request))
        if token is not None:
            return token.visitor
        if not any(access.tokens()):
            return PlainTextResponse(f"Open this {access.site.name} through its proxy, which logs you in.\n", 401)
        return HTMLResponse(_LOGIN_PAGE.replace("{command}", access.site.command), 401)

    def _log_in(self, token: Token) -> Response:
        """Set the cookie, and redirect to a URL without the token."""
        response = RedirectResponse("./", 303)
        name, value = token.cookie_name(self._access.site), token.cookie_value(self._access.site)
        # Lax: a link from another site, such as a chat, opens the page. Requests other than GET need the page's own origin.
        response.set_cookie(name, value, httponly=True, samesite="lax")
        return response


def _bearer_token(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else None


def _host_of(request: Request) -> str:
    return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""


def _is_same_origin(request: Request, host: str) -> bool:
    """Return whether a browser sent the request from a page of a host."""
    origin = urlsplit(request.headers.get("origin", ""))
    return bool(origin.netloc) and origin.netloc == host


def _is_program(request: Request) -> bool:
    """Return whether no page of a browser can have sent the request: browsers name the origin of JSON, and ask before they send it elsewhere."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    return "origin" not in request.headers and kind.strip().lower() == "application/json"
