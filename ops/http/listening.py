"""Addresses at which the servers of Penstock listen, and their certificates."""

from __future__ import annotations

import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ...processors import PenstockError

BACKLOG = 1024
"""The number of clients that may wait to be accepted."""
_OPEN_FILES = 65_536


class AddressUnavailable(PenstockError):
    """A server cannot listen at its address, or not with its certificate: choose others."""


@dataclass(frozen=True)
class Certificate:
    """The certificate of a server with TLS.

    Args:
        file: the certificate and its chain (PEM).
        key: its private key (PEM), without a password.
    """

    file: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return the settings of connections with this certificate.

        Raises:
            AddressUnavailable: the files cannot be read, or do not match.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # Without a password here, OpenSSL would ask for one at the terminal, which a deployed server does not have.
            context.load_cert_chain(self.file, self.key, password="")
        except OSError as error:
            raise AddressUnavailable(
                f"The certificate {self.file} with the key {self.key} cannot be loaded: {error}. Nothing was started. Pass files in PEM format with "
                "--tls-cert and --tls-key; the key has no password."
            ) from error
        return context


def allow_open_files() -> None:
    """Raise this process's limit of open files as far as the system allows: connections and databases share it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def is_loopback(host: str) -> bool:
    """Return whether only this machine itself can reach an address or a name."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(listener: socket.socket, scheme: str) -> str:
    """Return the URL at which a socket listens, without a path."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


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
