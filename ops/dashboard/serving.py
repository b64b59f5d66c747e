"""The server of the dashboard: one process, from its start to Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from ...processors.errors import PenstockError
from .access import Access
from .broadcast import Broadcaster
from .site import Shown, site_of


class AddressRefused(PenstockError):
    """The dashboard cannot answer at that address: name another."""


class Server(uvicorn.Server):
    """A server that ends the streams of browsers when it is told to stop, and does not wait for them to go away."""

    def __init__(self, config: uvicorn.Config, watch: Broadcaster) -> None:
        super().__init__(config)
        self._watch = watch

    def stop(self) -> None:
        """Make `run` return, now or as soon as it is called."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams of browsers, then the server."""
        self._watch.end_streams()
        await super().shutdown(sockets)


@contextmanager
def listening_at(host: str, port: int) -> Iterator[socket.socket]:
    """Give a socket that browsers can come to.

    Args:
        host: a name or an address.
        port: 0 for a free one.

    Raises:
        AddressRefused: somebody has it, or it is not of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise AddressRefused(
            f"The dashboard cannot answer at {host}, port {port}: {error.strerror or error}. Nothing was started. Name another port with "
            "--port (0 takes a free one), or an address of this machine with --host."
        ) from error
    with listener:
        yield listener


def address_of(listener: socket.socket) -> str:
    """Return where a browser finds it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def server_of(shown: Shown, watch: Broadcaster, access: Access) -> Server:
    """Return the server of the dashboard. Its `run` answers browsers until SIGINT, SIGTERM or `stop`."""
    config = uvicorn.Config(
        site_of(shown, watch, access),
        log_level="warning",
        access_log=False,  # a first visit's address holds the token
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    return Server(config, watch)
