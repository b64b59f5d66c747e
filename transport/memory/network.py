"""The way between a client and the cluster. By default every request is answered at once; a simulation puts its own in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

REQUEST_LIMIT_S = 10.0
"""How long a client waits for an answer to most requests."""


class Network:
    """A client's way to the cluster, and the client's own background threads. Subclasses delay, fail and lose."""

    def request(self, what: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:  # noqa: ARG002 - for subclasses
        """Have the cluster do something, and return its answer.

        Args:
            what: names the request, such as "commit".
            effect: what the cluster does.
            limit_s: how long the client keeps trying.

        Raises:
            BusUnreachable: no answer came; whether it was done is unknown.
        """
        return effect()

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:  # noqa: ARG002 - for subclasses
        """Wait for a condition; return whether it holds. By default time does not pass here."""
        return until()

    def is_up(self) -> bool:
        """Tell whether requests reach the cluster just now, as far as the client can see."""
        return True

    def fetched(self, at_most: int) -> int:
        """Return how many messages of a bucket the client has fetched by the time of a poll: buckets come one after the other, in parts."""
        return at_most

    def buffers(self) -> bool:
        """Tell whether what is sent stays in the client's buffer until it is flushed, or longer than the process lives."""
        return False

    def heartbeat_ms(self, now_ms: int) -> int:
        """Return when the client's background thread last reached the cluster, which it does while its process runs."""
        return now_ms
