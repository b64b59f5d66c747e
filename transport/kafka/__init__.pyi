from .bus import KafkaBus as KafkaBus
from .client_log import quiet_outages as quiet_outages
from .settings import KafkaSettings as KafkaSettings
