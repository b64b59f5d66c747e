"""Compacted categories that Penstock keeps on the bus: watermarks, schemas, registrations, maintenance."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
