from .lines import Line as Line
from .pipe import Pipe as Pipe
from .pipe import PipePlan as PipePlan
