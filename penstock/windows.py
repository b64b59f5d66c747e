"""Windows of event time, for aggregators and windowed processors."""

from .processors.time import GlobalWindow, Hopping, Session, Sliding, Tumbling, Window, WindowAssigner, WindowAssignment

__all__ = [
    "GlobalWindow",
    "Hopping",
    "Session",
    "Sliding",
    "Tumbling",
    "Window",
    "WindowAssigner",
    "WindowAssignment",
]
