"""Watermark strategies: estimates of how far event time has advanced."""

from .processors.time import BoundedOutOfOrderness, Confidence, Lateness, UpstreamWatermark, Watermark
from .transport import WatermarkWriter

__all__ = [
    "BoundedOutOfOrderness",
    "Confidence",
    "Lateness",
    "UpstreamWatermark",
    "Watermark",
    "WatermarkWriter",
]
