"""How a shard's state is laid out by key, and how changes to it are expressed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
