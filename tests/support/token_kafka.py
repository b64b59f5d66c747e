"""A broker that requires tokens (OAUTHBEARER), without signatures, and lets its clients authenticate again every few seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.ops.start.dev_services.kafka import KafkaService, Listener

LIFETIME_S = 8
"""How long a token is valid."""
TOKENS = f'''
import base64
import json
import time
from pathlib import Path


def part(content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def token(config):
    """Return an unsigned token, and note that one was made."""
    with Path(__file__).with_name("made").open("a") as made:
        made.write("x")
    now = time.time()
    claims = {{"sub": config or "penstock", "iat": now - 60, "exp": now + {LIFETIME_S}}}
    return f"{{part({{'alg': 'none'}})}}.{{part(claims)}}.", now + {LIFETIME_S}


def expired(config):
    text, _ = token(config)
    return text, time.time() - 1


def failing(config):
    raise RuntimeError("the token service is closed")
'''
_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@contextmanager
def token_kafka(folder: Path) -> Iterator[str]:
    """Run a broker in the block; yield its address."""
    module = folder / "broker_tokens.py"
    module.write_text(TOKENS)
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=admin",
    }
    broker = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.broker.oauthbearer.sasl.jaas.config": f'{_LOGIN} unsecuredLoginStringClaim_sub="admin";',
        "connections.max.reauth.ms": LIFETIME_S * 1000,
    }
    kafka = KafkaService(folder, Listener("SASL_PLAINTEXT", broker, (), client))
    try:
        yield kafka.up(lambda _: None).endpoints["bootstrap"]
    finally:
        kafka.down()


def configuration(bootstrap: str, function: str) -> str:
    """Return a client configuration with a token function."""
    return f"""kafka = "{bootstrap}"
[kafka-settings]
security.protocol = "SASL_PLAINTEXT"
sasl.mechanism = "OAUTHBEARER"
oauth_cb = "{function}"
"""
