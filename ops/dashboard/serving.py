"""The server of the dashboard: one process, until SIGINT or SIGTERM."""

from __future__ import annotations

import socket

import uvicorn

from .access import Access
from .broadcast import Broadcaster
from .operations import Operator
from .site import SiteContent, create_site


class Server(uvicorn.Server):
    """A server that ends the streams of browsers when it stops, and does not wait until the browsers disconnect."""

    def __init__(self, config: uvicorn.Config, broadcaster: Broadcaster) -> None:
        super().__init__(config)
        self._broadcaster = broadcaster

    def stop(self) -> None:
        """Make `run` return, now or as soon as it is called."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams of browsers, then the server."""
        self._broadcaster.end_streams()
        await super().shutdown(sockets)


def url_of(listener: socket.socket) -> str:
    """Return the URL of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def create_server(content: SiteContent, broadcaster: Broadcaster, access: Access, operator: Operator) -> Server:
    """Return the server of the dashboard. Its `run` answers browsers until SIGINT, SIGTERM or `stop`."""
    config = uvicorn.Config(
        create_site(content, broadcaster, access, operator=operator),
        log_level="warning",
        access_log=False,  # the URL of a first visit contains the token
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    return Server(config, broadcaster)
