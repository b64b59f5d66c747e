"""For tests of one's own processors: no service, no waiting.

`Driver` runs processors on a bus in memory and in steered time; `Crash` lets them die between two steps of a checkpoint;
`check_laws` tries the laws of a monoid on samples; `load_app` imports an app file from wherever it is.
"""

from .ops.testing import Crash, Driver
from .processors.declare.apps import load_app
from .processors.errors import PenstockError
from .processors.monoids import BrokenLaw, check_laws
from .processors.shard.checkpoints import Step

__all__ = ["BrokenLaw", "Crash", "Driver", "PenstockError", "Step", "check_laws", "load_app"]
