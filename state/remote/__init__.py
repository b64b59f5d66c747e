"""State of aggregators in a store that others can read: PostgreSQL or Redis."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
