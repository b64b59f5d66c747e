"""Pydantic models as records and states. Only an app with models imports pydantic."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
