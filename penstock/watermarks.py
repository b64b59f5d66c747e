"""Watermarks: how a processor estimates up to which event time its input is complete."""

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
