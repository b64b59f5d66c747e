"""Deaths in memory: a driver's worker dies, and goes on with the disk that it had, with an older copy of it, or with none."""

from __future__ import annotations

from copy import deepcopy
from enum import Enum

import penstock as ps
from penstock.ops.testing import Driver
from penstock.processors.operators import merge_of
from penstock.state.protocols import MemoryStateFolder


class Disk(Enum):
    """What a worker finds when it starts again."""

    SAME = "same disk"
    OLDER = "older copy"
    NONE = "no disk"


def copy_of(driver: Driver, processor: type[ps.Processor]) -> MemoryStateFolder:
    """Return a copy of a processor's states, as a backup is."""
    return deepcopy(driver._states[processor])


def restart(driver: Driver, processor: type[ps.Processor], disk: Disk, older: MemoryStateFolder) -> None:
    """Kill a processor's worker between two checkpoints; another goes on with this disk."""
    driver._discard_worker(processor)
    if disk is Disk.NONE:
        driver._states[processor] = MemoryStateFolder(merge_of(processor()))
    elif disk is Disk.OLDER:
        driver._states[processor] = deepcopy(older)
    driver.run()
