"""Addresses of deployed servers: ports of this machine, which they keep, or Services of a cluster."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ....processors import PenstockError
from ...deploy import names_of_deployments, server_of, service_hosts
from ...shell import TlsOptions

PORTS_TRIED = 1_000


class ServerRefused(PenstockError):
    """A server cannot be deployed as asked: correct the options."""


@dataclass(frozen=True)
class ServerAddress:
    """The address of a server.

    Args:
        host: the address that it listens on.
        ports: its ports, by the scheme of their URLs without TLS.
        urls: where its clients reach it.
    """

    host: str
    ports: Mapping[str, int]
    urls: tuple[str, ...]


class Addresses(Protocol):
    """Chooses the addresses of servers."""

    def of(self, deployment: str, ports: Mapping[str, int], tls: TlsOptions, replica_of: str = "") -> ServerAddress:
        """Return the address of a server.

        Args:
            deployment: the name of its deployment.
            ports: its usual ports, by the scheme of their URLs without TLS.
            tls: its certificate.
            replica_of: the name that it shares with its replicas; empty without any.

        Raises:
            ServerRefused: no port is free.
        """
        ...


class MachineAddresses:
    """Ports of this machine: those of a server's last deployment, or else ports that neither another server nor a process uses.

    Args:
        folder: the value of `--dir`.
        host: the address that the servers listen on.
        chosen: the ports of the first server, which later ones continue, by the scheme of their URLs without TLS; None or 0 for free ones.
    """

    def __init__(self, folder: Path, host: str, chosen: Mapping[str, int | None]) -> None:
        self._folder, self._host = folder, host
        self._chosen = {scheme: port for scheme, port in chosen.items() if port}
        self._used = {number for name in names_of_deployments(folder) for number in ports_of(folder, name).values()}

    def of(self, deployment: str, ports: Mapping[str, int], tls: TlsOptions, replica_of: str = "") -> ServerAddress:  # noqa: ARG002 - of the protocol
        """Return the address of a server."""
        known = ports_of(self._folder, deployment)
        known |= self._chosen
        self._chosen = {scheme: port + 1 for scheme, port in self._chosen.items()}
        chosen = {scheme: known.get(scheme) or self._next_from(first) for scheme, first in ports.items()}
        urls = tuple(tls.url(scheme, self._host, port) for scheme, port in chosen.items())
        return ServerAddress(self._host, chosen, urls)

    def _next_from(self, first: int) -> int:
        """Return the first free port, at or after another one, and do not return it again."""
        for port in range(first, min(first + PORTS_TRIED, 65_536)):
            if port not in self._used and _is_free(self._host, port):
                self._used.add(port)
                return port
        raise ServerRefused(
            f"No port from {first} on is free on {self._host}. Nothing was deployed. Name another one with --port."
        )


class ServiceAddresses:
    """The usual ports of a pod, behind Services.

    Args:
        namespace: the namespace of the Services; None for the one of their clients.
    """

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace

    def of(self, deployment: str, ports: Mapping[str, int], tls: TlsOptions, replica_of: str = "") -> ServerAddress:
        """Return the address of a server."""
        hosts = service_hosts(deployment, replica_of, self._namespace)
        urls = tuple(tls.url(scheme, host, port) for host in hosts for scheme, port in ports.items())
        return ServerAddress("0.0.0.0", ports, urls)  # noqa: S104 - of the pod, with a token


def ports_of(folder: Path, name: str) -> dict[str, int]:
    """Return the ports of a server by scheme of their URLs without TLS, as of its last deployment; empty without one."""
    server = server_of(folder, name)
    return {} if server is None else server.ports


def _is_free(host: str, port: int) -> bool:
    try:
        with closing(socket.create_server((host, port))):
            return True
    except OSError:
        return False
