"""The server of an error of the HTTP library, if it was not reached. The library's text shows its own objects and the request instead."""

from __future__ import annotations

from typing import NamedTuple

import requests
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NameResolutionError, NewConnectionError


class UnreachedServer(NamedTuple):
    """A server to which no connection was opened.

    Args:
        host: its name.
        port: its port.
        problem: what happened, as a clause.
        is_unknown: whether this machine does not know its name.
    """

    host: str
    port: int | None
    problem: str
    is_unknown: bool = False

    @staticmethod
    def of(error: Exception) -> UnreachedServer | None:
        """Return the server of an error; None if a connection was opened, or if that is unknown."""
        failed = error.args[0] if isinstance(error, requests.ConnectionError) and error.args else None
        if not isinstance(failed, MaxRetryError) or failed.reason is None:
            return None
        host, port, cause = failed.pool.host, failed.pool.port, failed.reason.__cause__
        words = getattr(cause, "strerror", None) or cause
        match failed.reason:
            case NameResolutionError():
                return UnreachedServer(
                    host, port, f"the host name {host} cannot be resolved ({words})", is_unknown=True
                )
            case NewConnectionError() if isinstance(cause, ConnectionRefusedError):
                return UnreachedServer(host, port, f"nothing listens at {host}:{port}")
            case NewConnectionError():
                return UnreachedServer(host, port, f"no connection to {host}:{port} could be opened ({words})")
            case ConnectTimeoutError():
                return UnreachedServer(host, port, f"{host}:{port} does not answer")
        return None
