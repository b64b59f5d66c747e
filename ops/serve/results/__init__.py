"""The query server: the results of processors over HTTP, from the categories that they write.

category --ResultFollower--> ResultTable --QueryApi--> JSON
Kafka, workers' reports --FreshnessReader--> how far the results are behind
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
