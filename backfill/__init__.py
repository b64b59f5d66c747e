"""Backfill: categories kept as files by day, the same processors over them in Spark, and the two results compared."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
