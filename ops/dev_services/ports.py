"""Ports on 127.0.0.1. A service keeps its ports, so that the configuration of its clients stays valid."""

import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"


def choose_ports(names: Iterable[str], previous: Mapping[str, int]) -> dict[str, int]:
    """Return a free port for every name: the previous port, unless another process uses it.

    The ports are free and distinct at the moment of return. The caller must bind them soon.
    """
    with ExitStack() as sockets:
        # Each socket stays bound until all ports are chosen; otherwise, the system could return a port twice.
        return {name: sockets.enter_context(_bound(previous.get(name, 0))).getsockname()[1] for name in names}


def is_listening(port: int) -> bool:
    """Return whether a process accepts connections on a port of 127.0.0.1."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def _bound(port: int) -> socket.socket:
    """Return a socket that is bound to a port, or to a free port if the port is 0 or in use."""
    if port:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # As Java does: connections of the service's last run in TIME_WAIT do not block the port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((LOOPBACK, port))
        except OSError:
            bound.close()
        else:
            return bound
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.bind((LOOPBACK, 0))
    return bound
