"""Lookup joins: enrich events with rows from outside the bus, one request per batch.

    event --key_of--> key --cache or source--> row --join--> outputs

The sources that read files and stores are in `state.lookup_sources`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
