"""The open shards of a worker: their states, positions, backups, and the checks before they open."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
