from .clones.comparing import ComparedTimes as ComparedTimes
from .clones.comparing import compare_clone as compare_clone
from .commands.category_resize import resize as resize
