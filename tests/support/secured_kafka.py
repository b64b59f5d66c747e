"""A broker that requires TLS, a user name and a password; its certificate is created for it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.ops.start.dev_services.kafka import KafkaService, Listener

MECHANISM = "SCRAM-SHA-256"
USER = "penstock"
LIMITED = "limited"
"""Another user with the same password. On a broker with an authorizer, it has only the rights that a test grants."""
PASSWORD = "hunter2-of-the-tests"  # noqa: S105 - of a temporary broker
_BROKERS_PASSWORD = "only-between-brokers"  # noqa: S105 - of a temporary broker
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller's listener has no authentication.
    "super.users": f"User:admin;User:{USER};User:ANONYMOUS",
}


@dataclass(frozen=True)
class SecuredKafka:
    """A running broker with TLS and passwords.

    Args:
        bootstrap: its address.
        authority: the file of the certificate that clients trust.
        log: its log file.
    """

    bootstrap: str
    authority: Path
    log: Path

    def client(self) -> Mapping[str, str]:
        """Return librdkafka's settings of the first user."""
        return _client(self.authority, PASSWORD)

    def configuration(self, **differing: str | None) -> str:
        """Return a client configuration, with the password in `${KAFKA_PASSWORD}`.

        Args:
            differing: settings of librdkafka to change, with underscores for dots; None removes a setting.
        """
        changed = {name.replace("_", "."): value for name, value in differing.items()}
        settings = {**_client(self.authority, "${KAFKA_PASSWORD}"), **changed}
        lines = [f'{name} = "{value}"' for name, value in settings.items() if value is not None]
        return "\n".join([f'kafka = "{self.bootstrap}"', "[kafka-settings]", *lines, ""])


@contextmanager
def secured_kafka(folder: Path, *, authorizes: bool = False) -> Iterator[SecuredKafka]:
    """Run a broker with TLS and passwords in the block; with an authorizer, only the first user may do everything."""
    authority = certificate(folder)
    kafka = KafkaService(folder, _listener(folder, authority, _AUTHORIZER if authorizes else {}))
    try:
        status = kafka.up(lambda _: None)
        yield SecuredKafka(status.endpoints["bootstrap"], authority, folder / "kafka" / "log")
    finally:
        kafka.down()


def certificate(folder: Path) -> Path:
    """Create a self-signed certificate for 127.0.0.1 (`ca.pem`) with its key (`key.pem`), and a key store of both."""
    authority, key = folder / "ca.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(authority)]
    subprocess.run(made, check=True, capture_output=True)
    (folder / "keystore.pem").write_text(key.read_text() + authority.read_text())
    return authority


def _listener(folder: Path, authority: Path, authorizer: Mapping[str, str]) -> Listener:
    users = {"admin": _BROKERS_PASSWORD, USER: PASSWORD, LIMITED: PASSWORD}
    formatting = [part for name, word in users.items() for part in ("-S", f"{MECHANISM}=[name={name},password={word}]")]
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    broker = {
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "listener.name.broker.scram-sha-256.sasl.jaas.config": f'{login} username="admin" password="{_BROKERS_PASSWORD}";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "keystore.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
        **authorizer,
    }
    return Listener("SASL_SSL", broker, tuple(formatting), _client(authority, PASSWORD))


def _client(authority: Path, password: str) -> Mapping[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": password,
        "ssl.ca.location": str(authority),
    }
