"""Watermarks of a worker's buckets, read from its inputs and published for its readers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
