"""Past events and replays as tables, for notebooks and scripts. Nothing is written: no category, no state, no position."""

from .ops.look_back import Origin, Records, ReplayResult, read, replay

__all__ = ["Origin", "Records", "ReplayResult", "read", "replay"]
