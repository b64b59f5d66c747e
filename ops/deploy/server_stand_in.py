"""A processor that stands for a server without a worker in the files of its deployment."""

from __future__ import annotations

from collections.abc import Sequence

from ...processors.declare import AnyCategory, Processor, Stateless


class _StandIn(Stateless):
    """Stands for a server without a worker in the files of its deployment: its name and its inputs. It never runs."""

    def process(self, event: object) -> tuple[()]:  # noqa: ARG002 - the signature of a processor
        """Write nothing."""
        return ()


def stand_in_for(deployment: str, categories: Sequence[AnyCategory]) -> type[Processor]:
    """Return a processor that stands for a server without a worker.

    Args:
        deployment: its name.
        categories: the categories that it reads.
    """
    return type("Server", (_StandIn,), {"name": deployment, "reads": tuple(categories)})
