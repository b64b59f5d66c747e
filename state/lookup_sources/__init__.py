"""Sources of looked-up rows: files, which are loaded whole, PostgreSQL and Redis.

Each source is a pair: a value that a class declares, and the client that it opens. Opening a source imports its library.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
