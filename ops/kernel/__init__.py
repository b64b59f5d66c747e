"""The worker, which runs a processor on the buckets that its consumer group assigns to it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
