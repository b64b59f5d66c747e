"""Changes of states and positions: reset, resize, migrate, snapshot, restore, clone, promote."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
