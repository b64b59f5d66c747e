"""Scuba: the newest events of categories as columns, for questions that are not known in advance.

category --Ingester--> rows that the sample keeps --FlatColumns--> Arrow --ScubaStore--> segments in DuckDB
HTTP, page, terminal --ExploreQuery or a SELECT--> Explorer --> the same segments, in the same process
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
