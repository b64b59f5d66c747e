"""supervisord that looks after its processes ten times a second.

    python -m penstock.ops.deploy.targets.quick_supervisord -n -c FILE

By itself, it does so once a second, unless a request arrives: it restarts a worker that was killed up to two seconds late, and ends up to a second
after its signal. It has no setting for that.
"""

from __future__ import annotations

from supervisor import poller, supervisord

TICK_S = 0.1


class QuickPoller(poller.Poller):  # type: ignore[misc]  # supervisor has no types
    """Waits for requests and for the output of processes, but not as long as supervisord asks for."""

    def poll(self, timeout: float) -> tuple[list[int], list[int]]:
        """Return the readable and the writable files; wait until there are some, or the next tick."""
        ready: tuple[list[int], list[int]] = super().poll(min(timeout, TICK_S))
        return ready


def main() -> None:
    """Run supervisord with the arguments of the command line."""
    poller.Poller = QuickPoller
    supervisord.main()


if __name__ == "__main__":
    main()
