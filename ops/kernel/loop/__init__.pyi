from .offset_limits import NO_LIMITS as NO_LIMITS
from .offset_limits import RunLimits as RunLimits
from .parts import WorkerConfig as WorkerConfig
from .until_end import LoopEnd as LoopEnd
from .until_end import UntilEnd as UntilEnd
from .worker import Worker as Worker
