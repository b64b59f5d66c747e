"""What every process of Penstock has: its clock, signals, open files, ports and locks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
