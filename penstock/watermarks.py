"""Watermark strategies: estimates of how far event time has advanced."""

from .processors.time.watermarks import BoundedOutOfOrderness, Confidence, Lateness, UpstreamWatermark, Watermark
from .transport.watermark_writer import WatermarkWriter

__all__ = [
    "BoundedOutOfOrderness",
    "Confidence",
    "Lateness",
    "UpstreamWatermark",
    "Watermark",
    "WatermarkWriter",
]
