"""Tools for testing processors without services or waiting.

`Driver` runs processors on an in-memory bus with a simulated clock. `Crash` stops them between two steps of a checkpoint. `check_laws`
checks the laws of a monoid on samples. `load_app` imports an app file from any folder. `json_of` and `record_of` convert records to JSON and back.
"""

from .ops.kernel import Crash, Driver, json_of, record_of
from .processors import PenstockError
from .processors.apps import load_app
from .processors.monoids import BrokenLaw, check_laws
from .processors.shard import Step

__all__ = ["BrokenLaw", "Crash", "Driver", "PenstockError", "Step", "check_laws", "json_of", "load_app", "record_of"]
