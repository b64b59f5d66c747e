from .clock import SystemClock as SystemClock
from .open_files import ADVICE as ADVICE
from .open_files import raise_limit as raise_limit
