"""Event time: watermarks, idleness, timers and windows."""
