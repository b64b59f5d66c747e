"""Categories as Kafka topics, through confluent-kafka."""

from .bus import KafkaBus
from .settings import KafkaSettings

__all__ = ["KafkaBus", "KafkaSettings"]
