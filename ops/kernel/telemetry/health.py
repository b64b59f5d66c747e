"""Health of a worker. Its loop only records its turns, so questions do not slow it down."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from ....processors import PenstockError, busy_line

if TYPE_CHECKING:
    # Commands about deployments read a health without a worker of their own, which is slow to import.
    from ..loop import Worker
    from .metrics import Metrics

DEPLOYMENT_VARIABLE = "PENSTOCK_DEPLOYMENT"
"""The environment variable with the worker's deployment and version, such as `scorer@3`."""
STUCK_S = 120.0
"""How long one turn of the loop may take before it counts as stuck. Large batches in slow code and slow checkpoints take less."""
HANGING_S = 300.0
"""How long one turn may take in the code of the processor before a restart is due. Kafka has excluded the worker from its group by then."""
LOOPBACK = "127.0.0.1"


class HealthUnavailable(PenstockError):
    """A worker cannot listen at its health address: choose another address."""


class ListenAddress(NamedTuple):
    """The address of a worker's health endpoint."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> ListenAddress:
        """Parse a port, which is reachable on this machine only, or host:port.

        Raises:
            HealthUnavailable: the text is neither.
        """
        host, _, port = text.rpartition(":")
        if not port.isdigit() or int(port) > 65535:
            raise HealthUnavailable(
                f"--health {text} is no address. Use a port of this machine, such as 8080, or HOST:PORT, such as 0.0.0.0:8080."
            )
        return ListenAddress(host or LOOPBACK, int(port))


class Health(msgspec.Struct, frozen=True):
    """The health of a worker.

    Args:
        deployment: its deployment and version; empty without a deployment.
        pid: its process id.
        since_turn_s: seconds since the last turn of the loop; None before the first turn.
        settled_s: for how many seconds it has read all buckets that it owns; None if it does not.
        buckets: the buckets that it owns.
        checkpoints: the number of saved checkpoints.
        waits_for: what it has waited for longest, such as its sink or Kafka; empty without a wait.
        waits_s: for how many seconds.
    """

    deployment: str
    pid: int
    since_turn_s: float | None
    settled_s: float | None
    buckets: tuple[int, ...]
    checkpoints: int
    waits_for: str = ""
    waits_s: float = 0.0

    @property
    def turns(self) -> bool:
        """Whether the loop is running, and not stuck."""
        return self.since_turn_s is not None and self.since_turn_s < STUCK_S

    @property
    def is_ready(self) -> bool:
        """Whether the loop is running, and reads all buckets that the worker owns."""
        return self.turns and self.settled_s is not None


class _LoopState(NamedTuple):
    at_s: float
    settled_since_s: float | None
    buckets: tuple[int, ...]
    checkpoints: int


class HealthSource(Protocol):
    """Reports the health and the metrics of a process, in any thread."""

    def health(self) -> Health:
        """Return the health."""
        ...

    def is_live(self) -> bool:
        """Return whether the process makes progress."""
        ...

    def metrics(self) -> tuple[str, Metrics] | None:
        """Return the name of the worker's processor and its metrics; None before the first turn, or without a worker."""
        ...


class LoopMonitor:
    """Records the turns of a loop in its thread, and reports its health in any thread.

    Args:
        now_s: a monotonic clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last: _LoopState | None = None
        self._thread = threading.get_ident()
        self._metrics: tuple[str, Metrics] | None = None

    def record_turn(self, worker: Worker, *, is_serving: bool = True) -> None:
        """Record a turn of the loop.

        Args:
            worker: the worker.
            is_serving: whether the process answers its clients; True without any.
        """
        self._thread = threading.get_ident()
        now_s, last = self._now_s(), self._last
        since_s = None
        if worker.is_settled and is_serving:
            since_s = now_s
            if last is not None and last.buckets == worker.owned and last.settled_since_s is not None:
                since_s = last.settled_since_s
        self._last = _LoopState(now_s, since_s, worker.owned, worker.metrics.checkpoints)
        self._metrics = worker.processor_name, worker.metrics

    def is_live(self) -> bool:
        """Return whether a restart would not help: the loop turns, has not begun, or waits in other code than the processor's."""
        since_s = self.health().since_turn_s
        return since_s is None or since_s < HANGING_S or busy_line(self._thread) is None

    def metrics(self) -> tuple[str, Metrics] | None:
        """Return the name of the worker's processor and its metrics; None before the first turn."""
        return self._metrics

    def health(self) -> Health:
        """Return the worker's health."""
        last, now_s, deployment = self._last, self._now_s(), os.environ.get(DEPLOYMENT_VARIABLE, "")
        if last is None:
            return Health(deployment, os.getpid(), None, None, (), 0)
        settled_s = None if last.settled_since_s is None else now_s - last.settled_since_s
        wait = None if self._metrics is None else self._metrics[1].waits.longest
        return Health(
            deployment, os.getpid(), now_s - last.at_s, settled_s, last.buckets, last.checkpoints, *wait or ()
        )


class ServerHealth:
    """Reports the health of a server without a worker, in any thread.

    Args:
        is_ready: whether it answers clients.
        buckets: returns the buckets that it reads.
    """

    def __init__(self, is_ready: Callable[[], bool], buckets: Callable[[], tuple[int, ...]] = lambda: (0,)) -> None:
        self._is_ready = is_ready
        self._buckets = buckets

    def health(self) -> Health:
        """Return the health."""
        deployment, settled_s = os.environ.get(DEPLOYMENT_VARIABLE, ""), 0.0 if self._is_ready() else None
        return Health(deployment, os.getpid(), 0.0, settled_s, self._buckets(), checkpoints=1)

    def is_live(self) -> bool:
        """Return True: the server ends if it fails."""
        return True

    def metrics(self) -> tuple[str, Metrics] | None:
        """Return None: there is no worker."""
        return None
