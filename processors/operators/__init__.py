"""Operators: the pure step of each kind of processor, from batches of events to outputs and state changes.

An operator runs one shard and collects its changes between two checkpoints. It performs no I/O and reads no clock, so the same
operators run in the worker, in replays, in the test driver and in Spark.

    batch --feed--> StepResult(outputs, rejected, late)      any number of times
          --drain--> CheckpointResult(outputs, changes)      at a checkpoint, which saves them
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
