"""The network between a client and the cluster. By default, it answers every request at once; a simulation replaces it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from ..messages import Bucket

T = TypeVar("T")

REQUEST_LIMIT_S = 10.0
"""The time limit of most requests."""


class Network:
    """A client's network, and its background threads. Subclasses delay, fail and lose requests."""

    def request(self, what: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:  # noqa: ARG002 - for subclasses
        """Send a request to the cluster, and return its answer.

        Args:
            what: the name of the request, such as "commit".
            effect: performs the request on the cluster.
            limit_s: the time limit of the client's attempts.

        Raises:
            BusUnreachable: the answer is missing; the request may have taken effect.
        """
        return effect()

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:  # noqa: ARG002 - for subclasses
        """Wait for a condition; return whether it is true. By default, no time passes."""
        return until()

    def is_up(self) -> bool:
        """Return whether requests reach the cluster at present, as far as the client knows."""
        return True

    def reaches_all(self) -> bool:
        """Return whether requests reach the brokers that lead any bucket at present, so that `reaches` need not be asked."""
        return True

    def reaches(self, bucket: Bucket) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether requests reach the broker that leads a bucket at present."""
        return True

    def wait_for_leaders(self, what: str, buckets: Collection[Bucket], limit_s: float = REQUEST_LIMIT_S) -> None:
        """Wait for the brokers that lead some buckets, as a request about all of them does. By default, they answer at once.

        Raises:
            BusUnreachable: one of them does not answer within the limit.
        """

    def fetched(self, at_most: int) -> int:
        """Return how many messages of a bucket the client has fetched before a poll; a client fetches buckets in parts."""
        return at_most

    def buffers(self) -> bool:
        """Return whether sent messages stay in the client's buffer until the flush, and are lost if the process dies."""
        return False

    def transfers(self, size_bytes: int, limit_s: float) -> bool:  # noqa: ARG002 - for subclasses
        """Send a message of some bytes to the cluster, which takes time on a slow link; return whether it arrives within the limit."""
        return True

    def heartbeat_ms(self, now_ms: int) -> int:
        """Return the time of the last heartbeat, which a background thread sends while the process runs."""
        return now_ms
