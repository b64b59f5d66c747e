"""Where Spark runs, as it is named, and whether anybody answers there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from ..errors import BackfillRefused

ANSWER_LIMIT_S = 10.0
_STANDALONE = "spark://"


def is_local(master: str) -> bool:
    """Tell whether Python workers run on this machine, and as this process does."""
    return master == "local" or master.startswith("local[")


def expect_answer(master: str) -> None:
    """Hold that one of a standalone cluster's masters can be reached; Spark itself would ask for a minute, and then not say why.

    Others are not asked: YARN and Kubernetes say where they are in files and services of their own.

    Raises:
        BackfillRefused: none can.
    """
    if not master.startswith(_STANDALONE):
        return
    refusals = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), timeout=ANSWER_LIMIT_S).close()
        except OSError as error:
            refusals.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise BackfillRefused(
        f"No Spark master answers at {master} ({'; '.join(refusals)}). Nothing was started. See whether it runs, and whether this machine "
        "may reach it: its web page names the address that begins with spark://."
    )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise BackfillRefused(
                f"{master} names no Spark master: give spark://HOST:PORT, and of several spark://HOST:PORT,HOST:PORT. Nothing was started."
            )
        yield host, int(port)
