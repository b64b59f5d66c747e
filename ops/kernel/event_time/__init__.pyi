from .watermark_tracker import ShardWait as ShardWait
from .watermark_tracker import WatermarkTracker as WatermarkTracker
