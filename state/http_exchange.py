"""One HTTP request to an address that a user has configured, and its answer.

A general client is friendly to people who browse: it follows a redirect, which turns a POST into a GET without a body, and waits for as long as
bytes arrive. For rows and notifications, both would be losses: here a redirect is an answer like others, and the whole exchange has one limit.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from contextlib import suppress
from email.message import Message
from typing import Any, NamedTuple
from urllib.parse import urljoin

from .addresses import host_of
from .socket_deadline import SocketDeadline, opener_until

_SHOWN = 300
"""The number of characters of an answer that are kept, for errors."""


class HttpAnswer(NamedTuple):
    """The answer to a request.

    Args:
        status: its status code.
        reason: its words.
        headers: its headers.
        text: the begin of the text of a refusal.
        url: the address that answered.
    """

    status: int
    reason: str
    headers: Message
    text: str
    url: str

    @property
    def is_accepted(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        """Return the status, and for a redirect its target; see `refusal_of`."""
        return refusal_of(self.status, self.reason, self.url, self.headers.get("Location"))


def refusal_of(status: int, reason: str, url: str, location: str | None) -> str:
    """Return the status of an answer, and for a redirect the scheme and host that it names: the rest of an address may be a secret."""
    try:
        redirected = urljoin(url, location or "")
    except ValueError:  # of a bracket
        return f"status {status}, a redirect to no address, which is not followed"
    if 300 <= status < 400 and redirected != url:
        return f"status {status}, a redirect to {host_of(redirected)}, which is not followed"
    return f"status {status} ({reason})"


def exchange(request: urllib.request.Request, limit_s: float) -> HttpAnswer:
    """Send a request, and return its answer, whatever its status. Proxies of the environment are used.

    Args:
        request: the request.
        limit_s: the time for the whole exchange, in seconds; the lookup of the host's name has the time limit of the system.

    Raises:
        OSError: status and headers did not arrive in time; the outcome is unknown.
        http.client.HTTPException: the answer is no HTTP.
    """
    with SocketDeadline(limit_s) as deadline:
        try:
            with opener_until(deadline, _NoRedirects()).open(request, timeout=limit_s) as response:
                _expect_whole(deadline, limit_s)
                return HttpAnswer(response.status, response.reason, response.headers, "", request.full_url)
        except urllib.error.HTTPError as error:
            _expect_whole(deadline, limit_s)
            return HttpAnswer(error.code, str(error.reason), error.headers, _beginning_of(error), request.full_url)
        except TimeoutError as error:  # of the socket, which may be before the deadline
            raise _late(limit_s) from error
        except (OSError, http.client.HTTPException):
            _expect_whole(deadline, limit_s)
            raise


def _expect_whole(deadline: SocketDeadline, limit_s: float) -> None:
    """Raise TimeoutError if the time is over: the end of the connection also ends the headers, so that a part of them could be taken for all."""
    if deadline.has_passed:
        raise _late(limit_s)


def _late(limit_s: float) -> TimeoutError:
    return TimeoutError(f"no complete answer within {limit_s:g} s")


def _beginning_of(refusal: urllib.error.HTTPError) -> str:
    """Return the begin of a refusal's text, or what of it arrives in time: the status is the answer."""
    with refusal, suppress(OSError, http.client.HTTPException):
        return refusal.read(_SHOWN).decode(errors="replace").strip()
    return ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect."""
