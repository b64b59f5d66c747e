"""The server of the dashboard: one process, until SIGINT or SIGTERM."""

from __future__ import annotations

import socket

import uvicorn

from ...http import Access, server_config
from .broadcast import Broadcaster
from .operations import OperationRunner
from .site import SiteContent, create_site


class DashboardServer(uvicorn.Server):
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


def create_server(
    content: SiteContent, broadcaster: Broadcaster, access: Access, operator: OperationRunner
) -> DashboardServer:
    """Return the server of the dashboard. Its `run` answers browsers until SIGINT, SIGTERM or `stop`."""
    return DashboardServer(server_config(create_site(content, broadcaster, access, operator=operator)), broadcaster)
