"""Monoids: partial aggregates that combine in any grouping. Ready-made monoids, and a base class for your own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
