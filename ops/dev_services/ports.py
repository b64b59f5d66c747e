"""Ports on 127.0.0.1: free ones are found once, then kept, so that the configuration of clients stays valid."""

import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"


def choose_ports(names: Iterable[str], remembered: Mapping[str, int]) -> dict[str, int]:
    """Return a free port for every name: the remembered one unless someone else has taken it.

    The ports are free and distinct at the moment of return; who needs them binds them soon after.
    """
    with ExitStack() as held:
        # Each stays bound until all are chosen, or the system might give one port twice.
        return {name: held.enter_context(_bound(remembered.get(name, 0))).getsockname()[1] for name in names}


def is_listening(port: int) -> bool:
    """Return whether anything accepts connections on this port of 127.0.0.1."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def _bound(wanted: int) -> socket.socket:
    if wanted:
        remembered = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # As Java does it: connections of the service's last run, still in TIME_WAIT, do not make the port taken.
        remembered.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            remembered.bind((LOOPBACK, wanted))
        except OSError:
            remembered.close()
        else:
            return remembered
    fresh = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    fresh.bind((LOOPBACK, 0))
    return fresh
