from .bus import KafkaBus as KafkaBus
from .client_log import quiet_outages as quiet_outages
from .column_queue import reader_limit as reader_limit
from .column_queue import reader_obstacle as reader_obstacle
from .sending_pause import writer_obstacle as writer_obstacle
from .settings import KafkaSettings as KafkaSettings
