"""The dashboard: a web page with findings, the graph, plots of the last hour, and each processor's state and dead letters.

observer --every 2 s--> status --> history --> one event stream to each browser
state folder, dead letters --on request--> the content of a processor's state, and dry runs of its dead letters

It only reads: nothing here writes to Kafka, to a state or to a store. Operations are commands of `penstock` in their own processes, for operators.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
