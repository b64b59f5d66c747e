from .load_sample import ScalingDecision as ScalingDecision
from .load_sample import ScalingLimits as ScalingLimits
from .policy import ScalingPolicy as ScalingPolicy
