"""Local services for development and tests: Kafka and HDFS from their official jars, on 127.0.0.1 only.

Each folder has its own services, with their data, ports and logs. Services continue after the command that started them.
Downloaded jars are in the user's cache folder and shared by all folders.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
