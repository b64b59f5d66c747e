"""Schema registries: where other programs store the schemas of their messages."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ...processors import DeclarationError, PenstockError
from ...processors.declare import Message
from ..bounded_calls import NoAnswer, call_with_limit
from ..named_files import problem_of
from .decoded import SkippedMessage, UndecodableValue, value_of

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_MAGIC = 0
_BY_GUID = 1
_PREFIX = struct.Struct(">bI")
_GUID_HEADER = "__value_schema_id"
_GUID_BYTES = 16
_REQUEST_LIMIT_S = 10.0
ANSWER_LIMIT_S = 60.0
"""The time for all attempts of a request at one address: the client repeats it three times, with pauses."""
T = TypeVar("T")


class RegistryUnreachable(PenstockError):
    """A schema registry does not answer or refuses the credentials. Nothing was written, and the messages can be read again."""


class SchemaIncompatible(PenstockError):
    """A schema registry does not accept the schema of a record type. Nothing was written."""


class SubjectStrategy(Enum):
    """The subject of a schema in the registry, as Confluent's serializers name it."""

    TOPIC = "TopicName"
    """`orders-value`: one schema for each topic."""
    RECORD = "RecordName"
    """`com.shop.Order`: one schema for each record type, in all topics."""
    TOPIC_RECORD = "TopicRecordName"
    """`orders-com.shop.Order`: one schema for each record type in a topic."""

    def subject(self, topic: str, record: str, part: Literal["key", "value"] = "value") -> str:
        """Return the subject of the values or the keys of a topic.

        Args:
            topic: the name of the topic.
            record: the full name of the record type.
            part: the part of the messages.
        """
        match self:
            case SubjectStrategy.TOPIC:
                return f"{topic}-{part}"
            case SubjectStrategy.RECORD:
                return record
            case SubjectStrategy.TOPIC_RECORD:
                return f"{topic}-{record}"


def expect_registry(codec: object, registry: object) -> None:
    """Raise DeclarationError for a codec whose registry is none, such as the address of one."""
    if not isinstance(registry, SchemaRegistry):
        address = repr(registry) if isinstance(registry, str) else '"http://localhost:8081"'
        raise DeclarationError(
            f"{type(codec).__name__}: registry={registry!r} is no schema registry. Nothing was read. Declare "
            f"penstock.codecs.SchemaRegistry({address})."
        )


OtherTypes = Literal["read", "reject", "skip"]
"""What to do with a message whose schema has another name than the record type: read it if it fits, reject it as undecodable, or skip it."""


def expect_other_types(codec: object, other_types: object) -> None:
    """Raise DeclarationError for an unknown treatment of other types."""
    if other_types not in {"read", "reject", "skip"}:
        raise DeclarationError(
            f"{type(codec).__name__}(other_types={other_types!r}) has an unknown value. Declare 'read', 'reject' or 'skip'."
        )


def expect_type(found: str, wanted: str, other_types: OtherTypes) -> None:
    """Check the name of a message's schema.

    Args:
        found: its full name; empty if it has none.
        wanted: the name of the record type, with or without a namespace.
        other_types: the treatment of other names.

    Raises:
        UndecodableValue: the message has another type, which is rejected.
        SkippedMessage: the message has another type, which is skipped.
    """
    is_same = found == wanted or ("." not in wanted and found.rpartition(".")[2] == wanted)
    if is_same or not found or other_types == "read":
        return
    if other_types == "skip":
        raise SkippedMessage
    raise UndecodableValue(f"it is a {found}, not a {wanted}")


@dataclass(frozen=True)
class SchemaRegistry:
    """A Confluent-compatible schema registry, such as Confluent's, Redpanda's, Karapace or Apicurio.

    Needs `pip install 'penstock[registry]'`. Schemas are fetched once for each process.

    Args:
        url: the address, or several with commas between them; `mock://name` is a registry in memory for tests, one for each process.
        user: the user name for basic authentication.
        password: the password for basic authentication.
        ca: the path of the certificates of authorities that sign the registry's certificate; by default those of the system.
        certificate: the path of the client's certificate.
        key: the path of the private key of the client's certificate.

    Raises:
        DeclarationError: the URL contains credentials, or a user has no password.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if "@" in self.url:
            raise DeclarationError(
                "The URL of a schema registry must not contain credentials. Declare `user` and `password`."
            )
        if (self.user is None) != (self.password is None):
            raise DeclarationError(f"The schema registry {self.url} needs both `user` and `password`, or neither.")

    def settings(self) -> dict[str, Any]:
        """Return the settings of Confluent's client."""
        login = None if self.user is None else f"{self.user}:{self.password}"
        settings = {
            "url": self.url,
            "basic.auth.user.info": login,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
            "timeout": _REQUEST_LIMIT_S,
        }
        return {name: setting for name, setting in settings.items() if setting is not None}


class RegistrySchema(NamedTuple):
    """A schema as a registry stores it.

    Args:
        text: the schema.
        references: the schemas that it refers to, by name.
    """

    text: str
    references: tuple[tuple[str, RegistrySchema], ...] = ()


def json_schema_of(schema: Any) -> RegistrySchema:
    """Return a schema whose text is JSON."""
    return RegistrySchema(json.dumps(schema))


def _json_lines(text: str) -> list[str]:
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False).splitlines()


@dataclass(frozen=True)
class SchemaKind:
    """A language of schemas.

    Args:
        name: its name in the registry.
        text_format: the format of the text to request from the registry; None for the default.
        lines: splits a schema into lines, for comparisons.
    """

    name: str
    text_format: str | None = None
    lines: Callable[[str], list[str]] = _json_lines


AVRO = SchemaKind("AVRO")
JSON = SchemaKind("JSON")


class RegistryClient:
    """The schemas of a registry in one language, each fetched once.

    Args:
        registry: the registry.
        kind: the language.
    """

    def __init__(self, registry: SchemaRegistry, kind: SchemaKind) -> None:
        self._registry = registry
        self._kind = kind
        self._client = _client_of(registry)
        self._by_id: dict[int | str, RegistrySchema] = {}

    def find(self, schema_id: int | str) -> RegistrySchema:
        """Return the schema of an id, or of a GUID.

        Raises:
            UndecodableValue: the registry has no such schema.
            RegistryUnreachable: the registry does not answer.
        """
        if schema_id not in self._by_id:
            with self._translated(f"Schema {schema_id} was not fetched"):
                try:
                    self._by_id[schema_id] = self._stored(self._fetched(schema_id))
                except self._errors() as error:
                    if error.http_status_code == 404:
                        raise UndecodableValue(
                            f"its schema {schema_id} is not in the schema registry {self._registry.url}"
                        ) from error
                    raise
        return self._by_id[schema_id]

    def language_of(self, schema_id: int | str) -> str:
        """Return the language of a schema: AVRO, JSON or PROTOBUF.

        Raises:
            RegistryUnreachable: the registry does not answer, or has no such schema.
        """
        with self._translated(f"Schema {schema_id} was not fetched"):
            try:
                language = self._fetched(schema_id).schema_type
            except self._errors() as error:
                raise self._unreachable(f"Schema {schema_id} was not fetched", error) from error
        self._client.clear_caches()  # the client would return this text, too, when asked for a descriptor
        return str(language or AVRO.name)

    def _fetched(self, schema_id: int | str) -> Schema:
        if isinstance(schema_id, int):
            return self._answer(lambda: self._client.get_schema(schema_id, fmt=self._kind.text_format))
        return self._answer(lambda: self._client.get_schema_by_guid(schema_id, fmt=self._kind.text_format))

    def _answer(self, request: Callable[[], T]) -> T:
        """Return the answer to a request, whose time limit is for the whole exchange."""
        limit_s = ANSWER_LIMIT_S * len(self._registry.url.split(","))
        try:
            return call_with_limit(request, limit_s)
        except NoAnswer as error:
            raise TimeoutError(f"no complete answer within {limit_s:g} s") from error

    def _stored(self, schema: Schema) -> RegistrySchema:
        references = [
            (
                str(one.name),
                self._stored(self._version_of(str(one.subject), one.version or "latest")),
            )
            for one in schema.references or ()
        ]
        return RegistrySchema(str(schema.schema_str), tuple(references))

    def _version_of(self, subject: str, version: int | Literal["latest"]) -> Schema:
        return self._answer(lambda: self._client.get_version(subject, version, fmt=self._kind.text_format)).schema

    def id_of(self, subject: str, schema: RegistrySchema, *, register: bool) -> int:
        """Return the id of a schema under a subject.

        Args:
            subject: the subject.
            schema: the schema.
            register: whether to register the schema and its references if they are not registered.

        Raises:
            SchemaIncompatible: the schema is not registered, or the subject's compatibility setting forbids it.
            RegistryUnreachable: the registry does not answer.
        """
        return self._registered(subject, schema) if register else self._looked_up(subject, schema)

    def _registered(self, subject: str, schema: RegistrySchema) -> int:
        try:
            with self._translated(f"The schema of {subject} was not registered"):
                request = self._request(schema, registers=True)
                return int(self._answer(lambda: self._client.register_schema(subject, request)))
        except self._errors() as error:
            raise SchemaIncompatible(
                f"The schema registry {self._registry.url} does not accept the schema of {subject}: {error}. Nothing was written. Change the "
                "record type so that consumers can still read it, for example with a default for a new field; write with the registered schema (`latest=True`); or relax the "
                f"compatibility setting of the subject.{self._difference(subject, schema)}"
            ) from error

    def _looked_up(self, subject: str, schema: RegistrySchema) -> int:
        try:
            with self._translated(f"The schema of {subject} was not found"):
                request = self._request(schema, registers=False)
                return int(self._answer(lambda: self._client.lookup_schema(subject, request)).schema_id or 0)
        except self._errors() as error:
            raise SchemaIncompatible(
                f"The schema of {subject} is not registered in {self._registry.url}: {error}. Nothing was written, because the codec declares "
                f"`register=False`. Register this schema, or change the record type: {schema.text}{self._difference(subject, schema)}"
            ) from error

    def _request(self, schema: RegistrySchema, *, registers: bool) -> Schema:
        """Return a schema for the client. As with Confluent's serializers, the subject of a reference is its name."""
        from confluent_kafka.schema_registry import Schema, SchemaReference  # noqa: PLC0415 - an optional dependency

        references = []
        for name, referenced in schema.references:
            request = self._request(referenced, registers=registers)
            if registers:
                self._answer(partial(self._client.register_schema, name, request))
            found = self._answer(partial(self._client.lookup_schema, name, request))
            references.append(SchemaReference(name, name, found.version))
        return Schema(schema.text, self._kind.name, references)

    def latest(self, subject: str) -> tuple[int, RegistrySchema]:
        """Return the id and the latest schema of a subject.

        Raises:
            SchemaIncompatible: the subject has no schema.
            RegistryUnreachable: the registry does not answer.
        """
        found = self.latest_or_none(subject)
        if found is None:
            raise SchemaIncompatible(
                f"The schema registry {self._registry.url} has no schema of {subject}. Nothing was written. Register a schema, or declare "
                "`latest=False`, so that the record type determines the schema."
            )
        return found

    def latest_or_none(self, subject: str) -> tuple[int, RegistrySchema] | None:
        """Return the id and the latest schema of a subject; None if it has no schema.

        Raises:
            RegistryUnreachable: the registry does not answer.
        """
        try:
            with self._translated(f"The latest schema of {subject} was not fetched"):
                found = self._answer(lambda: self._client.get_latest_version(subject, fmt=self._kind.text_format))
                return int(found.schema_id or 0), self._stored(found.schema)
        except self._errors():
            return None

    def _difference(self, subject: str, schema: RegistrySchema) -> str:
        """Return the lines that differ from the latest schema of a subject; an empty text if there is none, or if it has another language."""
        with suppress(RegistryUnreachable, ValueError):
            latest = self.latest_or_none(subject)
            if latest is not None:
                registered, own = self._kind.lines(latest[1].text), self._kind.lines(schema.text)
                changes = list(unified_diff(registered, own, "registered", "record type", n=1, lineterm=""))
                return "\n" + "\n".join(changes) if changes else ""
        return ""

    @contextmanager
    def _translated(self, request: str) -> Iterator[None]:
        """Translate errors that another attempt may solve; errors about the schema itself pass through."""
        try:
            yield
        except PenstockError:
            raise
        except self._errors() as error:
            if error.http_status_code in {404, 409, 422}:
                raise
            raise self._unreachable(request, error) from error
        except (UndecodableValue, DeclarationError):
            raise
        except Exception as error:  # the client passes on the errors of its HTTP library
            raise self._unreachable(request, error) from error

    def _unreachable(self, request: str, error: Exception) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"{request}: {self._failure(error)}: {type(error).__name__}: {error}. Nothing was written, and no event is lost. {self._remedy(error)}"
        )

    def _failure(self, error: Exception) -> str:
        url, user = self._registry.url, self._registry.user
        match getattr(error, "http_status_code", None):
            case 401:
                return f"the schema registry {url} refuses " + (
                    f"the password of {user!r}" if user else "requests without a user"
                )
            case 403:
                return f"the schema registry {url} does not permit this request" + (f" to {user!r}" if user else "")
        return f"the schema registry {url} did not answer as expected"

    def _remedy(self, error: Exception) -> str:
        if getattr(error, "http_status_code", None) == 401:
            return (
                "Declare `user` and `password` of the SchemaRegistry as the registry knows them, or correct --registry-user and "
                "PENSTOCK_REGISTRY_PASSWORD, then start again."
            )
        if getattr(error, "http_status_code", None) == 403:
            return "Permit it in the registry, or declare another user, then start again."
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "The registry's certificate is not trusted: declare the certificates of its authority as `ca` of the SchemaRegistry, or with --registry-ca."
        return "Check the address and the credentials, then start again."

    @staticmethod
    def _errors() -> type[Any]:
        from confluent_kafka.schema_registry import SchemaRegistryError  # noqa: PLC0415 - an optional dependency

        return SchemaRegistryError


@lru_cache(maxsize=100)
def _client_of(registry: SchemaRegistry) -> SchemaRegistryClient:
    """Return the client of a registry; the codecs of a process share it."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise DeclarationError(
            f"A codec uses the schema registry {registry.url}, but a library is not installed ({error}). Install it: pip install "
            "'penstock[registry]'"
        ) from error
    _expect_files(registry)
    try:
        return SchemaRegistryClient.new_client(registry.settings())
    except (ValueError, TypeError, OSError) as error:
        raise DeclarationError(f"The settings of the schema registry {registry.url} are invalid: {error}.") from error


def _expect_files(registry: SchemaRegistry) -> None:
    """Raise DeclarationError if a file that the registry's declaration names cannot be read."""
    named = {"ca": registry.ca, "certificate": registry.certificate, "key": registry.key}
    for setting, name in named.items():
        problem = problem_of(name, or_folder=setting == "ca") if name is not None else ""
        if problem:
            raise DeclarationError(
                f"`{setting}` of the schema registry {registry.url} {problem}. No request was sent. Correct the path, or make the file readable for this "
                "process."
            )


class Framed(NamedTuple):
    """A value and the id of its schema.

    Args:
        schema_id: the id in the registry, or the GUID.
        value: the bytes after the id.
        in_header: the bytes after the GUID in the header; None if the id is not in a header.
    """

    schema_id: int | str
    value: bytes
    in_header: bytes | None = None


def unframed(message: Message) -> Framed:
    """Return the schema id and the value of a message: the id precedes the value, or a header contains a GUID.

    Raises:
        UndecodableValue: the message has no schema id.
    """
    value = value_of(message)
    for name, content in message.headers() or ():
        if name == _GUID_HEADER and content is not None and len(content) > _GUID_BYTES and content[0] == _BY_GUID:
            return Framed(_guid(content[1 : _GUID_BYTES + 1]), value, content[_GUID_BYTES + 1 :])
    return unframed_bytes(value)


def unframed_bytes(value: bytes) -> Framed:
    """Return the schema id at the beginning of a value or a key, and the bytes after it.

    Raises:
        UndecodableValue: there is no schema id.
    """
    if len(value) > _GUID_BYTES and value[0] == _BY_GUID:
        return Framed(_guid(value[1 : _GUID_BYTES + 1]), value[_GUID_BYTES + 1 :])
    if len(value) < _PREFIX.size or value[0] != _MAGIC:
        raise UndecodableValue("not in the format of a schema registry: it does not begin with 0 and a schema id")
    return Framed(_PREFIX.unpack_from(value)[1], value[_PREFIX.size :])


def _guid(content: bytes) -> str:
    digits = content.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def prefix_of(schema_id: int) -> bytes:
    """Return the bytes before a value: 0 and the id of its schema."""
    return _PREFIX.pack(_MAGIC, schema_id)
