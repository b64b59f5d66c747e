"""Addresses at which the servers of Penstock listen."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from ..processors.errors import PenstockError

BACKLOG = 1024
"""The number of clients that may wait to be accepted."""


class AddressUnavailable(PenstockError):
    """A server cannot listen at its address: choose another one."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine itself can reach an address or a name."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def listening_at(host: str, port: int, server: str) -> Iterator[socket.socket]:
    """Yield a socket that listens for clients.

    Args:
        host: a name or an address of this machine.
        port: the port; 0 for a free one.
        server: what listens, for errors, such as "The dashboard".

    Raises:
        AddressUnavailable: another process uses the port, or the address is not one of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Accepted connections inherit it. Otherwise a body waits for the acknowledgement of its head, about 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise AddressUnavailable(
            f"{server} cannot listen on {host}, port {port}: {error.strerror or error}. It was not started. Choose another port with "
            "--port (0 for a free one), or an address of this machine with --host."
        ) from error
    with listener:
        yield listener
