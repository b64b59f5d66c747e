"""Crashes in memory: a driver's worker is replaced by one with its disk, an older copy of it, or an empty disk."""

from __future__ import annotations

from copy import deepcopy
from enum import Enum

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.processors.operators import merge_of
from penstock.state import MemoryStateFolder


class Disk(Enum):
    """The disk of a restarted worker."""

    SAME = "same disk"
    OLDER = "older copy"
    NONE = "no disk"


def copy_of(driver: Driver, processor: type[ps.Processor]) -> MemoryStateFolder:
    """Return a copy of a processor's states, like a backup."""
    return deepcopy(driver._states[processor])


def restart(driver: Driver, processor: type[ps.Processor], disk: Disk, older: MemoryStateFolder) -> None:
    """Replace a processor's worker between two checkpoints by one with this disk."""
    driver._discard_worker(processor)
    if disk is Disk.NONE:
        driver._states[processor] = MemoryStateFolder(merge_of(processor()))
    elif disk is Disk.OLDER:
        driver._states[processor] = deepcopy(older)
    driver.run()
