"""Ports on 127.0.0.1. A service keeps its ports, so that the configuration of its clients stays valid."""

import errno
import random
import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"
# Below the ports that Linux and macOS give to outgoing connections: one of these could take a chosen port before it is bound.
FREE_PORTS = range(10_000, 32_000)
ATTEMPTS = 100
# Not seeded: processes that choose at the same time choose different ports.
_randoms = random.SystemRandom()


def choose_ports(names: Iterable[str], previous: Mapping[str, int]) -> dict[str, int]:
    """Return a free port for every name: the previous port, unless another process uses it.

    The ports are free and distinct at the moment of return. The caller must bind them soon.
    """
    with ExitStack() as sockets:
        # Each socket stays bound until all ports are chosen; otherwise, the system could return a port twice.
        return {name: sockets.enter_context(_bound(previous.get(name, 0))).getsockname()[1] for name in names}


def free_port() -> int:
    """Return a port that is free at this moment. The caller must bind it soon."""
    return choose_ports(["port"], {})["port"]


def is_listening(port: int) -> bool:
    """Return whether a process accepts connections on a port of 127.0.0.1."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def _bound(port: int) -> socket.socket:
    """Return a socket that is bound to a port, or to a free port if the port is 0 or in use."""
    for candidate in (*filter(None, [port]), *_randoms.sample(FREE_PORTS, k=ATTEMPTS)):
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # As Java does: connections of the service's last run in TIME_WAIT do not block its port. Sockets with this option may share a port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, candidate == port)
        try:
            bound.bind((LOOPBACK, candidate))
        except OSError:
            bound.close()
        else:
            return bound
    raise OSError(errno.EADDRINUSE, f"{ATTEMPTS} ports between {FREE_PORTS[0]} and {FREE_PORTS[-1]} are all in use")
