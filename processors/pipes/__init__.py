"""Pipes: processors whose code is a program in any language, which reads lines and writes lines."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
